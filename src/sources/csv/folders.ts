/**
 * Access to folders to which other users can write. An unresponsive share blocks the calling thread, and libuv has only
 * four threads for all file operations and host name lookups. Therefore, one process per mount point runs the operations
 * of `folder.ts` for all sources of this agent, one at a time, and each call has a deadline.
 *
 *   no program ── call ──► running ── deadline ──► hung ── exit ──► no program
 *
 * The deadline kills the program and fails all waiting calls. No other program is started for a mount point until the
 * hung one has exited.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type Clock, raced } from '../../base/clock.ts';
import { codeOf, messageOf } from '../../base/errors.ts';
import { programEnvironment } from '../../base/programs/environment.ts';
import { killBeforeAgent } from '../../base/programs/memory-priority.ts';
import { UnreadableValues } from '../intake/problem-list.ts';
import type { FolderFile, FolderReply, FolderRequest, ForeignFolders, OpenedFile, Operation } from './folder.ts';

/** Long enough to list ten thousand files on a slow share. */
const DEADLINE_MS = 20_000;
export const CHUNK_BYTES = 64 * 1024;

type ArgumentsOf<Name extends Operation> =
  Parameters<ForeignFolders[Name]> extends [path: string, ...infer Others] ? Others : never;
type ResultOf<Name extends Operation> = ReturnType<ForeignFolders[Name]>;

/** A failed call. `isLost`: the program has exited, and all open files are closed. */
export class FolderFailure extends Error {
  readonly code: string;
  readonly isLost: boolean;

  constructor(code: string, message: string, isLost: boolean) {
    super(message);
    this.code = code;
    this.isLost = isLost;
  }
}

/** The processes of this agent, by mount point. */
export class Folders {
  readonly #clock: Pick<Clock, 'after'>;
  readonly #start: () => ChildProcess;
  readonly #mountPointOf: (path: string) => string;
  readonly #processes = new Map<string, FolderProcess>();

  constructor(clock: Pick<Clock, 'after'>, start = startProgram, mountPointOf = mountPointIn) {
    this.#clock = clock;
    this.#start = start;
    this.#mountPointOf = mountPointOf;
  }

  open(path: string, signal: AbortSignal): Folder {
    return new Folder(this, path, signal);
  }

  processOf(path: string): FolderProcess {
    const mountPoint = this.#mountPointOf(path);
    const found = this.#processes.get(mountPoint) ?? new FolderProcess(this.#clock, this.#start);
    this.#processes.set(mountPoint, found);
    return found;
  }
}

/** A folder that one source uses. Calls reject with `FolderFailure`, or when the signal is aborted. */
export class Folder {
  readonly #folders: Folders;
  readonly #path: string;
  readonly #signal: AbortSignal;
  #process: FolderProcess | undefined;

  constructor(folders: Folders, path: string, signal: AbortSignal) {
    this.#folders = folders;
    this.#path = path;
    this.#signal = signal;
  }

  async call<Name extends Operation>(operation: Name, ...args: ArgumentsOf<Name>): Promise<ResultOf<Name>> {
    this.#signal.throwIfAborted();
    this.#process ??= this.#folders.processOf(this.#path);
    this.#process.users.add(this);
    const called = this.#process.call({ operation, args: [this.#path, ...args] });
    try {
      return (await raced(called, this.#signal)) as ResultOf<Name>;
    } catch (error) {
      // A share may be mounted before the next call.
      if (error instanceof FolderFailure && error.isLost) this.close();
      throw error;
    }
  }

  /** Yields the bytes of a file from a position to `end`. */
  async *chunks(file: OpenedFile, from: number, end: number): AsyncGenerator<Uint8Array> {
    for (let position = from; position < end; ) {
      const length = Math.min(CHUNK_BYTES, end - position);
      const bytes = await this.call('read', file, position, length);
      if (bytes.length === 0) return;
      position += bytes.length;
      yield bytes;
    }
  }

  /** Returns the newest waiting file, or the newest finished file if none is waiting. Throws `UnreadableValues`. */
  async newest(pattern: string): Promise<FolderFile> {
    for (const where of ['', 'done/'] as const) {
      const { files } = await this.call('list', where, pattern).catch((error: unknown) => {
        if (where !== '' && codeOf(error) === 'ENOENT') return { files: [] };
        throw error;
      });
      const newest = files.at(-1);
      if (newest) return { ...newest, name: where + newest.name };
    }
    throw new UnreadableValues(`no file in ${this.#path} matches ${pattern}`);
  }

  /** Stops using the process, whose program exits when no folder uses it, even during a call. */
  close(): void {
    const used = this.#process;
    this.#process = undefined;
    used?.users.delete(this);
    if (used?.users.size === 0) used.kill(closed());
  }
}

class FolderProcess {
  readonly users = new Set<Folder>();
  readonly #clock: Pick<Clock, 'after'>;
  readonly #start: () => ChildProcess;
  #program: ChildProcess | undefined;
  #hung: ChildProcess | undefined;
  #pending: PromiseWithResolvers<unknown> | undefined;
  /** Settles when the previous call has settled. */
  #previous: Promise<unknown> = Promise.resolve();

  constructor(clock: Pick<Clock, 'after'>, start: () => ChildProcess) {
    this.#clock = clock;
    this.#start = start;
  }

  /** Runs an operation after all earlier ones. */
  call(request: FolderRequest): Promise<unknown> {
    const result = this.#previous.then(() => this.#run(request));
    this.#previous = result.catch(() => {});
    return result;
  }

  async #run(request: FolderRequest): Promise<unknown> {
    if (this.users.size === 0) throw closed();
    if (this.#hung) throw unresponsive();
    this.#pending = Promise.withResolvers<unknown>();
    const { promise } = this.#pending;
    const cancelDeadline = this.#clock.after(DEADLINE_MS, () => {
      this.#hung = this.#program;
      this.kill(unresponsive());
    });
    const program = this.#program ?? this.#startProgram();
    this.#program = program;
    // If no file descriptor is available, the program has no channel. Its error event then fails the call.
    program.send?.(request, (error) => error && program.emit('error', error));
    return await promise.finally(cancelDeadline);
  }

