/**
 * What the store thread answers, as one type: services, their methods, arguments and results. The client offers these methods,
 * answered later, and the thread serves objects that have them: both are checked against it.
 */
import type { Database } from '../base/database.ts';
import type { OperatorCalls } from '../buffer/operator/operator-calls.ts';
import type { Series } from '../buffer/series.ts';
import type { StoreFacts, ValueStoreOptions } from '../buffer/store-facts.ts';
import type { ValueStore } from '../buffer/value-store.ts';
import type { Holder } from './state-lock.ts';
import type { SetAside } from './store-messages.ts';

/** The methods of a class, without the rest of it. */
type MethodsOf<Part> = {
  [Name in keyof Part as Part[Name] extends (...args: never[]) => unknown ? Name : never]: Part[Name];
};

export interface StoreThreadOptions {
  stateDir: string;
  /** Who opens it: a daemon waits for a verb, and for nobody else. */
  holder: Holder;
  values: ValueStoreOptions;
}

export interface OpenedStore {
  series: Series[];
  facts: StoreFacts;
  setAside: SetAside[];
  /** Wall clock minus monotonic clock when the thread opened the store: the clock of doubtful stamps in this run. */
  clockOffsetMs: number;
  /** The mode that STATE_DIR had, where others could write in it. */
  folderNarrowedFrom?: string | undefined;
}

/** The thread itself. */
export interface ThreadCalls {
  open(options: StoreThreadOptions): OpenedStore;
  close(): void;
}

/** What the main thread asks of the values. What opens, hands over and closes a store is the thread's own business. */
type ValueCalls = Omit<MethodsOf<ValueStore>, 'takeOver' | 'handOver' | 'closeOrigins' | 'close'>;

export interface BufferServices {
  values: ValueCalls;
  operator: MethodsOf<OperatorCalls>;
}

/** `Events`: services of the second database, which rooms above this one own. */
export type StoreApi<Events> = { thread: ThreadCalls } & BufferServices & Events;

/** A service of the thread as the main thread sees it: the same methods, answered later. */
export type Remote<Service> = {
  [Name in keyof MethodsOf<Service>]: Service[Name] extends (...args: infer Args) => infer Result
    ? (...args: Args) => Promise<Awaited<Result>>
    : never;
};

/** The second database of the thread, open, with what it serves. */
export interface OpenedEvents<Events> {
  database: Database;
  services: Events;
}

/** How the second database is opened, and begun anew where it is corrupt: handed to the thread by who owns what stands in it. */
export interface EventStoreKind<Events> {
  path(stateDir: string): string;
  /**
   * `hasLostCommits`: its WAL was damaged, so what came last is missing. `before`: what was served until now, where it takes the
   * place of one that was found corrupt while the agent ran.
   */
  open(database: Database, boot: string, after: { hasLostCommits?: boolean; before?: Events }): OpenedEvents<Events>;
  /** Carries what reads of a corrupt one, which is closed, into a new one, before it opens. Gives the rows. */
  carryOver(from: string, into: Database): number;
}
