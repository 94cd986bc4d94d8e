/**
 * Name that identifies this gateway to brokers. The name is derived from the machine and the state folder, is unique
 * per gateway, and never changes. After `tagferry restore` on another machine, `STATE_DIR/identity.json` contains the
 * name of the replaced gateway, so that its broker sessions are not lost.
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

/** Returns the client ID of this gateway for one broker, or a unique name for another purpose. */
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
