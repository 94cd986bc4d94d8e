/**
 * Client for the program that accesses folders writable by other users. An unresponsive share blocks the calling
 * thread, and libuv has only four threads for all file operations and host name lookups. Therefore, each folder has its
 * own process, and each request has a deadline.
 *
 *   no process ── request ──► running ── deadline or exit ──► ending ── exit ──► no process
 *
 * A process that cannot be killed remains in `ending`, and no other process is started until it exits.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Clock } from '../../base/clock.ts';
import { programEnvironment } from '../../base/programs/environment.ts';
import { killBeforeAgent } from '../../base/programs/memory-priority.ts';
import type { ForeignFolder } from './folder-program.ts';
import type { FolderFile, FolderReply, FolderRequest, Listing, Where } from './folder-protocol.ts';

/** Request timeout. Long enough to list ten thousand files on a slow share. */
const DEADLINE_MS = 20_000;
const FLAGS = ['--max-semi-space-size=1', '--max-old-space-size=48'];
const MAX_STDERR = 500;

/** Request failure. `isLost`: the process has exited, and all open files are closed. */
export class FolderFailure extends Error {
  readonly code: string;
  readonly isLost: boolean;

  constructor(code: string, message: string, isLost: boolean) {
    super(message);
    this.code = code;
    this.isLost = isLost;
  }
}

/** An open file in the folder. All methods reject with `FolderFailure`. */
export interface OpenFile extends FolderFile {
  read(position: number, length: number): Promise<Uint8Array>;
  currentSize(): Promise<number>;
  close(): Promise<void>;
}

type Operation = FolderRequest['operation'];
type RequestOf<Name extends Operation> = Parameters<ForeignFolder[Name]>[0];
type ResultOf<Name extends Operation> = ReturnType<ForeignFolder[Name]>;

interface Pending {
  resolve(result: unknown): void;
  reject(error: Error): void;
  cancelDeadline(): void;
}

/** One request at a time. */
export class FolderClient {
  readonly #folder: string;
  readonly #clock: Clock;
  #process: ChildProcess | undefined;
  #ending: ChildProcess | undefined;
  #pending: Pending | undefined;
  #isEnded = false;

  constructor(folder: string, clock: Clock) {
    this.#folder = folder;
    this.#clock = clock;
  }

  list(where: Where, pattern: string): Promise<Listing> {
    return this.#request('list', { where, pattern });
  }

  async open(where: Where, name: string): Promise<OpenFile> {
    const { handle, ...file } = await this.#request('open', { where, name });
    // In a different process, this handle is invalid or refers to another file.
    const opener = this.#process;
    if (!opener) throw closed();
    const request = <Name extends Operation>(operation: Name, details: RequestOf<Name>) =>
      opener === this.#process ? this.#request(operation, details) : Promise.reject(closed());
    return {
      ...file,
      read: (position, length) => request('read', { handle, position, length }),
      currentSize: () => request('size', { handle }),
      close: () => request('close', { handle }).catch(() => {}),
    };
  }

  finish(file: FolderFile, to: 'done' | 'failed', report: string): Promise<string | undefined> {
    return this.#request('finish', { file, to, report });
  }

  /** Resolves with whether all finished files were checked. If not, the next request continues. */
  deleteExpired(keepMs: number, nowMs: number): Promise<boolean> {
    return this.#request('deleteExpired', { keepMs, nowMs });
  }

  /** Closes all files by killing the process. The next request starts a new process. */
  closeAll(): void {
    this.#kill(closed());
  }

  /** Kills the process, even during a request. Later requests fail. */
  end(): void {
    this.#isEnded = true;
    this.#kill(closed());
  }

