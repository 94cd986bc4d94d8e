/**
 * The store thread: all SQLite of the agent, so that a disk that stalls for a second stalls nothing else. This file is
 * wiring alone; what runs here lives with its subject. Calls come in order and are answered in order.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parentPort } from 'node:worker_threads';
import { HoldTable } from '../access/hold-table.ts';
import { type Salvage, salvage } from '../buffer/salvage.ts';
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
  saysCorrupt,
  setAsideDatabase,
  setAsideWal,
} from '../database.ts';
import { StoreError } from '../errors.ts';
import { Inbox } from '../webhook/inbox.ts';
import { WATERMARK_NOTE } from '../webhook/watermark.ts';
import { lockState, type StateLock } from './state-lock.ts';
import { failureOf, type StoreAnswer, type StoreCall } from './store-messages.ts';

export interface StoreThreadOptions {
  stateDir: string;
  values: ValueStoreOptions;
}

/** A store that was corrupt and stands aside now. */
export interface SetAside {
  store: string;
  file: string;
  /** What could be carried over. */
  salvaged: Salvage | undefined;
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

/** Opens a database and what lives in it; one that is corrupt is set aside, and `make` runs once more on a new one. */
function openOrSetAside<Store>(
  path: string,
  setAside: SetAside[],
  make: (database: Database) => Store,
  carryOver?: (from: string, into: Database) => SetAside['salvaged'],
): Store {
  let database: Database | undefined;
  try {
    if (carryOver && walLostCommits(path, PAGE_BYTES)) throw corruptWal(path);
    database = openDatabase(path);
    return make(database);
  } catch (error) {
    if (!saysCorrupt(error)) {
      database?.close();
      throw error;
    }
    if (database) closeUntouched(database, path);
  }
  const file = setAsideDatabase(path, systemClock.wallMs());
  const fresh = openDatabase(path);
  setAside.push({ store: path, file, salvaged: carryOver?.(file, fresh) });
  return make(fresh);
}

let lock: StateLock | undefined;
let current: { database: Database; store: ValueStore; options: StoreThreadOptions } | undefined;
/** The buffer was found corrupt and no other could be opened yet: tried again with the next call. */
let mustRescue = false;
let rescues = 0;
/** A disk that garbles everything is for the service manager, and for people: no loop of salvages. */
const MOST_RESCUES = 5;

/**
 * The buffer was found corrupt while the agent runs. The same is done as at a start: its file is set aside, what reads is
 * carried over, a new store goes on. What was pending in memory is forgotten, as by a crash: it is posted or folded again.
 */
function rescueValues(): void {
  if (!current) return;
  mustRescue = true;
  const path = join(current.options.stateDir, 'buffer.db');
  const handover = current.store.handOver();
  if (current.database.open) closeUntouched(current.database, path);
  const file = setAsideDatabase(path, systemClock.wallMs());
  const database = openDatabase(path);
  const salvaged = salvage(file, database, new SeriesCopy(path), handover.series);
  const store = new ValueStore(database, path, handover.options);
  const damage = { what: 'database', values: 0, file, salvaged };
  const { facts } = store.open({ ...timeNow(), boot: bootId() });
  // What opening found goes to the main thread with the next answer.
  store.takeOver({ ...handover, damage: [damage, ...facts.damaged] });
  current = { ...current, database, store };
  rooms.values = store as never;
  mustRescue = false;
}

const timeNow = () => ({ monotonicMs: systemClock.monotonicMs(), wallMs: systemClock.wallMs() });

const databases: Database[] = [];
const rooms: Record<string, Record<string, (...args: unknown[]) => unknown>> = {
  thread: {
    open(given) {
      const options = given as StoreThreadOptions;
      const { stateDir, values } = options;
      lock = lockState(stateDir);
      const setAside: SetAside[] = [];
      const boot = bootId();
      const now = { ...timeNow(), boot };
      const buffer = join(stateDir, 'buffer.db');
      const opened = openOrSetAside(
        buffer,
        setAside,
        (database) => {
          const store = new ValueStore(database, buffer, values);
          const result = store.open(now);
          current = { database, store, options };
          rooms.values = store as never;
          return result;
        },
        (from, into) => salvage(from, into, new SeriesCopy(buffer)),
      );
      const events = join(stateDir, 'inbox.db');
      const lostEvents = walLostCommits(events, PAGE_BYTES);
      if (lostEvents) setAside.push({ store: events, file: setAsideWal(events, now.wallMs), salvaged: undefined });
      openOrSetAside(events, setAside, (database) => {
        const inbox = new Inbox(database, systemClock);
        inbox.open(boot);
        // The platform has them still, and those that are here are known.
        if (lostEvents) inbox.setNote(WATERMARK_NOTE, '');
        const holds = new HoldTable(database);
        holds.open();
        databases.push(database);
        rooms.inbox = inbox as never;
        rooms.holds = holds as never;
      });
      return { ...opened, setAside } satisfies OpenedStore;
    },
    close() {
      current?.database.close();
      for (const database of databases.splice(0)) database.close();
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
  try {
    return run();
  } catch (error) {
    if (call.room !== 'values' || !saysCorrupt(error) || ++rescues > MOST_RESCUES) throw error;
    rescueValues();
    return run();
  }
}

function answer(call: StoreCall): StoreAnswer {
  try {
    if (call.room === 'values' && mustRescue) rescueValues();
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
