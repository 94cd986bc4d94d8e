/**
 * Reads file system usage. An unresponsive network share blocks the calling thread, and libuv has only four threads for
 * file operations. Therefore, each path is read by a separate `stat` process, which is killed at a deadline. A process
 * that cannot be killed remains in `#running`: reads of its path fail until it exits, and no second process is started.
 */
import { execFile } from 'node:child_process';
import type { Clock } from '../../base/clock.ts';
import { messageOf, TagferryError } from '../../base/errors.ts';
import { programEnvironment } from '../../base/programs/environment.ts';

const DEADLINE_MS = 5_000;
/** Output limit, enough for four numbers or one error line. */
const MAX_OUTPUT = 1_000;

/** In bytes. */
export interface Space {
  used: number;
  /** Bytes available to unprivileged users. */
  free: number;
}

export class FileSystems {
  readonly #clock: Clock;
  readonly #running = new Set<string>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Reads the usage of the file system that contains `path`. Rejects at the deadline or when the signal is aborted. */
  async space(path: string, signal: AbortSignal): Promise<Space> {
    signal.throwIfAborted();
    if (this.#running.has(path)) throw failure(path, 'does not respond');
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    const options = {
      cwd: '/',
      env: { ...programEnvironment(process.env, 'stat'), LC_ALL: 'C' },
      maxBuffer: MAX_OUTPUT,
    };
    const child = execFile('stat', ['-f', '-c', '%S %b %f %a', '--', path], options, (error, stdout, stderr) => {
      if (error) reject(failure(path, stderr.trim() || `stat failed: ${messageOf(error)}`));
      else resolve(stdout);
    });
    this.#running.add(path);
    const remove = () => this.#running.delete(path);
    child.once('exit', remove).once('error', remove);
    const abandon = (reason: string) => {
      reject(failure(path, reason));
      child.kill('SIGKILL');
      // The agent does not wait for a process that cannot be killed.
      child.stdout?.destroy();
      child.stderr?.destroy();
      child.unref();
    };
    const onAbort = () => abandon('read cancelled');
    const cancelDeadline = this.#clock.after(DEADLINE_MS, () => abandon(`no response within ${DEADLINE_MS / 1_000} s`));
    signal.addEventListener('abort', onAbort, { once: true });
    try {
      return spaceIn(path, await promise);
    } finally {
      cancelDeadline();
      signal.removeEventListener('abort', onAbort);
    }
  }
}

function spaceIn(path: string, output: string): Space {
  const numbers = output.trim().split(' ').map(Number);
  const [unit, blocks, free, available] = numbers;
  if (numbers.length !== 4 || !numbers.every(Number.isFinite)) throw failure(path, 'unexpected output of stat');
  return { used: (blocks! - free!) * unit!, free: available! * unit! };
}

function failure(path: string, reason: string): TagferryError {
  return new TagferryError(`cannot read the file system of ${path}: ${reason}`, { code: 'host.file_system' });
}
