/** The buffer as a whole: its thread, the gate for values, the view of the uplink, and what it says in the log. */
import type { Clock } from '../base/clock.ts';
import { messageOf, type StoreError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { MemoryLimit } from '../base/memory-limit.ts';
import { Repeats } from '../base/repeats.ts';
import { Committer } from '../buffer/client/committer.ts';
import { SeriesKeeping } from '../buffer/client/series-keeping.ts';
import { StoredValues, type TrustedTime } from '../buffer/client/stored-values.ts';
import { SeriesCatalogue } from '../buffer/series.ts';
import { minFreeBytes } from '../buffer/space/bounds.ts';
import type { StoreFacts } from '../buffer/store-facts.ts';
import type { Settings } from '../config/settings.ts';
import type { Metrics } from '../ops/metrics.ts';
import { Stamps } from '../sources/stamps.ts';
import type { Holder } from '../store/state-lock.ts';
import type { OpenedStore, Remote } from '../store/store-api.ts';
import { StoreClient, type StoreThread } from '../store/store-client.ts';
import type { SetAside } from '../store/store-messages.ts';
import { DropLog, tellDamaged, tellDropped } from './drop-log.ts';
import { readStamps, stampNotes } from './kept-stamps.ts';
import { commitPace, maxSeries, storeOptions, storeThreadOptions } from './pace.ts';
import { type AgentStoreApi, agentStoreThread } from './store-worker.ts';

/** A refusal is shown for so long, or until values are accepted. */
const REFUSAL_SHOWN_MS = 60_000;

/** A line of `/healthz`, `status` and `doctor`. */
const DISK_FULL =
  'new values are not taken in: the disk is full. What was taken is safe. Free space on the file system of STATE_DIR, ' +
  'or delete values with `tagferry buffer purge`';

const REBUILT = 'all that reads of the file that was set aside stands in the new buffer';

export interface BufferOptions {
  settings: Settings;
  clock: Clock;
  log: Logger;
  metrics: Metrics;
  onDeath: (error: Error) => void;
  /** Corrects times that were stamped before. Left out: times leave as they are. */
  trustedTime?: Required<Pick<TrustedTime, 'nowMs' | 'isExpected'>>;
  /** Left out: the daemon. */
  holder?: Holder;
  /** Where the store thread was launched before. */
  storeThread?: StoreThread | undefined;
}

/** The stores before they are open. */
export class ClosedBuffer {
  readonly #options: BufferOptions;
  readonly #client: StoreClient<AgentStoreApi>;
  readonly #setAside: SetAsideLog;

  constructor(options: BufferOptions) {
    this.#options = options;
    this.#setAside = new SetAsideLog(options.log);
    this.#client = new StoreClient(
      storeThreadOptions(options.settings, options.holder),
      { onDeath: options.onDeath, onSetAside: (store) => this.#setAside.tell(store) },
      options.storeThread ?? agentStoreThread(),
    );
  }

  /**
   * Throws `store.locked` where another daemon has the state folder, and `store.unavailable` where the disk does not take writes
   * now: then it may be called again, and `stop` must be otherwise.
   */
  async open(): Promise<BufferFlow> {
    const opened = await this.#client.start();
    for (const store of opened.setAside) this.#setAside.tell(store);
    if (opened.folderNarrowedFrom !== undefined) {
      this.#options.log.warn(
        { event: 'store.folder_narrowed', mode: opened.folderNarrowedFrom },
        "others could write in the state folder: it is now its owner's alone (0700)",
      );
    }
    const stamps = new Stamps(await readStamps(this.#client.service('values')), opened.clockOffsetMs);
    return new BufferFlow(this.#options, { client: this.#client, setAside: this.#setAside, opened, stamps });
  }

  async stop(): Promise<void> {
    await this.#client.stop();
  }
}

/** Tells of stores that were found corrupt, and counts them. */
class SetAsideLog {
  readonly #log: Logger;
  count = 0;

  constructor(log: Logger) {
    this.#log = log;
  }

  tell({ store, file, salvaged }: SetAside): void {
    this.count++;
    this.#log.error(
      { event: 'store.corrupt', store, setAsideAs: file, ...salvaged },
      'a corrupt store was set aside, what could be read was carried over',
    );
  }
}

/** What the opening of the stores gave. */
interface OpenedParts {
  client: StoreClient<AgentStoreApi>;
  setAside: SetAsideLog;
  opened: OpenedStore;
  stamps: Stamps;
}

/** The stores, open. */
export class BufferFlow {
  readonly client: StoreClient<AgentStoreApi>;
  readonly #clock: Clock;
  readonly #log: Logger;
  #settings: Settings;
  readonly #metrics: Metrics;
  #facts: StoreFacts;
  #lastRefusedMs = Number.NEGATIVE_INFINITY;
  #failures = 0;
  /** The last failure was a refusal by a bound or for want of space. */
  #isRefused = false;
  readonly #drops: DropLog;
  readonly #setAside: SetAsideLog;
  readonly #repeats = new Repeats();
  #lastProgressMs: number;
  readonly catalogue: SeriesCatalogue;
  /** The one gate that gives times of arrival. */
  readonly stamps: Stamps;
  readonly committer: Committer;
  readonly outgoing: StoredValues;
  readonly #series: SeriesKeeping;
  readonly #memory: MemoryLimit;
  /** Whether a series is kept though nothing stands of it: those that tags.yaml names. */
  isKept: (series: number) => boolean = () => true;
  readonly values: Remote<AgentStoreApi['values']>;
  readonly operator: Remote<AgentStoreApi['operator']>;
  readonly inbox: Remote<AgentStoreApi['inbox']>;
  readonly holds: Remote<AgentStoreApi['holds']>;
  readonly objects: Remote<AgentStoreApi['objects']>;

  constructor(options: BufferOptions, { client, setAside, opened, stamps }: OpenedParts) {
    const { settings, clock, log, metrics, trustedTime } = options;
    this.client = client;
    this.#settings = settings;
    this.#clock = clock;
    this.#memory = new MemoryLimit(clock);
    this.#log = log;
    this.#metrics = metrics;
    this.#drops = new DropLog(clock);
    this.#setAside = setAside;
    this.#facts = opened.facts;
    this.#lastProgressMs = clock.monotonicMs();
    this.values = client.service('values');
    this.operator = client.service('operator');
    this.inbox = client.service('inbox');
    this.holds = client.service('holds');
    this.objects = client.service('objects');
    this.catalogue = new SeriesCatalogue(opened.series);
    this.stamps = stamps;
    this.committer = new Committer(this.values, {
      clock,
      catalogue: this.catalogue,
      ...commitPace(settings),
      onFacts: (facts) => this.#note(facts),
      onFailure: (error) => this.#noteFailure(error),
      onCommit: (values) => this.#noteCommit(values),
      onEarly: () => metrics.earlyCommits.inc({}),
      notesOf: stampNotes(stamps),
    });
    this.#series = new SeriesKeeping({
      port: this.values,
      catalogue: this.catalogue,
      committer: this.committer,
      clock,
      isKept: (series) => this.isKept(series),
      onForgotten: (series) => stamps.forget(series),
    });
    this.outgoing = new StoredValues(this.values, clock, (facts) => this.committer.note(facts), {
      ...(settings.clockUntrusted === 'correct' ? trustedTime : {}),
      restamped: (corrected, doubtful) => {
        metrics.restamped.inc({ outcome: 'corrected' }, corrected);
        metrics.restamped.inc({ outcome: 'doubtful' }, doubtful);
      },
    });
    this.committer.note(opened.facts);
    this.#warnOfBounds(opened.facts);
    const { bytes } = opened.facts.disk;
    const facts = { values: this.bufferedValues, bytes, series: opened.series.length };
    log.info({ event: 'store.opened', ...facts }, 'the buffer is open');
  }

  /** Stores that were found corrupt. */
  get setAside(): number {
    return this.#setAside.count;
  }

  /** After a reload: the pace of commits, and the bounds. */
  async reload(settings: Settings): Promise<void> {
    this.#settings = settings;
    this.committer.setPace(commitPace(settings));
    const facts = await this.values.configure(storeOptions(settings));
    this.committer.note(facts);
    this.#warnOfBounds(facts);
  }

  /** The store's latest word. */
  get facts(): StoreFacts {
    return this.#facts;
  }

  get oldestAgeMs(): number {
    const { oldestAcceptedMs } = this.#facts;
    return oldestAcceptedMs === undefined ? 0 : Math.max(0, this.#clock.monotonicMs() - oldestAcceptedMs);
  }

  get bufferedValues(): number {
    return this.#facts.logValues + this.#facts.segmentValues;
  }

  /** BUFFER_MIN_FREE in bytes of the file system of STATE_DIR. */
  get minFreeBytes(): number {
    return minFreeBytes(this.#facts.disk, storeOptions(this.#settings).bounds);
  }

  /** Sentences for `/healthz`; empty where values can be taken in. */
  get problems(): string[] {
    const problems: string[] = [];
    const { failure } = this.committer;
    if (failure) problems.push(`new values are not taken in: ${failure.message}`);
    else if (this.#facts.full) problems.push(DISK_FULL);
    else if (this.#clock.monotonicMs() - this.#lastRefusedMs < REFUSAL_SHOWN_MS) {
      problems.push('new values are refused: the buffer is full or the file system too small');
    }
    return problems;
  }

  /** Whether the store answers and what waits is committed: a slow disk is no dead thread, but one without an answer for minutes is. */
  isAlive(nowMs: number, patienceMs: number): boolean {
    if (this.client.pending === 0) this.#lastProgressMs = nowMs;
    return nowMs - this.#lastProgressMs < patienceMs && this.committer.isAlive(nowMs, patienceMs);
  }

  #note(facts: StoreFacts): void {
    this.#lastProgressMs = this.#clock.monotonicMs();
    if (this.#facts.isCarrying && !facts.isCarrying) this.#log.info({ event: 'store.rebuilt' }, REBUILT);
    this.#facts = facts;
    for (const { reason, values } of facts.dropped) {
      this.#metrics.dropped.inc({ reason }, values);
      this.#drops.note(`dropped ${reason}`, values, tellDropped(this.#log, reason));
    }
    for (const { what, values, file, salvaged } of facts.damaged) {
      this.#setAside.count++;
      if (file === undefined) {
        this.#drops.note(`damaged ${what}`, values, tellDamaged(this.#log, what));
      } else {
        const words = 'the buffer was found corrupt: it was set aside, what could be read was carried over';
        this.#log.error({ event: 'store.corrupt', store: 'buffer.db', setAsideAs: file, ...salvaged }, words);
      }
    }
    this.#drops.settle(this.#lastProgressMs);
    this.outgoing.update(facts.lanes);
    this.#keepSeries();
  }

  #keepSeries(): void {
    if (this.catalogue.size <= maxSeries(this.#settings, this.#memory.bytes()) / 2) return;
    this.#series.keep().then(
      (forgotten) => {
        if (forgotten === 0) return;
        const facts = { event: 'buffer.series_forgotten', forgotten, series: this.catalogue.size };
        this.#log.debug(facts, 'series without values were forgotten');
      },
      // A store that does not answer says so by itself.
      () => {},
    );
  }

  #noteCommit(values: number): void {
    this.#metrics.commits.inc({ outcome: 'ok' });
    // What was settled or deleted is written while values are refused: that ends nothing.
    if (this.#failures === 0 || (values === 0 && this.#isRefused)) return;
    this.#lastRefusedMs = Number.NEGATIVE_INFINITY;
    this.#log.info({ event: 'store.writable', failures: this.#failures }, 'the disk takes writes again');
    this.#failures = 0;
    this.#repeats.end('');
  }

  #noteFailure(error: StoreError): void {
    const nowMs = this.#clock.monotonicMs();
    this.#isRefused = error.code.startsWith('buffer.');
    this.#metrics.commits.inc({ outcome: this.#isRefused ? 'refused' : 'failed' });
    // A full disk is told by the store itself, until there is room again.
    if (this.#isRefused && error.code !== 'buffer.disk-full') this.#lastRefusedMs = nowMs;
    this.#failures++;
    if (this.#repeats.note(error.code, nowMs) === undefined) return;
    this.#log.error(
      { event: 'store.refused', code: error.code, error: error.message, failures: this.#failures, hint: error.hint },
      'new values are not taken in',
    );
  }

  #warnOfBounds(facts: StoreFacts): void {
    this.#warnOfSeries();
    const { bufferMaxBytes } = this.#settings;
    const { freeBytes, bytes, totalBytes } = facts.disk;
    // A file system that does not say how large it is does not say what is free either.
    const room = Math.max(0, Math.floor(freeBytes + bytes - this.minFreeBytes));
    if (bufferMaxBytes <= room || totalBytes === 0) return;
    this.#log.warn(
      { event: 'buffer.bound_beyond_disk', bufferMaxBytes, availableBytes: room },
      'BUFFER_MAX_BYTES does not fit on the file system of STATE_DIR beside what BUFFER_MIN_FREE keeps free',
    );
  }

  #warnOfSeries(): void {
    const wanted = this.#settings.maxSeries;
    const granted = maxSeries(this.#settings);
    if (wanted === undefined || wanted <= granted) return;
    this.#log.warn(
      { event: 'buffer.max_series_beyond_memory', maxSeries: wanted, granted },
      'MAX_SERIES is more than the memory of the unit has room for: programs may open as many as it has',
    );
  }

  /** Commits what waits, then closes the files. */
  async stop(): Promise<void> {
    await this.committer.close().catch((error: unknown) => {
      this.#log.error({ event: 'store.last_commit_failed', error: messageOf(error) }, 'the last commit failed');
    });
    this.#drops.settle(Number.POSITIVE_INFINITY);
    await this.client.stop();
  }
}
