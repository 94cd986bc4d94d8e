import { existsSync } from 'node:fs';
import type { Worker } from 'node:worker_threads';
import { codeOf, StoreError } from '../base/errors.ts';
import type { OpenedStore, Remote, StoreApi, StoreThreadOptions } from './store-api.ts';
import {
  bufferPath,
  errorOf,
  type SetAside,
  STORE_UNAVAILABLE,
  type StoreAnswer,
  type StoreCall,
  type StoreNotice,
} from './store-messages.ts';

/**
 * Store thread that is launched before the agent is created. Loading its modules takes as long as reading the
 * configuration, and a gateway has at least two cores, so `run` launches the thread first. The thread does not open any
 * file before `open` is called.
 */
export class StoreThread {
  readonly #start: () => Worker;
  #worker: Worker | undefined;
  #isOpening = false;
  #neverRan: boolean | undefined;
  #receive: ((message: ThreadMessage) => void) | undefined;
  /** Messages that arrived before `attach`. */
  #backlog: ThreadMessage[] = [];

  constructor(start: () => Worker) {
    this.#start = start;
  }

  /** Starts the thread without keeping the process alive. */
  launch(): void {
    this.#running().unref();
  }

  /** Starts opening the stores. `attach` receives the result. */
  open(options: StoreThreadOptions): void {
    const worker = this.#running();
    worker.unref();
    this.#neverRan = neverRan(options.stateDir);
    worker.postMessage({ id: OPENING, service: 'thread', method: 'open', args: [options] } satisfies StoreCall);
    this.#isOpening = true;
  }

  /** Whether `open` was called; its reply has the ID `OPENING`. */
  get isOpening(): boolean {
    return this.#isOpening;
  }

  /** Whether the state folder was new before `open`; `undefined` if `open` was not called. */
  get neverRan(): boolean | undefined {
    return this.#neverRan;
  }

  /** Calls `receive` for every message, including earlier messages. */
  attach(receive: (message: ThreadMessage) => void): Worker {
    const worker = this.#running();
    worker.ref();
    this.#receive = receive;
    for (const message of this.#backlog.splice(0)) receive(message);
    return worker;
  }

  #running(): Worker {
    if (this.#worker) return this.#worker;
    const worker = this.#start();
    this.#worker = worker;
    const forward = (message: ThreadMessage) => (this.#receive ? this.#receive(message) : this.#backlog.push(message));
    worker.on('message', (message: StoreAnswer | StoreNotice) => forward({ message }));
    worker.on('error', (error) => forward({ death: error instanceof Error ? error : new Error(String(error)) }));
    worker.on('exit', (code) => forward({ death: new Error(`the store thread exited with ${code}`) }));
    return worker;
  }
}

/** A message from the thread, or the thread's exit. */
type ThreadMessage = { message: StoreAnswer | StoreNotice } | { death: Error };

/** Whether no agent has used the state folder yet. Must be called before the stores are opened. */
export const neverRan = (stateDir: string) => !existsSync(bufferPath(stateDir));

/** Id of the `open` call of `StoreThread`; clients start at 1. */
const OPENING = 0;

interface Waiting {
  resolve(value: unknown): void;
  reject(error: unknown): void;
}

/**
 * Main-thread client of the store thread. Replies arrive in the order of the calls. If the thread exits unexpectedly,
 * which only a bug can cause, every call is rejected and `onDeath` is called.
 */
export class StoreClient<Api extends StoreApi<object>> {
  readonly #options: StoreThreadOptions;
  readonly #onDeath: (error: Error) => void;
  readonly #thread: StoreThread;
  readonly #onSetAside: (store: SetAside) => void;
  #worker: Worker | undefined;
  #nextId = 1;
  #ended = false;
  readonly #waiting = new Map<number, Waiting>();

  /** `onSetAside` is called for a database that was found corrupt while the agent is running. */
  constructor(
    options: StoreThreadOptions,
    listener: { onDeath(error: Error): void; onSetAside(store: SetAside): void },
    thread: StoreThread,
  ) {
    this.#options = options;
    this.#onDeath = listener.onDeath;
    this.#onSetAside = listener.onSetAside;
    this.#thread = thread;
  }

  /**
   * Starts the thread and opens the stores. After a rejection other than `store.unavailable`, the thread has exited.
   * After `store.unavailable`, call `start` again to retry, or `stop`.
   */
  async start(): Promise<OpenedStore> {
    const isFirst = this.#worker === undefined;
    try {
      const opened = isFirst && this.#thread.isOpening ? this.#responseTo(OPENING) : undefined;
      this.#worker ??= this.#thread.attach((message) => this.#receive(message));
      return (await (opened ?? this.#call('thread', 'open', [this.#options]))) as OpenedStore;
    } catch (error) {
      if (codeOf(error) !== STORE_UNAVAILABLE) await this.stop().catch(() => {});
      throw error;
    }
  }

  #receive(message: ThreadMessage): void {
    if ('death' in message) this.#die(message.death);
    else if ('setAside' in message.message) this.#onSetAside(message.message.setAside);
    else this.#settle(message.message);
  }

  /** Returns the methods of a service. They reject with `store.closed` before the stores are open and after `stop`. */
  service<Name extends keyof Api & string>(name: Name): Remote<Api[Name]> {
    return new Proxy({} as Remote<Api[Name]>, {
      get: (_, method) =>
        typeof method === 'string' && method !== 'then'
          ? (...args: unknown[]) => this.#call(name, method, args)
          : undefined,
    });
  }

  /** Number of calls without a reply. */
  get pending(): number {
    return this.#waiting.size;
  }

  /** Closes the stores and stops the thread. Calls made in the meantime are rejected. */
  async stop(): Promise<void> {
    if (this.#ended || !this.#worker) return;
    try {
      await this.#call('thread', 'close', []);
    } finally {
      this.#ended = true;
      await this.#worker.terminate();
      this.#rejectAll(closed());
    }
  }

  #call(service: string, method: string, args: unknown[]): Promise<unknown> {
    if (this.#ended || !this.#worker) {
      return Promise.reject(closed());
    }
    const id = this.#nextId++;
    const answer = this.#responseTo(id);
    this.#worker.postMessage({ id, service, method, args }, transferOf(method, args));
    return answer;
  }

  #responseTo(id: number): Promise<unknown> {
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
  }

  #settle(answer: StoreAnswer): void {
    const waiting = this.#waiting.get(answer.id);
    if (!waiting) return;
    this.#waiting.delete(answer.id);
    if ('failure' in answer) waiting.reject(errorOf(answer.failure));
    else waiting.resolve(answer.result);
  }

  #die(error: Error): void {
    if (this.#ended) return;
    this.#ended = true;
    const failure = new StoreError('the store thread exited', { code: 'store.dead', cause: error });
    this.#rejectAll(failure);
    this.#onDeath(error);
  }

  #rejectAll(failure: StoreError): void {
    for (const waiting of this.#waiting.values()) waiting.reject(failure);
    this.#waiting.clear();
  }
}

const closed = () => new StoreError('the store is closed', { code: 'store.closed' });

/** Columns of a commit are transferred instead of copied. */
function transferOf(method: string, args: unknown[]): ArrayBuffer[] {
  if (method !== 'commit') return [];
  const { columns } = args[0] as { columns?: Record<string, { buffer?: ArrayBuffer }> };
  if (!columns) return [];
  return Object.values(columns).flatMap((column) => (column?.buffer instanceof ArrayBuffer ? [column.buffer] : []));
}
