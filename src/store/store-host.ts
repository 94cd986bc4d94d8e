/**
 * The store thread. All SQLite calls of the agent run here, so that a slow disk does not block other work. It opens,
 * replaces and closes the stores, and performs calls in order.
 */
import { systemClock } from '../base/clock.ts';
import {
  closeUntouched,
  DATABASE_FILES,
  type Database,
  openDatabase,
  saysCorrupt,
  saysUnreadable,
  setAsideWal,
} from '../base/database.ts';
import { demandNoLink } from '../base/own-file.ts';
import { finishReplacing, replaceDatabase } from '../base/replace-database.ts';
import { type Salvage, salvage } from '../buffer/recovery/salvage.ts';
import { SeriesCopy } from '../buffer/recovery/series-copy.ts';
import { isPartlyReadable, PAGE_BYTES } from '../buffer/recovery/sqlite-pages.ts';
import { walLostCommits } from '../buffer/recovery/wal-check.ts';
import { deleteReserve, isDiskFull, reservePath } from '../buffer/space/reserve.ts';
import type { StoreFacts } from '../buffer/store-facts.ts';
import { ValueStore } from '../buffer/value-store.ts';
import { bootId } from './boot-id.ts';
import { failureOfAttempt, unopenable } from './disk-refusal.ts';
import { Rescue } from './rescue.ts';
import { lockState, type StateLock } from './state-lock.ts';
import type {
  BufferServices,
  EventStoreKind,
  OpenedEvents,
  OpenedStore,
  StoreThreadOptions,
  ThreadCalls,
} from './store-api.ts';
import {
  bufferPath,
  failureOf,
  type SetAside,
  type StoreAnswer,
  type StoreCall,
  type StoreNotice,
} from './store-messages.ts';

interface Opening<Store> {
  /** Whether a database counts as corrupt if its WAL has lost commits. */
  checkWal: boolean;
  make(database: Database): Store;
  /** Copies all readable data from the old database into a new one. */
  carryOver(into: Database, aside: string, isWalDamaged: boolean): SetAside['salvaged'];
}

/**
 * Throws if the file system cannot stat one of the files. Their contents may be intact after a file system check, so
 * nothing is set aside.
 */
function checkFiles(path: string): void {
  for (const end of DATABASE_FILES) demandNoLink(`${path}${end}`);
}

/** Opens a database and its store. If it is corrupt, replaces it and calls `make` again. */
function openOrReplace<Store>(path: string, setAside: SetAside[], opening: Opening<Store>): Store {
  checkFiles(path);
  finishReplacing(path);
  const isWalDamaged = opening.checkWal && walLostCommits(path, PAGE_BYTES);
  const opened = isWalDamaged ? undefined : openSound(path, opening);
  if (opened) return opened.store;
  const { file, result } = replaceDatabase(path, systemClock.wallMs(), (into, aside) =>
    opening.carryOver(into, aside, isWalDamaged),
  );
  setAside.push({ store: path, file, salvaged: result });
  const fresh = openDatabase(path);
  try {
    return opening.make(fresh);
  } catch (error) {
    fresh.close();
    throw error;
  }
}

/** A bad sector is permanent. A disk that cannot read anything may recover, so the store waits for it. */
const isBadSector = (path: string, error: unknown) => saysUnreadable(error) && isPartlyReadable(path);

/** Returns `undefined` if the database is corrupt. */
function openSound<Store>(path: string, opening: Opening<Store>): { store: Store } | undefined {
  let database: Database | undefined;
  try {
    database = openDatabase(path);
    return { store: opening.make(database) };
  } catch (error) {
    if (!saysCorrupt(error) && !isBadSector(path, error)) {
      database?.close();
      throw unopenable(path, error) ?? error;
    }
    if (database) closeUntouched(database, path);
    return undefined;
  }
}

/** Adds the number of values that the new buffer contains. */
const withValueCount = (salvaged: Salvage, { logValues, segmentValues, notLoaded }: StoreFacts): Salvage => ({
  ...salvaged,
  values: logValues + segmentValues + notLoaded,
});

interface RescueSteps<Result> {
  /** Closes the store and returns the old database. */
  close(): Database;
  build(into: Database, aside: string): Result;
  open(database: Database, replaced: { file: string; result: Result }): void;
  /** Frees space on a full disk, for the next attempt. */
  freeSpace?(): void;
}