  #request<Name extends Operation>(operation: Name, request: RequestOf<Name>): Promise<ResultOf<Name>> {
    if (this.#isEnded) return Promise.reject(closed());
    if (this.#ending) return Promise.reject(unresponsive());
    const child = this.#process ?? this.#start();
    return new Promise((resolve, reject) => {
      const cancelDeadline = this.#clock.after(DEADLINE_MS, () => this.#kill(unresponsive()));
      this.#pending = { resolve: resolve as Pending['resolve'], reject, cancelDeadline };
      // If no file descriptor is available, the process has no channel. Its error event rejects the request.
      child.send?.({ operation, request }, (error) => {
        if (error && child === this.#process) this.#kill(new FolderFailure('EPIPE', error.message, true));
      });
    });
  }

  #start(): ChildProcess {
    const ending = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
    const program = fileURLToPath(new URL(`./folder-program.${ending}`, import.meta.url));
    const child = spawn(process.execPath, [...FLAGS, program, this.#folder], {
      cwd: '/',
      // Separate process group, so that Ctrl-C in a terminal affects only the agent.
      detached: true,
      env: programEnvironment(process.env, `folder:${process.pid}`),
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    });
    killBeforeAgent(child.pid);
    let stderr = '';
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      stderr = (stderr + text).slice(-MAX_STDERR);
    });
    child.on('message', (reply: FolderReply) => this.#settle(child, reply));
    child.on('error', (error) => this.#exited(child, error.message));
    child.on('exit', (code, signal) => this.#exited(child, `${signal ?? `exit status ${code}`} ${stderr}`.trim()));
    this.#process = child;
    return child;
  }

  #settle(child: ChildProcess, reply: FolderReply): void {
    if (child !== this.#process) return;
    const pending = this.#takePending();
    if ('result' in reply) pending?.resolve(reply.result);
    else pending?.reject(new FolderFailure(reply.error.code, reply.error.message, false));
  }

  #exited(child: ChildProcess, how: string): void {
    if (child === this.#ending) this.#ending = undefined;
    if (child !== this.#process) return;
    this.#process = undefined;
    this.#takePending()?.reject(new FolderFailure('ECHILD', `the folder process exited: ${how}`, true));
  }

  #kill(reason: FolderFailure): void {
    const child = this.#process;
    this.#process = undefined;
    if (child) {
      this.#ending = child;
      child.kill('SIGKILL');
      // The agent does not wait for a process that cannot be killed.
      if (child.connected) child.disconnect();
      child.stderr?.destroy();
      child.unref();
    }
    this.#takePending()?.reject(reason);
  }

  #takePending(): Pending | undefined {
    const pending = this.#pending;
    this.#pending = undefined;
    pending?.cancelDeadline();
    return pending;
  }
}

function closed(): FolderFailure {
  return new FolderFailure('ECANCELED', 'folder closed', true);
}

function unresponsive(): FolderFailure {
  return new FolderFailure('ETIMEDOUT', `no response within ${DEADLINE_MS / 1_000} s`, true);
}

/** Describes why a folder cannot be used, with a hint. */
export function folderProblem(folder: string, code: string | undefined): { problem: string; hint?: string } {
  switch (code) {
    case 'ENOENT':
      return {
        problem: `folder ${folder} does not exist`,
        hint: `Run \`install -d -o tagferry -g tagferry ${folder}\`.`,
      };
    case 'EACCES':
    case 'EPERM': {
      const hint = `Run \`chgrp tagferry ${folder} && chmod g+rwx ${folder}\`.`;
      return { problem: `the service has no access to ${folder}`, hint };
    }
    case 'EROFS': {
      const hint =
        'Install the drop-in /usr/share/doc/tagferry/examples/csv-folder.conf with this folder, and restart the service.';
      return { problem: `${folder} is read-only for the service`, hint };
    }
    case 'ENOTDIR':
    case 'ELOOP': {
      const hint = 'Links are not followed. Rename or remove them.';
      return { problem: `${folder}, or done or failed in it, is not a folder`, hint };
    }
    case 'EOWNER': {
      const hint = 'Rename or remove it. The service creates its own.';
      return { problem: `done or failed in ${folder} belongs to another user`, hint };
    }
    case 'ESTICKY': {
      const problem = `the sticky bit of ${folder} prevents the service from moving other users' files`;
      return { problem, hint: `Run \`chmod -t ${folder}\`.` };
    }
    case 'ETIMEDOUT':
      return { problem: `${folder} does not respond`, hint: 'Check the network share that is mounted there.' };
    default:
      return { problem: `${folder}: ${code ?? 'unknown error'}` };
  }
}
