/**
 * The store thread: all SQLite of the agent, so that a disk that stalls for a second stalls nothing else. This file is
 * wiring alone; what runs here lives with its subject. Calls come in order and are answered in order.
 */
import { readFileSync } from 'node:fs';
import { parentPort } from 'node:worker_threads';
import { giveUpReserve, reservePath, saysFull } from '../buffer/reserve.ts';
import { salvage } from '../buffer/salvage.ts';
import type { Series } from '../buffer/series.ts';
import { SeriesCopy } from '../buffer/series-copy.ts';
import type { StoreFacts, ValueStoreOptions } from '../buffer/store-facts.ts';
import { ValueStore } from '../buffer/value-store.ts';
import { walLostCommits } from '../buffer/wal-check.ts';
import { systemClock } from '../clock.ts';
import {
  closeUntouched,
  type Database,
  openDatabase,
  removeDatabase,
  saysCorrupt,
  setAsideDatabase,
  setAsideWal,
} from '../database.ts';
import { codeOf, StoreError } from '../errors.ts';
import { WATERMARK_NOTE } from '../webhook/watermark.ts';
import { Attempts } from './disk-refusal.ts';
import { beginEventStore, carryEvents, type EventStore, eventStorePath, openEventStore } from './event-store.ts';
import { Rescue } from './rescue.ts';
import { lockState, type StateLock } from './state-lock.ts';
import {
  bufferPath,
  failureOf,
  type SetAside,
  type StoreAnswer,
  type StoreCall,
  type StoreNotice,
} from './store-messages.ts';

export interface StoreThreadOptions {
  stateDir: string;
  values: ValueStoreOptions;
}

export interface OpenedStore {
  series: Series[];
  facts: StoreFacts;
  setAside: SetAside[];
}

/** The machine's current start, so that monotonic times of earlier runs are compared only where they can be. */
function bootId(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  } catch {
    return `unknown-${process.pid}`;
  }
}

/** As `openDatabase` makes them. */
const PAGE_BYTES = 1024;

/** SQLite would go on without a word, and what was committed behind the damage would be gone. */
function corruptWal(path: string): StoreError {
  return new StoreError(`${path}-wal has lost commits`, { code: 'store.corrupt' });
}

const NOT_OURS = new Set(['SQLITE_CANTOPEN', 'SQLITE_READONLY', 'EPERM', 'EACCES', 'EROFS']);

/** A file that is there and cannot be used as it is. */
function unopenable(path: string, cause: unknown): StoreError | undefined {
  const code = codeOf(cause) ?? '';
  if (!NOT_OURS.has(code)) return undefined;
  return new StoreError(`${path} cannot be opened to be written (${code})`, {
    code: 'store.unwritable',
    retryable: true,
    hint: `Look whether it is a file, whom it belongs to, and whether its file system may be written: ls -ld ${path}`,
    cause,
  });
}

interface Opening<Store> {
  /** Whether a WAL that has lost commits makes the whole corrupt. */
  checkWal: boolean;
  make(database: Database): Store;
  carryOver(from: string, into: Database): SetAside['salvaged'];
}

/** Corrupt databases that were set aside by an attempt which then failed: the next goes on with them. */
const notCarriedOver = new Map<string, string>();

/** Opens a database and what lives in it; one that is corrupt is set aside, and `make` runs once more on a new one. */
function openOrSetAside<Store>(path: string, setAside: SetAside[], opening: Opening<Store>): Store {
  const opened = notCarriedOver.has(path) ? undefined : openSound(path, opening);
  if (opened) return opened.store;
  const file = notCarriedOver.get(path) ?? setAsideDatabase(path, systemClock.wallMs());
  notCarriedOver.set(path, file);
  removeDatabase(path);
  const fresh = openDatabase(path);
  try {
    setAside.push({ store: path, file, salvaged: opening.carryOver(file, fresh) });
    const store = opening.make(fresh);
    notCarriedOver.delete(path);
    return store;
  } catch (error) {
    fresh.close();
    throw error;
  }
}

/** `undefined` where it is corrupt. */
function openSound<Store>(path: string, opening: Opening<Store>): { store: Store } | undefined {
  let database: Database | undefined;
  try {
    if (opening.checkWal && walLostCommits(path, PAGE_BYTES)) throw corruptWal(path);
    database = openDatabase(path);
    return { store: opening.make(database) };
  } catch (error) {
    if (!saysCorrupt(error)) {
      database?.close();
      throw unopenable(path, error) ?? error;
    }
    if (database) closeUntouched(database, path);
    return undefined;
  }
}

let lock: StateLock | undefined;
let buffer: { database: Database; store: ValueStore; options: StoreThreadOptions } | undefined;
let events: EventStore | undefined;
const rescues: Record<string, Rescue> = {};
const attempts = new Attempts(() => systemClock.monotonicMs());

const timeNow = () => ({ monotonicMs: systemClock.monotonicMs(), wallMs: systemClock.wallMs() });