interface Port {
  on(event: 'message', listen: (call: StoreCall) => void): unknown;
  postMessage(message: StoreAnswer | StoreNotice, transfer?: ArrayBuffer[]): void;
}

export class StoreHost<Events extends object> {
  readonly #port: Port;
  readonly #eventStore: EventStoreKind<Events>;
  readonly #opened: (facts: StoreFacts) => void;
  /** Read only once, so that a replacement uses the same clock. */
  readonly #clockOffsetMs = systemClock.wallMs() - systemClock.monotonicMs();
  #lock: StateLock | undefined;
  #buffer: { database: Database; store: ValueStore; services: BufferServices } | undefined;
  #events: OpenedEvents<Events> | undefined;
  #bufferRescue: Rescue | undefined;
  #eventsRescue: Rescue | undefined;
  readonly #thread: ThreadCalls = {
    open: (options) => this.#open(options),
    close: () => this.#close(),
  };

  /** `opened` is called after the reply to `open` has been posted. */
  constructor(port: Port, eventStore: EventStoreKind<Events>, opened: (facts: StoreFacts) => void = () => {}) {
    this.#port = port;
    this.#eventStore = eventStore;
    this.#opened = opened;
  }

  serve(): void {
    this.#port.on('message', (call) => {
      const message = this.#answer(call);
      this.#port.postMessage(message, transferOf(message));
    });
  }

  #open(options: StoreThreadOptions): OpenedStore {
    try {
      this.#lock = lockState(options.stateDir, options.holder);
      const opened = this.#openOnFullDisk(options);
      setImmediate(() => this.#opened(opened.facts));
      return { ...opened, folderNarrowedFrom: this.#lock.narrowedFrom };
    } catch (error) {
      this.#lock?.release();
      this.#lock = undefined;
      throw failureOfAttempt(options.stateDir, error);
    }
  }

  #now(boot: string) {
    const monotonicMs = systemClock.monotonicMs();
    return { monotonicMs, wallMs: this.#clockOffsetMs + monotonicMs, boot };
  }

  #close(): void {
    this.#closeStores();
    this.#lock?.release();
  }

  #useBuffer(database: Database, store: ValueStore): void {
    this.#buffer = { database, store, services: { values: store, operator: store.operator } };
  }

  #rescue<Result>(path: string, work: RescueSteps<Result>): Rescue {
    let replaced: { file: string; result: Result } | undefined;
    const attempt = (step: () => void): void => {
      try {
        step();
      } catch (error) {
        if (isDiskFull(error)) work.freeSpace?.();
        throw error;
      }
    };
    const replace = () => {
      const old = work.close();
      if (old.open) closeUntouched(old, path);
      replaced = replaceDatabase(path, systemClock.wallMs(), work.build);
    };
    const open = () => {
      const database = openDatabase(path);
      try {
        work.open(database, replaced!);
      } catch (error) {
        database.close();
        throw error;
      }
    };
    const isDamage = (error: unknown) => isBadSector(path, error);
    return new Rescue({ path, isDamage, replace: () => attempt(replace), open: () => attempt(open) }, systemClock);
  }

  /** Uncommitted changes of the corrupt buffer are lost: their values are posted or flushed again. */
  #rescueOfBuffer(path: string): Rescue {
    return this.#rescue<Salvage>(path, {
      close: () => {
        const { database, store } = this.#buffer!;
        store.closeOldFiles();
        return database;
      },
      build: (into, aside) => {
        const known = this.#buffer!.store.handOver().series;
        return salvage(path, into, { aside, copy: new SeriesCopy(path), known });
      },
      open: (database, { file, result }) => {
        const handover = this.#buffer!.store.handOver();
        const { store, facts } = ValueStore.open(database, path, handover.options, this.#now(bootId()));
        const damage = { what: 'database', values: 0, file, salvaged: withValueCount(result, facts) };
        // Damage found while opening is reported with the next reply.
        store.takeOver(handover, [damage, ...facts.damaged]);
        this.#useBuffer(database, store);
      },
      freeSpace: () => deleteReserve(reservePath(path)),
    });
  }

  /** The main thread is notified immediately. */
  #rescueOfEvents(path: string): Rescue {
    return this.#rescue<number>(path, {
      close: () => this.#events!.database,
      build: (into) => this.#eventStore.carryOver(path, into),
      open: (database, { file, result: rows }) => {
        this.#events = this.#eventStore.open(database, bootId(), { before: this.#events!.services });
        this.#port.postMessage({ setAside: { store: path, file, salvaged: { rows } } });
      },
    });
  }

  /** Opens both stores, or neither. */
  #openStores({ stateDir, values }: StoreThreadOptions): OpenedStore {
    const setAside: SetAside[] = [];
    const boot = bootId();
    const now = this.#now(boot);
    const path = bufferPath(stateDir);
    try {
      const opened = openOrReplace(path, setAside, {
        checkWal: true,
        make: (database) => {
          const { store, ...result } = ValueStore.open(database, path, values, now);
          this.#useBuffer(database, store);
          return result;
        },
        carryOver: (into, aside, isWalDamaged) =>
          salvage(path, into, { aside, copy: new SeriesCopy(path), isWalDamaged }),
      });
      for (const one of setAside) {
        if (one.salvaged && 'values' in one.salvaged) one.salvaged = withValueCount(one.salvaged, opened.facts);
      }
      this.#openEvents(this.#eventStore.path(stateDir), setAside, boot);
      this.#bufferRescue = this.#rescueOfBuffer(path);
      return { ...opened, setAside, clockOffsetMs: this.#clockOffsetMs };
    } catch (error) {
      this.#closeStores();
      throw error;
    }
  }

  #openEvents(path: string, setAside: SetAside[], boot: string): void {
    checkFiles(path);
    const hasLostCommits = walLostCommits(path, PAGE_BYTES);
    if (hasLostCommits) {
      setAside.push({ store: path, file: setAsideWal(path, systemClock.wallMs()), salvaged: undefined });
    }
    openOrReplace(path, setAside, {
      checkWal: false,
      make: (database) => {
        this.#events = this.#eventStore.open(database, boot, { hasLostCommits });
      },
      carryOver: (into) => ({ rows: this.#eventStore.carryOver(path, into) }),
    });
    this.#eventsRescue = this.#rescueOfEvents(path);
  }

  /** Opening requires some space even on a full disk. */
  #openOnFullDisk(options: StoreThreadOptions): OpenedStore {
    try {
      return this.#openStores(options);
    } catch (error) {
      if (!isDiskFull(error) || !deleteReserve(reservePath(bufferPath(options.stateDir)))) throw error;
      return this.#openStores(options);
    }
  }

  #closeStores(): void {
    if (this.#buffer?.database.open) this.#buffer.store.close();
    if (this.#events?.database.open) this.#events.database.close();
    this.#buffer = undefined;
    this.#events = undefined;
  }

  #perform(call: StoreCall): unknown {
    const run = () => {
      const services: Record<string, object> = {
        thread: this.#thread,
        ...this.#buffer?.services,
        ...this.#events?.services,
      };
      const service = services[call.service];
      const method: unknown = service && Reflect.get(service, call.method);
      if (typeof method !== 'function') throw new Error(`the store thread has no ${call.service}.${call.method}`);
      return Reflect.apply(method, service, call.args);
    };
    const rescue = this.#rescueOf(call.service);
    return rescue ? rescue.perform(run) : run();
  }

  #rescueOf(service: string): Rescue | undefined {
    if (service in (this.#buffer?.services ?? {})) return this.#bufferRescue;
    return service in (this.#events?.services ?? {}) ? this.#eventsRescue : undefined;
  }

  #answer(call: StoreCall): StoreAnswer {
    try {
      return { id: call.id, result: this.#perform(call) };
    } catch (error) {
      return { id: call.id, failure: failureOf(error) };
    }
  }
}

/** Post bodies are transferred instead of copied. */
function transferOf(message: StoreAnswer): ArrayBuffer[] {
  if (!('result' in message) || typeof message.result !== 'object' || message.result === null) return [];
  const { batch, batches } = message.result as { batch?: { body: Uint8Array }; batches?: { body: Uint8Array }[] };
  return [...(batch ? [batch] : []), ...(Array.isArray(batches) ? batches : [])].map(
    ({ body }) => body.buffer as ArrayBuffer,
  );
}
