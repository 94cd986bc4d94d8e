/**
 * The agent's side of a foreign folder. A share that does not respond blocks the caller's thread, and libuv has four of them for all
 * files and host names. So all work in the folder is done by a process of its own, and each request has a deadline.
 *
 *   no process ── request ──► running ── deadline or exit ──► ending ── exit ──► no process
 *
 * A process that the kernel does not let go of stays in `ending`, and no other one is started beside it.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Clock } from '../../base/clock.ts';
import { programEnvironment } from '../../base/programs/environment.ts';
import { killBeforeAgent } from '../../base/programs/memory-priority.ts';
import type { FolderFile, FolderOperation, FolderReply, FolderRequests, Listing, Where } from './folder-protocol.ts';

/** Ten thousand files of a slow share are listed within it. */
const DEADLINE_MS = 20_000;
const FLAGS = ['--max-semi-space-size=1', '--max-old-space-size=48'];
const MAX_STDERR = 500;

/** Why a request failed. `isLost`: the process is gone, and with it all open files. */
export class FolderFailure extends Error {
  readonly code: string;
  readonly isLost: boolean;

  constructor(code: string, message: string, isLost: boolean) {
    super(message);
    this.code = code;
    this.isLost = isLost;
  }
}

/** An open file of the folder. All methods reject with `FolderFailure`. */
export interface OpenFile extends FolderFile {
  read(position: number, length: number): Promise<Uint8Array>;
  currentSize(): Promise<number>;
  close(): Promise<void>;
}

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
    // Another process does not have this handle, or has another file under its number.
    const opener = this.#process;
    if (!opener) throw closed();
    const request = <Name extends FolderOperation>(operation: Name, more: FolderRequests[Name]['request']) =>
      opener === this.#process ? this.#request(operation, more) : Promise.reject(closed());
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

  forget(keepMs: number, nowMs: number): Promise<void> {
    return this.#request('forget', { keepMs, nowMs });
  }

  /** Closes all files, by ending the process. The next request starts another one. */
  closeAll(): void {
    this.#lose(closed());
  }

  /** Kills the process, whatever it is doing. Later requests fail. */
  end(): void {
    this.#isEnded = true;
    this.#lose(closed());
  }

  #request<Name extends FolderOperation>(
    operation: Name,
    request: FolderRequests[Name]['request'],
  ): Promise<FolderRequests[Name]['result']> {
    if (this.#isEnded) return Promise.reject(closed());
    if (this.#ending) return Promise.reject(unresponsive());
    const child = this.#process ?? this.#start();
    return new Promise((resolve, reject) => {
      const cancelDeadline = this.#clock.after(DEADLINE_MS, () => this.#lose(unresponsive()));
      this.#pending = { resolve: resolve as Pending['resolve'], reject, cancelDeadline };
      // Without file descriptors there is no channel; the error event of the process rejects the request.
      child.send?.({ operation, request }, (error) => {
        if (error && child === this.#process) this.#lose(new FolderFailure('EPIPE', error.message, true));
      });
    });
  }

  #start(): ChildProcess {
    const ending = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
    const program = fileURLToPath(new URL(`./folder-program.${ending}`, import.meta.url));
    const child = spawn(process.execPath, [...FLAGS, program, this.#folder], {
      cwd: '/',
      // A group of its own: Ctrl-C in a terminal is for the agent.
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
    this.#takePending()?.reject(new FolderFailure('ECHILD', `the process of the folder ended: ${how}`, true));
  }

  #lose(reason: FolderFailure): void {
    const child = this.#process;
    this.#process = undefined;
    if (child) {
      this.#ending = child;
      child.kill('SIGKILL');
      // The agent does not wait for a process that the kernel does not let go of.
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
  return new FolderFailure('ECANCELED', 'the folder was closed', true);
}

function unresponsive(): FolderFailure {
  return new FolderFailure('ETIMEDOUT', `no response within ${DEADLINE_MS / 1_000} s`, true);
}

/** Why a folder cannot be used, and what to do. */
export function folderProblem(folder: string, code: string | undefined): { problem: string; hint?: string } {
  switch (code) {
    case 'ENOENT':
      return { problem: `folder ${folder} does not exist`, hint: `install -d -o tagferry -g tagferry ${folder}` };
    case 'EACCES':
    case 'EPERM':
      return {
        problem: `the service has no access to ${folder}`,
        hint: `chgrp tagferry ${folder} && chmod g+rwx ${folder}`,
      };
    case 'EROFS':
      return {
        problem: `${folder} is read-only for the service`,
        hint: 'the drop-in /usr/share/doc/tagferry/examples/csv-folder.conf lets the service write there',
      };
    case 'ENOTDIR':
    case 'ELOOP':
      return {
        problem: `${folder}, or done or failed in it, is not a folder`,
        hint: 'Links are not followed. Rename or remove them.',
      };
    case 'EOWNER':
      return {
        problem: `done or failed in ${folder} belongs to another user`,
        hint: 'Rename or remove it. The service creates its own.',
      };
    case 'ESTICKY':
      return {
        problem: `the sticky bit of ${folder} keeps the service from moving files of other users`,
        hint: `chmod -t ${folder}`,
      };
    case 'ETIMEDOUT':
      return { problem: `${folder} does not respond`, hint: 'Check the network share that is mounted there.' };
    default:
      return { problem: `${folder}: ${code ?? 'unknown error'}` };
  }
}
