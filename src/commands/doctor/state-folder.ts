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
import { foreseeStateFolder, ownerHint } from '../../store/state-folder.ts';
import { type CheckLine, type Consultation, failure, ok, warning } from './finding.ts';
import { optionAgainstSync } from './mount-options.ts';

/** statfs(2) types of file systems on which an acknowledged value is not safe, and why. */
const DOUBTFUL: Readonly<Record<number, string>> = {
  16914836: 'tmpfs: memory, everything in it is gone with the power',
  2240043254: 'ramfs: memory, everything in it is gone with the power',
  26985: 'NFS: locks and syncs cannot be relied on',
  4283649346: 'SMB: locks and syncs cannot be relied on',
  4266872130: 'SMB: locks and syncs cannot be relied on',
  16914839: '9p: syncs cannot be relied on',
  1702057286: 'FUSE: syncs cannot be relied on',
  2035054128: 'overlayfs: the layer of a container is gone with it, mount a volume',
};
/** An SD card syncs in some tens of milliseconds; a commit each second cannot live with a second. */
const SLOW_SYNC_MS = 500;
const SYNCS = 5;
const SERVICE_USER = 'tagferry';

/** STATE_DIR: there, private, writable, room on it, how long a sync takes, whether the file system keeps its word. */
export function checkStateFolder({ settings, clock, daemon, isService }: Consultation): CheckLine[] {
  const { stateDir } = settings;
  const lines: CheckLine[] = [];
  try {
    const stats = statSync(stateDir);
    if (!stats.isDirectory()) {
      return [failure('state.folder', `${stateDir} is no folder`, 'Move it away, or set STATE_DIR.')];
    }
    lines.push(...checkGuard(stateDir, stats.mode));
  } catch (error) {
    if (codeOf(error) === 'ENOENT') {
      return [warning('state.folder', `${stateDir} does not exist yet`, 'The daemon makes it when it starts.')];
    }
    const refused = `${stateDir} may not be looked at (${codeOf(error)})`;
    if (isService) return [failure('state.folder', `${refused} by the service`, ownerHint(stateDir, SERVICE_USER))];
    return [warning('state.folder', refused, 'Run `sudo tagferry doctor`.')];
  }
  if (isService) lines.push(...checkOwner(stateDir));
  lines.push(
    ...checkSync(stateDir, clock.monotonicMs, isService),
    ...checkRoom(stateDir, settings, daemon?.buffer.bytes ?? 0),
  );
  lines.push(...checkFileSystem(stateDir));
  return lines;
}

/** What the start would refuse, or narrow. */
function checkGuard(stateDir: string, mode: number): CheckLine[] {
  const { refusal, narrowsFrom } = foreseeStateFolder(stateDir);
  if (refusal) return [failure('state.folder', `a start is refused: ${refusal.message}`, refusal.hint ?? '')];
  if ((mode & 0o077) === 0) return [];
  const what = `${stateDir} is open to others (${(mode & 0o777).toString(8)})`;
  const start = narrowsFrom === undefined ? '' : '; the next start makes it 0700';
  return [warning('state.folder', `${what}${start}`, `chmod 700 ${stateDir}`)];
}

/** Files that somebody else made, most often root by hand: a service that cannot open its own stores ends again and again. */
function checkOwner(stateDir: string): CheckLine[] {
  let names: string[] = [];
  try {
    names = readdirSync(stateDir);
  } catch {
    // What follows tries to write, and says it.
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
      const next = `\`systemctl edit tagferry\`: [Service] ReadWritePaths=${stateDir}; or mount it for writing.`;
      return [failure('state.writable', `${stateDir} is read-only for the service`, next)];
    }
    if (codeOf(error) === 'EACCES') {
      return [warning('state.writable', `this user may not write to ${stateDir}`, 'Run `sudo tagferry doctor`.')];
    }
    const next = 'Free space, or look at the disk: `dmesg`, `df -h`, `mount`.';
    return [failure('state.writable', `${stateDir} cannot be written (${codeOf(error)})`, next)];
  }
  const slowest = Math.max(...times);
  const median = times.sort((a, b) => a - b)[Math.floor(SYNCS / 2)]!;
  const text = `${stateDir} is written; a sync takes ${median.toFixed(1)} ms, ${slowest.toFixed(1)} ms at worst`;
  if (median < SLOW_SYNC_MS) return [ok('state.writable', text)];
  return [warning('state.writable', text, 'The disk is slow or worn: raise COMMIT_INTERVAL, or replace it.')];
}

function checkRoom(stateDir: string, settings: Consultation['settings'], bufferBytes: number): CheckLine[] {
  const stats = statfsSync(stateDir);
  const free = stats.bavail * stats.bsize;
  const whole = stats.blocks * stats.bsize;
  const { bufferMinFree, bufferMaxBytes = 0 } = settings;
  const min =
    bufferMinFree === undefined ? 0 : 'bytes' in bufferMinFree ? bufferMinFree.bytes : bufferMinFree.share * whole;
  const text = `${bytesText(free)} of ${bytesText(whole)} free for ${stateDir}`;
  if (free < min) {
    const next = `New values get 503 below ${bytesText(min)} (BUFFER_MIN_FREE): free space.`;
    return [failure('state.space', text, next)];
  }
  if (bufferMaxBytes > free - min + bufferBytes) {
    const next = `BUFFER_MAX_BYTES is ${bytesText(bufferMaxBytes)}: lower it, or a long outage fills the disk first.`;
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
    const what = `${stateDir} is mounted with ${option}: a sync does not reach the disk`;
    return [failure('state.file_system', what, `Remove ${option} from /etc/fstab and mount it again.`)];
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
