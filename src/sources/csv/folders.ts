/**
 * Access to folders to which other users can write. An unresponsive share blocks the calling thread, and libuv has only
 * four threads for all file operations and host name lookups. Therefore, a process per file system runs the operations
 * of `folder.ts` for all sources of this agent, one at a time, and each call has a deadline.
 *
 *   no process ── call ──► running ── deadline ──► hung ── exit ──► no process
 *
 * The deadline kills the process and fails all of its calls. No other process is started for a file system until the
 * hung one has exited. A short-lived `stat` determines the file system of a folder.
 */
import { execFile, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { type Clock, raced } from '../../base/clock.ts';
import { codeOf } from '../../base/errors.ts';
import { programEnvironment } from '../../base/programs/environment.ts';
import { killBeforeAgent } from '../../base/programs/memory-priority.ts';
import { UnreadableValues } from '../intake/problem-list.ts';
import type { FolderFile, FolderReply, FolderRequest, Operation, ReadRequest, RequestOf, ResultOf } from './folder.ts';

/** Long enough to list ten thousand files on a slow share. */
const DEADLINE_MS = 20_000;
const FLAGS = ['--max-semi-space-size=1', '--max-old-space-size=48'];
const MAX_STDERR = 500;
export const CHUNK_BYTES = 64 * 1024;

/** A failed call. `isLost`: the process has exited, and all open files are closed. */
export class FolderFailure extends Error {
  readonly code: string;
  readonly isLost: boolean;

  constructor(code: string, message: string, isLost: boolean) {
    super(message);
    this.code = code;
    this.isLost = isLost;
  }
}

/** A process that runs operations. */
export interface FolderProgram {
  send(request: FolderRequest): void;
  kill(): void;
}

export interface FolderProgramEvents {
  reply(reply: FolderReply): void;
  exited(how: string): void;
}

interface FoldersOptions {
  clock: Pick<Clock, 'after'>;
  start?(events: FolderProgramEvents): FolderProgram;
  /** Returns a name of the file system that contains the folder. */
  fileSystemOf?(path: string, signal: AbortSignal): Promise<string>;
}

/** The processes, by file system. */
export class Folders {
  readonly #options: Required<FoldersOptions>;
  readonly #processes = new Map<string, SharedProcess>();

  constructor({ clock, start = startProgram, fileSystemOf = deviceOf }: FoldersOptions) {
    this.#options = { clock, start, fileSystemOf };
  }

  open(path: string, signal: AbortSignal): Folder {
    return new Folder(this, path, signal);
  }

  /** Returns the process for a folder. */
  async processOf(path: string, signal: AbortSignal): Promise<SharedProcess> {
    const { clock, start, fileSystemOf } = this.#options;
    const name = await fileSystemOf(path, signal);
    const known = this.#processes.get(name);
    if (known && !known.isEnded) return known;
    const started = new SharedProcess(clock, start);
    this.#processes.set(name, started);
    return started;
  }
}

/** A folder that one source uses. Calls reject with `FolderFailure`, or when the signal is aborted. */
export class Folder {
  readonly #folders: Folders;
  readonly #path: string;
  readonly #signal: AbortSignal;
  #process: SharedProcess | undefined;
  /** Identities of the files that the process keeps open for this source. */
  readonly #kept = new Set<string>();

  constructor(folders: Folders, path: string, signal: AbortSignal) {
    this.#folders = folders;
    this.#path = path;
    this.#signal = signal;
  }

  async call<Name extends Operation>(
    operation: Name,
    request: Omit<RequestOf<Name>, 'folder'>,
  ): Promise<ResultOf<Name>> {
    this.#signal.throwIfAborted();
    const used = this.#process ?? (await this.#folders.processOf(this.#path, this.#signal));
    this.#process = used;
    used.users.add(this);
    const { identity, isKept } = request as Partial<ReadRequest>;
    if (isKept && identity !== undefined) this.#kept.add(identity);
    const called = used.call({ operation, request: { ...request, folder: this.#path } });
    try {
      return (await raced(called, this.#signal)) as ResultOf<Name>;
    } catch (error) {
      // A share may be mounted before the next call.
      if (error instanceof FolderFailure && error.isLost) this.close();
      throw error;
    }
  }

  /** Yields the bytes of a file from a position to `end`. */
  async *chunks(
    file: Pick<ReadRequest, 'name' | 'identity'> & Partial<Pick<ReadRequest, 'where' | 'isKept'>>,
    from: number,
    end: number,
  ): AsyncGenerator<Uint8Array> {
    const { name, identity, where = '', isKept = false } = file;
    for (let position = from; position < end; ) {
      const length = Math.min(CHUNK_BYTES, end - position);
      const bytes = await this.call('read', { where, name, identity, position, length, isKept });
      if (bytes.length === 0) return;
      position += bytes.length;
      yield bytes;
    }
  }

  /** Returns the newest waiting file, or the newest finished file if none is waiting. Throws `UnreadableValues`. */
  async newest(pattern: string) {
    for (const where of ['', 'done'] as const) {
      const { files } = await this.call('list', { where, pattern }).catch((error: unknown) => {
        if (where === 'done' && codeOf(error) === 'ENOENT') return { files: [] as FolderFile[] };
        throw error;
      });
      const newest = files.at(-1);
      if (newest) return { ...newest, where };
    }
    throw new UnreadableValues(`no file in ${this.#path} matches ${pattern}`);
  }

  /** Stops using the process, which exits when no folder uses it, even during a call. */
  close(): void {
    const used = this.#process;
    this.#process = undefined;
    used?.users.delete(this);
    if (used?.users.size === 0) used.end();
    else if (used) {
      const release = (identity: string) =>
        used.call({ operation: 'release', request: { folder: this.#path, identity } }).catch(() => {});
      for (const identity of this.#kept) void release(identity);
    }
    this.#kept.clear();
  }
}

class SharedProcess {
  readonly users = new Set<Folder>();
  isEnded = false;
  readonly #clock: FoldersOptions['clock'];
  readonly #start: Required<FoldersOptions>['start'];
  #program: FolderProgram | undefined;
  #hung: FolderProgram | undefined;
  #pending: PromiseWithResolvers<unknown> | undefined;
  /** Settles when the previous call has settled. */
  #previous: Promise<unknown> = Promise.resolve();

  constructor(clock: FoldersOptions['clock'], start: Required<FoldersOptions>['start']) {
    this.#clock = clock;
    this.#start = start;
  }

  /** Runs an operation after all earlier ones. */
  call(request: FolderRequest): Promise<unknown> {
    const { users } = this;
    const result = this.#previous.then(() => (users.size === 0 ? Promise.reject(closed()) : this.#run(request)));
    this.#previous = result.catch(() => {});
    return result;
  }

  end(): void {
    this.isEnded = this.#hung === undefined;
    this.#kill(closed());
  }

  async #run(request: FolderRequest): Promise<unknown> {
    if (this.#hung) throw unresponsive();
    const pending = Promise.withResolvers<unknown>();
    this.#pending = pending;
    const cancelDeadline = this.#clock.after(DEADLINE_MS, () => {
      this.#hung = this.#program;
      this.#kill(unresponsive());
    });
    this.#program ??= this.#startProgram();
    this.#program.send(request);
    return await pending.promise.finally(cancelDeadline);
  }

  #startProgram(): FolderProgram {
    const program = this.#start({
      reply: (reply) => {
        if (program !== this.#program) return;
        if ('result' in reply) this.#pending?.resolve(reply.result);
        else this.#pending?.reject(new FolderFailure(reply.error.code, reply.error.message, false));
      },
      exited: (how) => {
        if (program === this.#hung) this.#hung = undefined;
        if (program === this.#program) this.#kill(new FolderFailure('ECHILD', `folder process exited: ${how}`, true));
      },
    });
    return program;
  }

  /** The next call starts another program. */
  #kill(reason: FolderFailure): void {
    this.#program?.kill();
    this.#program = undefined;
    this.#pending?.reject(reason);
  }
}

function startProgram({ reply, exited }: FolderProgramEvents): FolderProgram {
  const ending = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
  const child = fork(fileURLToPath(new URL(`./folder-program.${ending}`, import.meta.url)), [], {
    cwd: '/',
    // Separate process group, so that Ctrl-C in a terminal affects only the agent.
    detached: true,
    env: programEnvironment(process.env, `folder:${process.pid}`),
    execArgv: FLAGS,
    serialization: 'advanced',
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  killBeforeAgent(child.pid);
  let stderr = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    stderr = (stderr + text).slice(-MAX_STDERR);
  });
  child.on('message', (message) => reply(message as FolderReply));
  child.on('error', (error) => exited(error.message));
  child.on('exit', (code, signal) => exited(`${signal ?? `exit status ${code}`} ${stderr}`.trim()));
  return {
    // If no file descriptor is available, the process has no channel. Its error event then fails the call.
    send: (request) => void child.send?.(request, (error) => error && exited(error.message)),
    kill() {
      child.kill('SIGKILL');
      // The agent does not wait for a process that cannot be killed.
      if (child.connected) child.disconnect();
      child.stderr?.destroy();
      child.unref();
    },
  };
}

/** Running `stat` calls by folder. No second one is started for a folder while the first one cannot be killed. */
const asked = new Map<string, Promise<string>>();

/** Returns the device number, or the path if it has none. Rejects at the deadline. */
function deviceOf(path: string, signal: AbortSignal): Promise<string> {
  return raced(asked.get(path) ?? askDevice(path), signal);
}

function askDevice(path: string): Promise<string> {
  const asking = new Promise<string>((resolve, reject) => {
    const options = {
      cwd: '/',
      env: programEnvironment(process.env, `folder:${process.pid}`),
      signal: AbortSignal.timeout(DEADLINE_MS),
      killSignal: 'SIGKILL' as const,
    };
    const child = execFile('stat', ['-L', '-c', '%d', '--', path], options, (error, stdout) => {
      child.unref();
      if (options.signal.aborted) reject(unresponsive());
      else resolve(error ? path : stdout.trim());
    });
    const forget = () => asked.delete(path);
    child.once('exit', forget);
    if (child.pid === undefined) queueMicrotask(forget);
  });
  asked.set(path, asking);
  asking.catch(() => {});
  return asking;
}

function closed(): FolderFailure {
  return new FolderFailure('ECANCELED', 'folder closed', true);
}

function unresponsive(): FolderFailure {
  return new FolderFailure('ETIMEDOUT', `no response within ${DEADLINE_MS / 1_000} s`, true);
}

/** Describes why a folder cannot be used, with a hint. */
export function folderProblem(folder: string, code: string | undefined): { problem: string; hint?: string } {
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
  const [problem, hint] = known[code ?? ''] ?? [];
  return problem === undefined ? { problem: `${folder}: ${code ?? 'unknown error'}` } : { problem, hint: hint! };
}