/** Closed, unless a try before has done it, and out of the way. */
function setAsideOpen(database: Database, path: string): string {
  if (database.open) closeUntouched(database, path);
  return setAsideDatabase(path, systemClock.wallMs());
}

/** The buffer was found corrupt while the agent runs: what was pending in memory is posted or folded again. */
function rescueOfBuffer(path: string): Rescue {
  const begin = (file: string) => {
    const { store: before, options } = buffer!;
    const handover = before.handOver();
    const database = openDatabase(path);
    try {
      const salvaged = salvage(file, database, new SeriesCopy(path), handover.series);
      const store = new ValueStore(database, path, handover.options);
      const damage = { what: 'database', values: 0, file, salvaged };
      const { facts } = store.open({ ...timeNow(), boot: bootId() });
      // What opening found goes to the main thread with the next answer.
      store.takeOver({ ...handover, damage: [damage, ...facts.damaged] });
      buffer = { database, store, options };
      rooms.values = store as never;
    } catch (error) {
      database.close();
      if (saysFull(error)) giveUpReserve(reservePath(path));
      throw error;
    }
  };
  return new Rescue({ path, setAside: () => setAsideOpen(buffer!.database, path), begin }, systemClock);
}

/** The same for the inbox; the main thread is told at once. */
function rescueOfEvents(path: string): Rescue {
  const begin = (file: string) => {
    const { store, rows } = beginEventStore(path, file, bootId(), events!.inbox);
    useEvents(store);
    parentPort?.postMessage({ setAside: { store: path, file, salvaged: { rows } } } satisfies StoreNotice);
  };
  return new Rescue({ path, setAside: () => setAsideOpen(events!.database, path), begin }, systemClock);
}

function useEvents(store: EventStore): void {
  events = store;
  rooms.inbox = store.inbox as never;
  rooms.holds = store.holds as never;
}

/** Opens both stores. Where one fails, none stays open. */
function openStores(options: StoreThreadOptions): OpenedStore {
  const { stateDir, values } = options;
  const setAside: SetAside[] = [];
  const boot = bootId();
  const now = { ...timeNow(), boot };
  const path = bufferPath(stateDir);
  try {
    const opened = openOrSetAside(path, setAside, {
      checkWal: true,
      make(database) {
        const store = new ValueStore(database, path, values);
        const result = store.open(now);
        buffer = { database, store, options };
        rooms.values = store as never;
        return result;
      },
      carryOver: (from, into) => salvage(from, into, new SeriesCopy(path)),
    });
    const inboxPath = eventStorePath(stateDir);
    const lostEvents = walLostCommits(inboxPath, PAGE_BYTES);
    if (lostEvents) {
      setAside.push({ store: inboxPath, file: setAsideWal(inboxPath, now.wallMs), salvaged: undefined });
    }
    openOrSetAside(inboxPath, setAside, {
      checkWal: false,
      make(database) {
        const store = openEventStore(database, boot);
        // The platform has them still, and those that are here are known.
        if (lostEvents) store.inbox.setNote(WATERMARK_NOTE, '');
        useEvents(store);
      },
      carryOver: (from, into) => ({ rows: carryEvents(from, into) }),
    });
    rescues.values = rescueOfBuffer(path);
    rescues.inbox = rescueOfEvents(inboxPath);
    rescues.holds = rescues.inbox;
    return { ...opened, setAside };
  } catch (error) {
    closeStores();
    throw error;
  }
}

/** On a full disk even opening takes some space. The store then finds that the reserve is owed. */
function openOnFullDisk(options: StoreThreadOptions): OpenedStore {
  try {
    return openStores(options);
  } catch (error) {
    if (!saysFull(error) || !giveUpReserve(reservePath(bufferPath(options.stateDir)))) throw error;
    return openStores(options);
  }
}

function closeStores(): void {
  if (buffer?.database.open) buffer.store.close();
  if (events?.database.open) events.database.close();
  buffer = undefined;
  events = undefined;
}

const rooms: Record<string, Record<string, (...args: unknown[]) => unknown>> = {
  thread: {
    open(given) {
      const options = given as StoreThreadOptions;
      try {
        lock = lockState(options.stateDir);
        return openOnFullDisk(options);
      } catch (error) {
        lock?.release();
        lock = undefined;
        throw attempts.failed(options.stateDir, error);
      }
    },
    close() {
      closeStores();
      lock?.release();
    },
  },
};

function perform(call: StoreCall): unknown {
  const run = () => {
    const room = rooms[call.room];
    const method = room?.[call.method];
    if (!room || !method) throw new Error(`the store thread has no ${call.room}.${call.method}`);
    return method.apply(room, call.args);
  };
  const rescue = rescues[call.room];
  return rescue ? rescue.perform(run) : run();
}

function answer(call: StoreCall): StoreAnswer {
  try {
    return { id: call.id, result: perform(call) };
  } catch (error) {
    return { id: call.id, failure: failureOf(error) };
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

parentPort?.on('message', (call: StoreCall) => {
  const message = answer(call);
  parentPort?.postMessage(message, transferOf(message));
});
