import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';

/** A name that stays the same at every start and differs from gateway to gateway. */
export function gatewayName(stateDir: string, name: string): string {
  const place = [machineId(), stateDir, name].join('\0');
  return `tagferry-${createHash('sha256').update(place).digest('hex').slice(0, 16)}`;
}

function machineId(): string {
  try {
    return readFileSync('/etc/machine-id', 'utf8').trim();
  } catch {
    return hostname();
  }
}
