import {
  accessSync,
  closeSync,
  constants,
  fsyncSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statfsSync,
  statSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { bytesText } from '../../base/amounts.ts';
import { codeOf } from '../../base/errors.ts';
import { ownerHint, previewStateFolder } from '../../store/state-folder.ts';
import { type CheckLine, type DoctorContext, failure, ok, warning } from './context.ts';

/** File system types (statfs(2)) on which acknowledged values can be lost, with the reason. */
const DOUBTFUL: Readonly<Record<number, string>> = {
  16914836: 'tmpfs, which loses all data on power loss',
  2240043254: 'ramfs, which loses all data on power loss',
  26985: 'NFS, where locks and syncs are unreliable',
  4283649346: 'SMB, where locks and syncs are unreliable',
  4266872130: 'SMB, where locks and syncs are unreliable',
  16914839: '9p, where syncs are unreliable',
  1702057286: 'FUSE, where syncs are unreliable',
  2035054128: 'overlayfs, a container layer that is deleted with the container',
};
/** An SD card usually syncs within tens of milliseconds. The agent commits once per second. */
const SLOW_SYNC_MS = 500;
const SYNCS = 5;
const SERVICE_USER = 'tagferry';

/** Checks STATE_DIR: existence, mode, owner, write access, sync time, free space and file system. */
export function checkStateFolder({ settings, clock, agent, isService }: DoctorContext): CheckLine[] {
  const { stateDir } = settings;
  const lines: CheckLine[] = [];
  try {
    const stats = statSync(stateDir);
    if (!stats.isDirectory()) {
      return [failure('state.folder', `${stateDir} is not a folder`, 'Move the file, or set STATE_DIR.')];
    }
    lines.push(...checkGuard(stateDir, stats.mode));
  } catch (error) {
    if (codeOf(error) === 'ENOENT') {
      return [warning('state.folder', `${stateDir} does not exist yet`, 'The agent creates it on its first start.')];
    }
    const denied = `cannot access ${stateDir} (${codeOf(error)})`;
    if (isService) return [failure('state.folder', `the service ${denied}`, ownerHint(stateDir, SERVICE_USER))];
    return [warning('state.folder', `this user ${denied}`, 'Run `sudo tagferry doctor`.')];
  }
  if (isService) lines.push(...checkOwner(stateDir));
  lines.push(
    ...checkSync(stateDir, clock.monotonicMs, isService),
    ...checkRoom(stateDir, settings, agent?.buffer.bytes ?? 0),
  );
  lines.push(...checkFileSystem(stateDir));
  return lines;
}

/** Returns problems that prevent startup, and file modes that the agent changes at startup. */
function checkGuard(stateDir: string, mode: number): CheckLine[] {
  const { refusal, narrowsFrom } = previewStateFolder(stateDir);
  if (refusal) return [failure('state.folder', `the agent cannot start: ${refusal.message}`, refusal.hint ?? '')];
  if ((mode & 0o077) === 0) return [];
  const what = `other users can access ${stateDir} (mode ${(mode & 0o777).toString(8)})`;
  const start = narrowsFrom === undefined ? '' : '; the agent will change the mode to 0700 on the next start';
  return [warning('state.folder', `${what}${start}`, `Run \`chmod 700 ${stateDir}\`.`)];
}

/** Returns files owned by another user, usually root, which prevent the service from starting. */
function checkOwner(stateDir: string): CheckLine[] {
  let names: string[] = [];
  try {
    names = readdirSync(stateDir);
  } catch {
    // The next check reports the problem.
  }
  const closed = names.filter((name) => {
    try {
      accessSync(join(stateDir, name), constants.R_OK | constants.W_OK);
      return false;
    } catch (error) {
      return codeOf(error) === 'EACCES';
    }
  });
  if (closed.length === 0) return [];
  const which = closed.length === 1 ? closed[0]! : `${closed[0]} and ${closed.length - 1} more`;
  return [failure('state.owner', `the service cannot open ${which} in ${stateDir}`, ownerHint(stateDir, SERVICE_USER))];
}

function checkSync(stateDir: string, now: () => number, isService: boolean): CheckLine[] {
  const path = join(stateDir, `.doctor-${process.pid}`);
  const times: number[] = [];
  try {
    const file = openSync(path, 'wx', 0o600);
    try {
      rmSync(path);
      for (let i = 0; i < SYNCS; i++) {
        writeSync(file, Buffer.alloc(4096, i));
        const startMs = now();
        fsyncSync(file);
        times.push(now() - startMs);
      }
    } finally {
      closeSync(file);
    }
  } catch (error) {
    if (isService && codeOf(error) === 'EACCES') {
      return [failure('state.writable', `the service cannot write to ${stateDir}`, ownerHint(stateDir, SERVICE_USER))];
    }
    if (isService && codeOf(error) === 'EROFS') {
      const next = `Run \`systemctl edit tagferry\` and add ReadWritePaths=${stateDir} to [Service], or remount the file system read-write.`;
      return [failure('state.writable', `${stateDir} is read-only for the service`, next)];
    }
    if (codeOf(error) === 'EACCES') {
      return [warning('state.writable', `this user cannot write to ${stateDir}`, 'Run `sudo tagferry doctor`.')];
    }
    const next = 'Free up space, or check the disk with `dmesg`, `df -h` and `mount`.';
    return [failure('state.writable', `cannot write to ${stateDir} (${codeOf(error)})`, next)];
  }
  const slowest = Math.max(...times);
  const median = times.sort((a, b) => a - b)[Math.floor(SYNCS / 2)]!;
  const text = `${stateDir} is writable; a sync takes ${median.toFixed(1)} ms (maximum ${slowest.toFixed(1)} ms)`;
  if (median < SLOW_SYNC_MS) return [ok('state.writable', text)];
  return [warning('state.writable', text, 'The disk is slow or worn. Increase COMMIT_INTERVAL, or replace the disk.')];
}

function checkRoom(stateDir: string, settings: DoctorContext['settings'], bufferBytes: number): CheckLine[] {
  const stats = statfsSync(stateDir);
  const free = stats.bavail * stats.bsize;
  const whole = stats.blocks * stats.bsize;
  const { bufferMinFree, bufferMaxBytes = 0 } = settings;
  const min =
    bufferMinFree === undefined ? 0 : 'bytes' in bufferMinFree ? bufferMinFree.bytes : bufferMinFree.share * whole;
  const text = `${bytesText(free)} of ${bytesText(whole)} free for ${stateDir}`;
  if (free < min) {
    const next = `Free up space. Below ${bytesText(min)} (BUFFER_MIN_FREE) the agent rejects new values with 503.`;
    return [failure('state.space', text, next)];
  }
  if (bufferMaxBytes > free - min + bufferBytes) {
    const next = `Reduce BUFFER_MAX_BYTES (${bytesText(bufferMaxBytes)}), because a long outage would fill the disk first.`;
    return [warning('state.space', text, next)];
  }
  return [ok('state.space', text)];
}

function checkFileSystem(stateDir: string): CheckLine[] {
  const doubt = DOUBTFUL[statfsSync(stateDir).type];
  const next = 'Set STATE_DIR to a local disk (ext4, f2fs, xfs).';
  if (doubt) return [warning('state.file_system', `${stateDir} is on ${doubt}`, next)];
  const option = optionAgainstSync(mounts(), stateDir);
  if (option !== undefined) {
    const what = `${stateDir} is mounted with ${option}, so syncs do not reach the disk`;
    return [failure('state.file_system', what, `Remove ${option} from /etc/fstab and remount the file system.`)];
  }
  return [ok('state.file_system', `${stateDir} is on a local file system`)];
}

function mounts(): string {
  try {
    return readFileSync('/proc/self/mounts', 'utf8');
  } catch {
    return '';
  }
}

/**
 * Mount options that let a sync return before the data is on disk: ext4 and f2fs `nobarrier`, f2fs modes, and the older
 * `barrier=0`.
 */
const WITHOUT_SYNC = new Set(['nobarrier', 'barrier=0', 'fsync_mode=nobarrier', 'checkpoint=disable']);

/** Returns the folder's mount option that disables syncs, if any; `mounts` is the text of /proc/self/mounts. */
export function optionAgainstSync(mounts: string, folder: string): string | undefined {
  const above = mounts
    .split('\n')
    .filter(Boolean)
    .map((line) => line.split(' '))
    .map(([, at = '', , options = '']) => ({ at, options }))
    .filter(({ at }) => at === '/' || folder === at || folder.startsWith(`${at}/`));
  const depth = Math.max(...above.map(({ at }) => at.length));
  // If several file systems are mounted at one path, the last one is visible.
  const seen = above.findLast(({ at }) => at.length === depth);
  return seen?.options.split(',').find((option) => WITHOUT_SYNC.has(option));
}
