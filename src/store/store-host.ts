/**
 * The store thread: all SQLite of the agent, so that a disk that stalls for a second stalls nothing else. It opens, rescues and
 * closes the stores and answers calls, in the order in which they come; what is called lives with its subject.
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
import { codeOf, StoreError } from '../base/errors.ts';
import { demandNoLink } from '../base/own-file.ts';
import { finishReplacing, replaceDatabase } from '../base/replace-database.ts';
import { PAGE_BYTES, type Salvage, salvage } from '../buffer/recovery/salvage.ts';
import { SeriesCopy } from '../buffer/recovery/series-copy.ts';
import { isPartlyReadable } from '../buffer/recovery/sqlite-pages.ts';
import { walLostCommits } from '../buffer/recovery/wal-check.ts';
import { giveUpReserve, reservePath, saysFull } from '../buffer/space/reserve.ts';
import type { StoreFacts } from '../buffer/store-facts.ts';
import { ValueStore } from '../buffer/value-store.ts';
import { bootId } from './boot-id.ts';
import { failureOfAttempt } from './disk-refusal.ts';
import { Rescue } from './rescue.ts';
import { foreignOwnerHint } from './state-folder.ts';
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

const NOT_OURS = new Set(['SQLITE_CANTOPEN', 'SQLITE_READONLY', 'EPERM', 'EACCES', 'EROFS']);

/** A file that is there and cannot be used as it is. */
function unopenable(path: string, cause: unknown): StoreError | undefined {
  const code = codeOf(cause) ?? '';
  if (!NOT_OURS.has(code)) return undefined;
  const hint =
    foreignOwnerHint(path) ??
    `Check that ${path} is a file and that its file system is writable: \`ls -ld ${path}\`, \`mount\`.`;
  return new StoreError(`cannot open ${path} for writing (${code})`, {
    code: 'store.unwritable',
    retryable: true,
    hint,
    cause,
  });
}

interface Opening<Store> {
  /** Whether a WAL that has lost commits makes the whole corrupt. */
  checkWal: boolean;
  make(database: Database): Store;
  /** Fills a new one with what reads of the old one. */
  carryOver(into: Database, aside: string, isWalDamaged: boolean): SetAside['salvaged'];
}

/**
 * Throws where the file system itself cannot say what one of the files is. What does not read for such a reason is not lost: it may be there
 * after a check of the file system, and nothing is to be set aside without it.
 */
function demandFound(path: string): void {
  for (const end of DATABASE_FILES) demandNoLink(`${path}${end}`);
}

