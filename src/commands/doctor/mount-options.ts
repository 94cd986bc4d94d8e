/** With one of these a sync ends before the disk has it: ext4 and f2fs `nobarrier`, f2fs's own modes, `barrier=0` of old. */
const WITHOUT_SYNC = new Set(['nobarrier', 'barrier=0', 'fsync_mode=nobarrier', 'checkpoint=disable']);

/** The option of the folder's mount by which a sync does not keep its word; `mounts` is the text of /proc/self/mounts. */
export function optionAgainstSync(mounts: string, folder: string): string | undefined {
  const above = mounts
    .split('\n')
    .filter(Boolean)
    .map((line) => line.split(' '))
    .map(([, at = '', , options = '']) => ({ at, options }))
    .filter(({ at }) => at === '/' || folder === at || folder.startsWith(`${at}/`));
  const depth = Math.max(...above.map(({ at }) => at.length));
  // Of several at one place the last is what is seen.
  const seen = above.findLast(({ at }) => at.length === depth);
  return seen?.options.split(',').find((option) => WITHOUT_SYNC.has(option));
}
