import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';

const BOOT_ID = '/proc/sys/kernel/random/boot_id';
const TIME_OFFSETS = '/proc/self/timens_offsets';

/**
 * Identifies the monotonic clock by the boot of the machine and the time namespace. Times of two runs are comparable
 * only if both IDs are equal. An unreadable boot ID is not equal to any other.
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
    // The kernel does not support time namespaces.
    return boot;
  }
}
