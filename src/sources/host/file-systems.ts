/**
 * Reads file system usage. An unresponsive network share blocks the calling thread, and libuv has only four threads for
 * file operations. Therefore, each path is read by a separate `stat` process, which is killed at a deadline. Until the
 * process exits, further reads of its path wait for it, and no second process is started.
 */
import { type ChildProcess, execFile } from 'node:child_process';
import { raced } from '../../base/clock.ts';
import { messageOf, TagferryError } from '../../base/errors.ts';
import { programEnvironment } from '../../base/programs/environment.ts';

const DEADLINE_MS = 5_000;
const NO_RESPONSE = `no response within ${DEADLINE_MS / 1_000} s`;
/** Output limit, enough for four numbers or one error line. */
const MAX_OUTPUT = 1_000;

/** In bytes. */
interface Space {
  used: number;
  /** Bytes available to unprivileged users. */
  free: number;
}

export class FileSystems {
  /** Running processes and their results, by path. */
  readonly #running = new Map<string, { child: ChildProcess; space: Promise<Space> }>();

  /** Reads the usage of the file system that contains `path`. Rejects at the deadline or when the signal is aborted. */
  async space(path: string, signal: AbortSignal): Promise<Space> {
    signal.throwIfAborted();
    const { child, space } = this.#running.get(path) ?? this.#start(path);
    const deadline = AbortSignal.timeout(DEADLINE_MS);
    try {
      return await raced(space, AbortSignal.any([signal, deadline]));
    } catch (error) {
      child.kill('SIGKILL');
      // The agent does not wait for a process that cannot be killed.
      child.stdout?.destroy();
      child.stderr?.destroy();
      child.unref();
      throw error === deadline.reason ? failure(path, NO_RESPONSE) : error;
    }
  }

  #start(path: string) {
    const { promise: space, resolve, reject } = Promise.withResolvers<Space>();
    const env = { ...programEnvironment(process.env, 'stat'), LC_ALL: 'C' };
    const options = { cwd: '/', env, maxBuffer: MAX_OUTPUT };
    const child = execFile('stat', ['-f', '-c', '%S %b %f %a', '--', path], options, (error, stdout, stderr) => {
      const [unit = 0, blocks = 0, free = 0, available = Number.NaN] = stdout.trim().split(' ').map(Number);
      const result = { used: (blocks - free) * unit, free: available * unit };
      if (child.killed) reject(failure(path, NO_RESPONSE));
      else if (error) reject(failure(path, stderr.trim() || `stat failed: ${messageOf(error)}`));
      else if (!Number.isFinite(result.used + result.free)) reject(failure(path, 'unexpected output of stat'));
      else resolve(result);
    });
    const remove = () => this.#running.delete(path);
    child.once('exit', remove).once('error', remove);
    const started = { child, space };
    this.#running.set(path, started);
    return started;
  }
}

function failure(path: string, reason: string): TagferryError {
  return new TagferryError(`cannot read the file system of ${path}: ${reason}`, { code: 'host.file_system' });
}
