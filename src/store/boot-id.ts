import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';

const BOOT_ID = '/proc/sys/kernel/random/boot_id';
const TIME_OFFSETS = '/proc/self/timens_offsets';

/**
 * Names the monotonic clock: the machine's current start and the time namespace, whose monotonic clock may be another. Two
 * runs with the same name may compare their times. A boot id that cannot be read is no boot id, and equals no other.
 */
export function bootId(read = (path: string) => readFileSync(path, 'utf8')): string {
  let boot: string;
  try {
    boot = read(BOOT_ID).trim();
  } catch {
    boot = '';
  }
  if (boot === '') return `unknown-${randomUUID()}`;
  try {
    const offset = /^monotonic\s+(-?\d+)\s+(\d+)/m.exec(read(TIME_OFFSETS));
    return offset === null || (offset[1] === '0' && offset[2] === '0') ? boot : `${boot}+${offset[1]}.${offset[2]}`;
  } catch {
    // A kernel without time namespaces.
    return boot;
  }
}