  #startProgram(): ChildProcess {
    const program = this.#start();
    const exited = (how: string) => {
      if (program === this.#hung) this.#hung = undefined;
      if (program === this.#program) this.kill(new FolderFailure('ECHILD', `folder process exited: ${how}`, true));
    };
    program.on('error', (error) => exited(error.message));
    program.on('exit', (code, signal) => exited(signal ?? `exit status ${code}`));
    program.on('message', (reply: FolderReply) => {
      if (program !== this.#program) return;
      if ('result' in reply) this.#pending?.resolve(reply.result);
      else this.#pending?.reject(new FolderFailure(reply.error.code, reply.error.message, false));
    });
    return program;
  }

  /** The next call starts another program. */
  kill(reason: FolderFailure): void {
    const program = this.#program;
    this.#program = undefined;
    this.#pending?.reject(reason);
    program?.kill('SIGKILL');
    // The agent does not wait for a process that cannot be killed.
    if (program?.connected) program.disconnect();
    program?.unref();
  }
}

function startProgram(): ChildProcess {
  const ending = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
  const program = fork(fileURLToPath(new URL(`./folder-program.${ending}`, import.meta.url)), [], {
    cwd: '/',
    // Separate process group, so that Ctrl-C in a terminal affects only the agent.
    detached: true,
    env: programEnvironment(process.env, `folder:${process.pid}`),
    execArgv: ['--max-semi-space-size=1', '--max-old-space-size=48'],
    serialization: 'advanced',
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
  });
  killBeforeAgent(program.pid);
  return program;
}

/** Returns the mount point of a path without access to the file system, which may not respond. */
function mountPointIn(path: string): string {
  const mounts = readFileSync('/proc/self/mountinfo', 'utf8').split('\n');
  const points = mounts.map((mount) => {
    // Spaces and backslashes are written as octal numbers.
    const point = mount.split(' ')[4] ?? '/';
    return point.replaceAll(/\\(\d{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
  });
  const own = points.filter((point) => `${path}/`.startsWith(point.endsWith('/') ? point : `${point}/`));
  return own.reduce((longest, point) => (point.length > longest.length ? point : longest), '/');
}

function closed(): FolderFailure {
  return new FolderFailure('ECANCELED', 'folder closed', true);
}

function unresponsive(): FolderFailure {
  return new FolderFailure('ETIMEDOUT', `no response within ${DEADLINE_MS / 1_000} s`, true);
}

/** Describes why a folder cannot be used, with a hint. `error`: an error or its code. */
export function folderProblem(folder: string, error: unknown): { problem: string; hint?: string } {
  const access = [
    `the service has no access to ${folder}`,
    `Run \`chgrp tagferry ${folder} && chmod g+rwx ${folder}\`.`,
  ];
  const link = [
    `${folder}, or done or failed in it, is not a folder`,
    'Links are not followed. Rename or remove them.',
  ];
  const known: Readonly<Record<string, string[]>> = {
    ENOENT: [`folder ${folder} does not exist`, `Run \`install -d -o tagferry -g tagferry ${folder}\`.`],
    EACCES: access,
    EPERM: access,
    EROFS: [
      `${folder} is read-only for the service`,
      'Install the drop-in /usr/share/doc/tagferry/examples/csv-folder.conf with this folder, and restart the service.',
    ],
    ENOTDIR: link,
    ELOOP: link,
    EOWNER: [
      `done or failed in ${folder} belongs to another user`,
      'Rename or remove it. The service creates its own.',
    ],
    ESTICKY: [
      `the sticky bit of ${folder} prevents the service from moving other users' files`,
      `Run \`chmod -t ${folder}\`.`,
    ],
    ETIMEDOUT: [`${folder} does not respond`, 'Check the network share that is mounted there.'],
  };
  const [problem, hint] = known[typeof error === 'string' ? error : (codeOf(error) ?? '')] ?? [];
  return problem === undefined ? { problem: `${folder}: ${messageOf(error)}` } : { problem, hint: hint! };
}
