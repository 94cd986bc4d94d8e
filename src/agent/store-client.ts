import { Worker } from 'node:worker_threads';
import { codeOf, StoreError } from '../errors.ts';
import { errorOf, type SetAside, STORE_UNAVAILABLE, type StoreAnswer, type StoreNotice } from './store-messages.ts';
import type { OpenedStore, StoreThreadOptions } from './store-thread.ts';

/** A class of the store thread as the main thread sees it: the same methods, answered later. */
export type Remote<Room> = {
  [Method in keyof Room as Room[Method] extends (...args: never[]) => unknown ? Method : never]: Room[Method] extends (
    ...args: infer Args
  ) => infer Result
    ? (...args: Args) => Promise<Awaited<Result>>
    : never;
};

/**
 * The store thread before it has anything to do. Loading its modules takes as long as reading the configuration, and the
 * other core of the gateway has nothing else to do: `run` launches it first. It touches no file until it is told to open.
 */
export class StoreThread {
  #worker: Worker | undefined;

  /** Does not keep the process alive: where the configuration is wrong, nobody will take it. */
  launch(): void {
    this.#worker ??= startWorker();
    this.#worker.unref();
  }

  take(): Worker {
    const worker = this.#worker ?? startWorker();
    worker.ref();
    return worker;
  }
}

function startWorker(): Worker {
  // The source runs as it is, and built: the thread's file has the ending of this one.
  const file = new URL(import.meta.url.endsWith('.ts') ? './store-thread.ts' : './store-thread.js', import.meta.url);
  return new Worker(file, {
    // The thread's garbage is short-lived and small; a large nursery would only hold memory.
    resourceLimits: { maxYoungGenerationSizeMb: 4 },
    execArgv: [],
  });
}

interface Waiting {
  resolve(value: unknown): void;
  reject(error: unknown): void;
}

/**
 * The main thread's end of the store thread. Calls are answered in the order they were made. When the thread dies,
 * which only a fault of ours can cause, every call fails and `onDeath` is told.
 */
export class StoreClient {
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
   * `thread`: one that was launched before; left out, `start` launches its own. `onSetAside` is told what was found corrupt
   * while it ran and tells of it in no answer.
   */
  constructor(
    options: StoreThreadOptions,
    told: { onDeath(error: Error): void; onSetAside(store: SetAside): void },
    thread = new StoreThread(),
  ) {
    this.#options = options;
    this.#onDeath = told.onDeath;
    this.#onSetAside = told.onSetAside;
    this.#thread = thread;
  }

  /**
   * Starts the thread and opens the stores. Rejects with what opening failed with; then the thread has ended. After
   * `store.unavailable` it has not: whoever waits for the disk starts again, and whoever does not calls `stop`.
   */
  async start(): Promise<OpenedStore> {
    this.#worker ??= this.#takeWorker();
    try {
      return (await this.#call('thread', 'open', [this.#options])) as OpenedStore;
    } catch (error) {
      // It would keep the process alive for a store that nobody has.
      if (codeOf(error) !== STORE_UNAVAILABLE) await this.stop().catch(() => {});
      throw error;
    }
  }

  #takeWorker(): Worker {
    const worker = this.#thread.take();
    worker.on('message', (message: StoreAnswer | StoreNotice) => {
      if ('setAside' in message) this.#onSetAside(message.setAside);
      else this.#settle(message);
    });
    worker.on('error', (error) => this.#die(error instanceof Error ? error : new Error(String(error))));
    worker.on('exit', (code) => this.#die(new Error(`the store thread ended with ${code}`)));
    return worker;
  }

  /** The methods of one room of the thread. */
  room<Room>(name: string): Remote<Room> {
    return new Proxy({} as Remote<Room>, {
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

  /** Closes the stores and ends the thread. */
  async stop(): Promise<void> {
    if (this.#ended || !this.#worker) return;
    try {
      await this.#call('thread', 'close', []);
    } finally {
      this.#ended = true;
      await this.#worker.terminate();
    }
  }

  #call(room: string, method: string, args: unknown[]): Promise<unknown> {
    if (this.#ended || !this.#worker) {
      return Promise.reject(new StoreError('the store is closed', { code: 'store.closed' }));
    }
    const id = this.#nextId++;
    const worker = this.#worker;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      worker.postMessage({ id, room, method, args }, transferOf(method, args));
    });
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
    for (const waiting of this.#waiting.values()) waiting.reject(failure);
    this.#waiting.clear();
    this.#onDeath(error);
  }
}

/** The columns of a commit move to the other thread instead of being copied. */
function transferOf(method: string, args: unknown[]): ArrayBuffer[] {
  if (method !== 'commit') return [];
  const { columns } = args[0] as { columns?: Record<string, { buffer?: ArrayBuffer }> };
  if (!columns) return [];
  return Object.values(columns).flatMap((column) => (column?.buffer instanceof ArrayBuffer ? [column.buffer] : []));
}
