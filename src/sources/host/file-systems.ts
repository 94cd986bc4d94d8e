/**
 * Reads file system usage. An unresponsive network share blocks the calling thread, and libuv has only four threads for
 * file operations. Therefore, each path is read by a separate `stat` process, which is killed at a deadline. Until the
 * process exits, other reads of the path share its result, and no second process is started.
 */
import { execFile } from 'node:child_process';
import { messageOf, TagferryError } from '../../base/errors.ts';
import { programEnvironment } from '../../base/programs/environment.ts';

const DEADLINE_MS = 5_000;
const NO_RESPONSE = `no response within ${DEADLINE_MS / 1_000} s`;

/** In bytes. */
interface Space {
  used: number;
  /** Bytes available to unprivileged users. */
  free: number;
}

export class FileSystems {
  /** Results of running processes, by path. */
  readonly #running = new Map<string, Promise<Space>>();

  /**
   * Reads the usage of the file system that contains `path`. Rejects at the deadline, or when the signal of the read that
   * started the process is aborted.
   */
  space(path: string, signal: AbortSignal): Promise<Space> {
    const running = this.#running.get(path);
    if (running !== undefined) return running;
    const { promise, resolve, reject } = Promise.withResolvers<Space>();
    const deadline = AbortSignal.timeout(DEADLINE_MS);
    const stopped = { signal: AbortSignal.any([signal, deadline]), killSignal: 'SIGKILL' } as const;
    const env = { ...programEnvironment(process.env, 'stat'), LC_ALL: 'C' };
    const command = ['-f', '-c', '%S %b %f %a', '--', path];
    const child = execFile('stat', command, { cwd: '/', env, ...stopped }, (error, stdout, stderr) => {
      const [unit = 0, blocks = 0, free = 0, available = Number.NaN] = stdout.trim().split(' ').map(Number);
      const result = { used: (blocks - free) * unit, free: available * unit };
      // Only the final part is the reason, for example in `stat: … for '/x': No such file or directory`.
      const reason = stderr.trim().split(': ').at(-1) || `stat failed: ${messageOf(error)}`;
      if (error) reject(failure(path, deadline.aborted ? NO_RESPONSE : reason));
      else if (!Number.isFinite(result.used + result.free)) reject(failure(path, 'unexpected output of stat'));
      else resolve(result);
      // The agent does not wait for a process that cannot be killed.
      child.unref();
      if (child.pid === undefined) this.#running.delete(path);
    });
    child.once('exit', () => this.#running.delete(path));
    this.#running.set(path, promise);
    return promise;
  }
}

function failure(path: string, reason: string): TagferryError {
  return new TagferryError(`cannot read the file system of ${path}: ${reason}`, { code: 'host.file_system' });
}
