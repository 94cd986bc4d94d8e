/**
 * Services of the store thread with their methods. The client offers the same methods as promises; both sides are
 * checked against this type.
 */
import type { Database } from '../base/database.ts';
import type { OperatorCalls } from '../buffer/operator/operator-calls.ts';
import type { Series } from '../buffer/series.ts';
import type { StoreFacts, ValueStoreOptions } from '../buffer/store-facts.ts';
import type { ValueStore } from '../buffer/value-store.ts';
import type { Holder } from './state-lock.ts';
import type { SetAside } from './store-messages.ts';

type MethodsOf<Part> = {
  [Name in keyof Part as Part[Name] extends (...args: never[]) => unknown ? Name : never]: Part[Name];
};

export interface StoreThreadOptions {
  stateDir: string;
  /** Kind of process that opens the folder. Only an agent waits for a command. */
  holder: Holder;
  values: ValueStoreOptions;
}

export interface OpenedStore {
  series: Series[];
  facts: StoreFacts;
  setAside: SetAside[];
  /** Wall clock minus monotonic clock when the thread opened the store, in milliseconds. */
  clockOffsetMs: number;
  /** Previous mode of STATE_DIR if other users could write to it. */
  folderNarrowedFrom?: string | undefined;
}

export interface ThreadCalls {
  open(options: StoreThreadOptions): OpenedStore;
  close(): void;
}

/** Methods of the value store that the main thread can call. */
type ValueCalls = Omit<MethodsOf<ValueStore>, 'takeOver' | 'handOver' | 'closeOldFiles' | 'close'>;

export interface BufferServices {
  values: ValueCalls;
  operator: MethodsOf<OperatorCalls>;
}

/** `Events` are the services of the second database, which is owned by higher-level modules. */
export type StoreApi<Events> = { thread: ThreadCalls } & BufferServices & Events;

/** A service as seen by the main thread: the same methods, returning promises. */
export type Remote<Service> = {
  [Name in keyof MethodsOf<Service>]: Service[Name] extends (...args: infer Args) => infer Result
    ? (...args: Args) => Promise<Awaited<Result>>
    : never;
};

export interface OpenedEvents<Events> {
  database: Database;
  services: Events;
}

/**
 * Functions that open the second database and replace a corrupt one. Passed in by the module that owns the contents.
 */
export interface EventStoreKind<Events> {
  path(stateDir: string): string;
  /**
   * `hasLostCommits` means that the WAL was damaged, so the latest commits are missing. `before` contains the services
   * of the corrupt database that this one replaces.
   */
  open(database: Database, boot: string, after: { hasLostCommits?: boolean; before?: Events }): OpenedEvents<Events>;
  /** Copies readable rows of the closed, corrupt database at `from` into a new one. Returns the number of rows. */
  carryOver(from: string, into: Database): number;
}
