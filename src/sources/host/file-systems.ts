/**
 * Reads file system usage. An unresponsive network share blocks the calling thread, and libuv has only four threads for
 * file operations. Therefore, each path is read by a separate `stat` process, which is killed at a deadline. A process
 * that cannot be killed remains in `#running`: reads of its path fail until it exits, and no second process is started.
 */
import { execFile } from 'node:child_process';
import { type Clock, raced } from '../../base/clock.ts';
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
    const failure = (reason: string) =>
      new TagferryError(`cannot read the file system of ${path}: ${reason}`, { code: 'host.file_system' });
    signal.throwIfAborted();
    if (this.#running.has(path)) throw failure('does not respond');
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    const env = { ...programEnvironment(process.env, 'stat'), LC_ALL: 'C' };
    const options = { cwd: '/', env, maxBuffer: MAX_OUTPUT };
    const child = execFile('stat', ['-f', '-c', '%S %b %f %a', '--', path], options, (error, stdout, stderr) => {
      if (error) reject(failure(stderr.trim() || `stat failed: ${messageOf(error)}`));
      else resolve(stdout);
    });
    this.#running.add(path);
    const remove = () => this.#running.delete(path);
    child.once('exit', remove).once('error', remove);
    const late = new AbortController();
    const noResponse = failure(`no response within ${DEADLINE_MS / 1_000} s`);
    const cancelDeadline = this.#clock.after(DEADLINE_MS, () => late.abort(noResponse));
    try {
      const output = await raced(promise, AbortSignal.any([signal, late.signal]));
      const [unit, blocks, free, available] = output.trim().split(' ').map(Number) as [number, number, number, number];
      const space = { used: (blocks - free) * unit, free: available * unit };
      if (!Number.isFinite(space.used + space.free)) throw failure('unexpected output of stat');
      return space;
    } catch (error) {
      child.kill('SIGKILL');
      // The agent does not wait for a process that cannot be killed.
      child.stdout?.destroy();
      child.stderr?.destroy();
      child.unref();
      throw error;
    } finally {
      cancelDeadline();
    }
  }
}
