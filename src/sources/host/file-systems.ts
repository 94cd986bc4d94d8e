/**
 * Space of file systems. A network share that does not respond blocks the caller's thread, and libuv has four of them for all files. So
 * `stat` reads each path in a process of its own, which is killed at a deadline. A process that the kernel does not let go of stays
 * in `#running`: reads of its path fail until it exits, and no other one is started beside it.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Clock } from '../../base/clock.ts';
import { messageOf, TagferryError } from '../../base/errors.ts';
import { programEnvironment } from '../../base/programs/environment.ts';

const DEADLINE_MS = 5_000;
/** Four numbers, or one line of an error. */
const MAX_OUTPUT = 1_000;

/** In bytes. */
export interface Space {
  used: number;
  /** What ordinary users can still write. */
  free: number;
}

export class FileSystems {
  readonly #clock: Clock;
  readonly #running = new Set<string>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Reads the space of the file system that contains `path`. Rejects at the deadline and when the signal aborts. */
  async space(path: string, signal: AbortSignal): Promise<Space> {
    signal.throwIfAborted();
    if (this.#running.has(path)) throw failure(path, 'does not respond');
    const child = spawn('stat', ['-f', '-c', '%S %b %f %a', '--', path], {
      cwd: '/',
      env: { ...programEnvironment(process.env, 'stat'), LC_ALL: 'C' },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#running.add(path);
    const exited = () => this.#running.delete(path);
    child.once('exit', exited).once('error', exited);
    return spaceIn(path, await this.#outputOf(child, path, signal));
  }

  #outputOf(child: ChildProcess, path: string, signal: AbortSignal): Promise<string> {
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    const output = { stdout: '', stderr: '' };
    for (const name of ['stdout', 'stderr'] as const) {
      child[name]?.setEncoding('utf8').on('data', (text: string) => {
        output[name] = (output[name] + text).slice(0, MAX_OUTPUT);
      });
    }
    const abandon = (why: string) => {
      reject(failure(path, why));
      child.kill('SIGKILL');
      // The agent does not wait for a process that the kernel does not let go of.
      child.stdout?.destroy();
      child.stderr?.destroy();
      child.unref();
    };
    const stop = () => abandon('read canceled');
    const cancelDeadline = this.#clock.after(DEADLINE_MS, () => abandon(`no response within ${DEADLINE_MS / 1_000} s`));
    signal.addEventListener('abort', stop, { once: true });
    child.once('error', (error) => reject(failure(path, `cannot start stat: ${messageOf(error)}`)));
    child.once('close', (code, killed) => {
      if (code === 0) resolve(output.stdout);
      else reject(failure(path, output.stderr.trim() || `stat ended with ${killed ?? code}`));
    });
    return promise.finally(() => {
      cancelDeadline();
      signal.removeEventListener('abort', stop);
    });
  }
}

function spaceIn(path: string, output: string): Space {
  const numbers = output.trim().split(' ').map(Number);
  const [unit, blocks, free, available] = numbers;
  if (numbers.length !== 4 || !numbers.every(Number.isFinite)) throw failure(path, 'unexpected output of stat');
  return { used: (blocks! - free!) * unit!, free: available! * unit! };
}

function failure(path: string, why: string): TagferryError {
  return new TagferryError(`cannot read the file system of ${path}: ${why}`, { code: 'host.file_system' });
}
