/**
 * By what brokers, and what it left running, know this gateway: a name that stays the same for its life and differs from gateway to gateway, made of the machine and
 * its state folder. A gateway that takes another's place (`tagferry restore`) goes on under the other's name, which
 * `STATE_DIR/identity.json` keeps: what a broker's session holds for it is then not lost. Without that file there is the machine's own.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';

export const IDENTITY_FILE = 'identity.json';

export interface GatewayIdentity {
  machine: string;
  folder: string;
}

export function gatewayIdentity(stateDir: string): GatewayIdentity {
  return keptIdentity(stateDir) ?? { machine: machineId(), folder: stateDir };
}

/** The client id of this gateway at one of its brokers, or what else needs a name of its own. */
export function gatewayName(stateDir: string, name: string): string {
  const { machine, folder } = gatewayIdentity(stateDir);
  const place = [machine, folder, name].join('\0');
  return `tagferry-${createHash('sha256').update(place).digest('hex').slice(0, 16)}`;
}

function keptIdentity(stateDir: string): GatewayIdentity | undefined {
  try {
    const { machine, folder } = JSON.parse(
      readFileSync(join(stateDir, IDENTITY_FILE), 'utf8'),
    ) as Partial<GatewayIdentity>;
    return typeof machine === 'string' && typeof folder === 'string' ? { machine, folder } : undefined;
  } catch {
    return undefined;
  }
}

function machineId(): string {
  try {
    return readFileSync('/etc/machine-id', 'utf8').trim();
  } catch {
    return hostname();
  }
}
