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
 * The store thread before there is an agent. Loading its modules takes as long as reading the configuration, and opening the
 * stores as long as loading the agent, and the other core of the gateway has nothing else to do: `run` launches it first,
 * and has it open what the configuration names. It touches no file before.
 */
export class StoreThread {
  readonly #start: () => Worker;
  #worker: Worker | undefined;
  #isOpening = false;
  #neverRan: boolean | undefined;
  #hear: ((word: Word) => void) | undefined;
  /** What was said before anybody listened. */
  #unheard: Word[] = [];

  constructor(start: () => Worker) {
    this.#start = start;
  }

  /** Does not keep the process alive: where the configuration is wrong, nobody will take it. */
  launch(): void {
    this.#running().unref();
  }

  /** Begins to open the stores; what comes of it is told to who takes the thread. */
  open(options: StoreThreadOptions): void {
    const worker = this.#running();
    worker.unref();
    this.#neverRan = neverRan(options.stateDir);
    worker.postMessage({ id: OPENING, service: 'thread', method: 'open', args: [options] } satisfies StoreCall);
    this.#isOpening = true;
  }

  /** Whether `open` was called: its answer has the number `OPENING`. */
  get isOpening(): boolean {
    return this.#isOpening;
  }

  /** Whether no agent ever had the state folder, as it was before `open`; `undefined` where that was not called. */
  get neverRan(): boolean | undefined {
    return this.#neverRan;
  }

  /** `hear` is told everything from now on, and at once what was said before. */
  take(hear: (word: Word) => void): Worker {
    const worker = this.#running();
    worker.ref();
    this.#hear = hear;
    for (const word of this.#unheard.splice(0)) hear(word);
    return worker;
  }

  #running(): Worker {
    if (this.#worker) return this.#worker;
    const worker = this.#start();
    this.#worker = worker;
    const say = (word: Word) => (this.#hear ? this.#hear(word) : this.#unheard.push(word));
    worker.on('message', (message: StoreAnswer | StoreNotice) => say({ message }));
    worker.on('error', (error) => say({ death: error instanceof Error ? error : new Error(String(error)) }));
    worker.on('exit', (code) => say({ death: new Error(`the store thread ended with ${code}`) }));
    return worker;
  }
}

/** What comes from the thread: an answer or a notice, or that it has ended. */
type Word = { message: StoreAnswer | StoreNotice } | { death: Error };

/** Whether no agent ever had the state folder. Asked before the stores are opened: that makes the file. */
export const neverRan = (stateDir: string) => !existsSync(bufferPath(stateDir));

/** No call of a client has this number. */
const OPENING = 0;

interface Waiting {
  resolve(value: unknown): void;
  reject(error: unknown): void;
}

/**
 * The main thread's end of the store thread. Calls are answered in the order they were made. When the thread dies,
 * which only a fault of ours can cause, every call fails and `onDeath` is told.
 */
export class StoreClient<Api extends StoreApi<object>> {
  readonly #options: StoreThreadOptions;
  readonly #onDeath: (error: Error) => void;
  readonly #thread: StoreThread;
  readonly #onSetAside: (store: SetAside) => void;
  #worker: Worker | undefined;
  #nextId = 1;
  #ended = false;
  /** When the oldest call that is not answered was made, for the watchdog: a slow disk, or a dead thread. */
  readonly #waiting = new Map<number, Waiting>();

  /**
   * `thread`: launched before, or else by `start`. `onSetAside` is told what was found corrupt
   * while it ran and tells of it in no answer.
   */
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
   * Starts the thread and opens the stores. Rejects with what opening failed with; then the thread has ended. After
   * `store.unavailable` it has not: whoever waits for the disk starts again, and whoever does not calls `stop`.
   */
  async start(): Promise<OpenedStore> {
    const isFirst = this.#worker === undefined;
    try {
      const opened = isFirst && this.#thread.isOpening ? this.#answerTo(OPENING) : undefined;
      this.#worker ??= this.#thread.take((word) => this.#hear(word));
      return (await (opened ?? this.#call('thread', 'open', [this.#options]))) as OpenedStore;
    } catch (error) {
      // It would keep the process alive for a store that nobody has.
      if (codeOf(error) !== STORE_UNAVAILABLE) await this.stop().catch(() => {});
      throw error;
    }
  }

  #hear(word: Word): void {
    if ('death' in word) this.#die(word.death);
    else if ('setAside' in word.message) this.#onSetAside(word.message.setAside);
    else this.#settle(word.message);
  }

  /** The methods of one service of the thread. They reject with `store.closed` before the stores are open, and after. */
  service<Name extends keyof Api & string>(name: Name): Remote<Api[Name]> {
    return new Proxy({} as Remote<Api[Name]>, {
      get: (_, method) =>
        typeof method === 'string' && method !== 'then'
          ? (...args: unknown[]) => this.#call(name, method, args)
          : undefined,
    });
  }

  /** Calls that are not answered yet. */
  get pending(): number {
    return this.#waiting.size;
  }

  /** Closes the stores and ends the thread. What is asked meanwhile rejects as what is asked later. */
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
    const answer = this.#answerTo(id);
    this.#worker.postMessage({ id, service, method, args }, transferOf(method, args));
    return answer;
  }

  #answerTo(id: number): Promise<unknown> {
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
    const failure = new StoreError('the store thread ended', { code: 'store.dead', cause: error });
    this.#rejectAll(failure);
    this.#onDeath(error);
  }

  #rejectAll(failure: StoreError): void {
    for (const waiting of this.#waiting.values()) waiting.reject(failure);
    this.#waiting.clear();
  }
}

const closed = () => new StoreError('the store is closed', { code: 'store.closed' });

/** The columns of a commit move to the other thread instead of being copied. */
function transferOf(method: string, args: unknown[]): ArrayBuffer[] {
  if (method !== 'commit') return [];
  const { columns } = args[0] as { columns?: Record<string, { buffer?: ArrayBuffer }> };
  if (!columns) return [];
  return Object.values(columns).flatMap((column) => (column?.buffer instanceof ArrayBuffer ? [column.buffer] : []));
}
