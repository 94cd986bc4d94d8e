import { expect, it } from 'vitest';
import { optionAgainstSync } from '../../../src/commands/doctor/state-folder.ts';

const STATE = '/var/lib/tagferry';
const ROOT = '/dev/mmcblk0p2 / ext4 rw,relatime 0 0\nproc /proc proc rw 0 0\n';
const f2fs = (options: string) => `${ROOT}/dev/mmcblk0p3 /var/lib f2fs rw,lazytime,background_gc=on,${options} 0 0\n`;

it.each([
  ['nobarrier', `/dev/mmcblk0p2 / ext4 rw,relatime,nobarrier 0 0\n`],
  ['barrier=0', `/dev/sda1 / ext3 rw,barrier=0,data=ordered 0 0\n`],
  ['nobarrier', f2fs('nobarrier,fsync_mode=posix')],
  ['fsync_mode=nobarrier', f2fs('barrier,mode=adaptive,fsync_mode=nobarrier')],
  ['checkpoint=disable', f2fs('barrier,checkpoint=disable,fsync_mode=posix')],
])('doctor warns about a mount with %s, which ignores syncs', (option, mounts) => {
  expect(optionAgainstSync(mounts, STATE)).toBe(option);
});

it('doctor accepts ext4 and f2fs with common mount options, regardless of other mounts', () => {
  expect(optionAgainstSync(ROOT, STATE)).toBeUndefined();
  expect(optionAgainstSync(f2fs('barrier,checkpoint=enable,fsync_mode=posix'), STATE)).toBeUndefined();
  const elsewhere = '/dev/sda1 /var/lib/tagferry-old ext4 rw,nobarrier 0 0\n/dev/sdb1 /srv ext4 rw,nobarrier 0 0\n';
  expect(optionAgainstSync(`${ROOT}${elsewhere}`, STATE)).toBeUndefined();
  expect(optionAgainstSync('', STATE)).toBeUndefined();
});

it('doctor uses the later of two mounts at the same path', () => {
  const first = '/dev/sda1 /var/lib/tagferry ext4 rw,nobarrier 0 0\n';
  const second = '/dev/sdb1 /var/lib/tagferry f2fs rw,fsync_mode=posix 0 0\n';
  expect(optionAgainstSync(`${ROOT}${first}${second}`, STATE)).toBeUndefined();
  expect(optionAgainstSync(`${ROOT}${second}${first}`, STATE)).toBe('nobarrier');
});