/** Opens a database and what lives in it; another takes the place of one that is corrupt, and `make` runs once more on that. */
function openOrReplace<Store>(path: string, setAside: SetAside[], opening: Opening<Store>): Store {
  demandFound(path);
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

/** What stands in a bad sector is lost for good; a disk of which nothing reads may come back, and is waited for. */
const isBadSector = (path: string, error: unknown) => saysUnreadable(error) && isPartlyReadable(path);

/** `undefined` where it is corrupt. */
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

/** Unless a try before has done it. */
function closeForRescue(database: Database, path: string): void {
  if (database.open) closeUntouched(database, path);
}

/** With the values that the new buffer knows of. */
const tellSalvaged = (salvaged: Salvage, { logValues, segmentValues, notLoaded }: StoreFacts): Salvage => ({
  ...salvaged,
  values: logValues + segmentValues + notLoaded,
});

interface OpenBuffer {
  database: Database;
  store: ValueStore;
  services: BufferServices;
}

const openBuffer = (database: Database, store: ValueStore): OpenBuffer => ({
  database,
  store,
  services: { values: store, operator: store.operator },
});

/** Of the main thread's port, what is needed. */
interface Port {
  on(event: 'message', listen: (call: StoreCall) => void): unknown;
  postMessage(message: StoreAnswer | StoreNotice, transfer?: ArrayBuffer[]): void;
}

export class StoreHost<Events extends object> {
  readonly #port: Port;
  readonly #eventStore: EventStoreKind<Events>;
  readonly #opened: (facts: StoreFacts) => void;
  /** Read once: a store that takes the place of another continues with the same clock. */
  readonly #clockOffsetMs = systemClock.wallMs() - systemClock.monotonicMs();
  #lock: StateLock | undefined;
  #buffer: OpenBuffer | undefined;
  #events: OpenedEvents<Events> | undefined;
  #bufferRescue: Rescue | undefined;
  #eventsRescue: Rescue | undefined;
  readonly #thread: ThreadCalls = {
    open: (options) => this.#open(options),
    close: () => this.#close(),
  };

  /** `opened` is told when an opening has been answered, and what it read lies behind. */
  constructor(port: Port, eventStore: EventStoreKind<Events>, opened: (facts: StoreFacts) => void = () => {}) {
    this.#port = port;
    this.#eventStore = eventStore;
    this.#opened = opened;
  }

  /** Answers calls from now on. */
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

  /** The buffer was found corrupt while the agent runs: what was pending in memory is posted or flushed again. */
  #rescueOfBuffer(path: string): Rescue {
    let replaced: { file: string; result: Salvage } | undefined;
    const replace = () => {
      const { database, store } = this.#buffer!;
      store.closeOrigins();
      closeForRescue(database, path);
      try {
        const known = store.handOver().series;
        replaced = replaceDatabase(path, systemClock.wallMs(), (into, aside) =>
          salvage(path, into, { aside, copy: new SeriesCopy(path), known }),
        );
      } catch (error) {
        if (saysFull(error)) giveUpReserve(reservePath(path));
        throw error;
      }
    };
    const open = () => {
      const handover = this.#buffer!.store.handOver();
      const database = openDatabase(path);
      try {
        const { store, facts } = ValueStore.open(database, path, handover.options, this.#now(bootId()));
        const { file, result } = replaced!;
        const damage = { what: 'database', values: 0, file, salvaged: tellSalvaged(result, facts) };
        // What opening found goes to the main thread with the next answer.
        store.takeOver({ ...handover, damage: [damage, ...facts.damaged] });
        this.#buffer = openBuffer(database, store);
      } catch (error) {
        database.close();
        if (saysFull(error)) giveUpReserve(reservePath(path));
        throw error;
      }
    };
    return new Rescue({ path, isDamage: (error) => isBadSector(path, error), replace, open }, systemClock);
  }

  /** The same for the second database; the main thread is told at once. */
  #rescueOfEvents(path: string): Rescue {
    let replaced: { file: string; result: number } | undefined;
    const replace = () => {
      closeForRescue(this.#events!.database, path);
      replaced = replaceDatabase(path, systemClock.wallMs(), (into) => this.#eventStore.carryOver(path, into));
    };
    const open = () => {
      const database = openDatabase(path);
      try {
        const before = this.#events!.services;
        this.#events = this.#eventStore.open(database, bootId(), { before });
      } catch (error) {
        database.close();
        throw error;
      }
      const { file, result: rows } = replaced!;
      this.#port.postMessage({ setAside: { store: path, file, salvaged: { rows } } });
    };
    return new Rescue({ path, isDamage: (error) => isBadSector(path, error), replace, open }, systemClock);
  }

  /** Opens both stores. Where one fails, none stays open. */
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
          this.#buffer = openBuffer(database, store);
          return result;
        },
        carryOver: (into, aside, isWalDamaged) =>
          salvage(path, into, { aside, copy: new SeriesCopy(path), isWalDamaged }),
      });
      for (const one of setAside) {
        if (one.salvaged && 'values' in one.salvaged) one.salvaged = tellSalvaged(one.salvaged, opened.facts);
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
    demandFound(path);
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

  /** On a full disk even opening takes some space. The store then finds that the reserve is owed. */
  #openOnFullDisk(options: StoreThreadOptions): OpenedStore {
    try {
      return this.#openStores(options);
    } catch (error) {
      if (!saysFull(error) || !giveUpReserve(reservePath(bufferPath(options.stateDir)))) throw error;
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

/** Bodies of posts move to the main thread instead of being copied. */
function transferOf(message: StoreAnswer): ArrayBuffer[] {
  if (!('result' in message) || typeof message.result !== 'object' || message.result === null) return [];
  const { batch, batches } = message.result as { batch?: { body: Uint8Array }; batches?: { body: Uint8Array }[] };
  return [...(batch ? [batch] : []), ...(Array.isArray(batches) ? batches : [])].map(
    ({ body }) => body.buffer as ArrayBuffer,
  );
}
