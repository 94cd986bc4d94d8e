/**
 * Stores of the agent: the store thread, and the parts of the main thread that commit and read values. Logs the store's
 * reports. Other parts use the stores only through `BufferFlow`, which exists while they are open.
 */
import type { Clock } from '../base/clock.ts';
import { messageOf, type StoreError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import { Committer } from '../buffer/client/committer.ts';
import type { Note } from '../buffer/client/notes.ts';
import { StoredValues, type TrustedTime } from '../buffer/client/stored-values.ts';
import { SeriesCatalogue } from '../buffer/series.ts';
import { minFreeBytes } from '../buffer/space/bounds.ts';
import type { StoreFacts } from '../buffer/store-facts.ts';
import type { ValueStore } from '../buffer/value-store.ts';
import type { Settings } from '../config/settings.ts';
import type { Metrics } from '../ops/metrics.ts';
import { type KeptStamps, Stamps } from '../sources/intake/stamps.ts';
import type { Holder } from '../store/state-lock.ts';
import type { OpenedStore, Remote } from '../store/store-api.ts';
import { StoreClient, type StoreThread } from '../store/store-client.ts';
import type { SetAside } from '../store/store-messages.ts';
import { DropLog, logDamaged, logDropped } from './drop-log.ts';
import { commitPace, maxSeries, storeOptions, storeThreadOptions } from './pace.ts';
import { type AgentStoreApi, agentStoreThread } from './store-worker.ts';

/** Time for which a rejection is reported unless values are accepted earlier. */
const REJECTION_SHOWN_MS = 60_000;

/** Text in `/healthz`, `status` and `doctor`. */
const DISK_FULL =
  'new values are rejected: the disk is full. Accepted values are safe. Free up space on the file system of STATE_DIR, ' +
  'or delete values with `tagferry buffer purge`';

export interface BufferOptions {
  settings: Settings;
  clock: Clock;
  log: Logger;
  metrics: Metrics;
  onDeath: (error: Error) => void;
  /** Corrects timestamps assigned before the clock was set. If unset, timestamps are not changed. */
  trustedTime?: Required<Pick<TrustedTime, 'nowMs' | 'isExpected'>>;
  /** Owner of the state folder lock. Default: the agent. */
  holder?: Holder;
  /** Store thread, if it was launched earlier. */
  storeThread?: StoreThread | undefined;
}

/** Stores before they are opened. */
export class ClosedBuffer {
  readonly #options: BufferOptions;
  readonly #client: StoreClient<AgentStoreApi>;
  readonly #setAside: SetAsideLog;

  constructor(options: BufferOptions) {
    this.#options = options;
    this.#setAside = new SetAsideLog(options.log);
    this.#client = new StoreClient(
      storeThreadOptions(options.settings, options.holder),
      { onDeath: options.onDeath, onSetAside: (store) => this.#setAside.report(store) },
      options.storeThread ?? agentStoreThread(),
    );
  }

  /**
   * Throws `store.locked` if another agent uses the state folder, and `store.unavailable` if the disk rejects writes.
   * After `store.unavailable`, it can be called again; otherwise `stop` must be called.
   */
  async open(): Promise<BufferFlow> {
    const opened = await this.#client.start();
    for (const store of opened.setAside) this.#setAside.report(store);
    if (opened.folderNarrowedFrom !== undefined) {
      this.#options.log.warn(
        { event: 'store.folder_narrowed', mode: opened.folderNarrowedFrom },
        'state folder was writable by other users, changed its mode to 0700',
      );
    }
    const stamps = new Stamps(await readStamps(this.#client.service('values')), opened.clockOffsetMs);
    return new BufferFlow(this.#options, { client: this.#client, setAside: this.#setAside, opened, stamps });
  }

  async stop(): Promise<void> {
    await this.#client.stop();
  }
}

/** Logs corrupt stores, and counts them with damaged rows. */
class SetAsideLog {
  readonly #log: Logger;
  #count = 0;

  constructor(log: Logger) {
    this.#log = log;
  }

  get count(): number {
    return this.#count;
  }

  countRows(): void {
    this.#count++;
  }

  report({ store, file, salvaged }: SetAside): void {
    this.#count++;
    this.#log.error(
      { event: 'store.corrupt', store, setAsideAs: file, ...salvaged },
      'corrupt store set aside, readable data copied to a new store',
    );
  }
}

/** Result of opening the stores. */
interface OpenedParts {
  client: StoreClient<AgentStoreApi>;
  setAside: SetAsideLog;
  opened: OpenedStore;
  stamps: Stamps;
}

/** Open stores. */
export class BufferFlow {
  readonly client: StoreClient<AgentStoreApi>;
  readonly #clock: Clock;
  readonly #log: Logger;
  #settings: Settings;
  readonly #metrics: Metrics;
  #facts: StoreFacts;
  #lastRejectedMs = Number.NEGATIVE_INFINITY;
  #failures = 0;
  /** Whether a limit or a full disk caused the latest failure. */
  #isRejected = false;
  readonly #drops: DropLog;
  readonly #setAside: SetAsideLog;
  readonly #repeats = new Repeats();
  #lastProgressMs: number;
  readonly catalogue: SeriesCatalogue;
  /** Assigns arrival times. */
  readonly stamps: Stamps;
  readonly committer: Committer;
  readonly outgoing: StoredValues;
  readonly values: Remote<AgentStoreApi['values']>;
  readonly operator: Remote<AgentStoreApi['operator']>;
  readonly inbox: Remote<AgentStoreApi['inbox']>;
  readonly access: Remote<AgentStoreApi['access']>;

  constructor(options: BufferOptions, { client, setAside, opened, stamps }: OpenedParts) {
    const { settings, clock, log, metrics, trustedTime } = options;
    this.client = client;
    this.#settings = settings;
    this.#clock = clock;
    this.#log = log;
    this.#metrics = metrics;
    this.#drops = new DropLog(clock);
    this.#setAside = setAside;
    this.#facts = opened.facts;
    this.#lastProgressMs = clock.monotonicMs();
    this.values = client.service('values');
    this.operator = client.service('operator');
    this.inbox = client.service('inbox');
    this.access = client.service('access');
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
    this.outgoing = new StoredValues(this.values, clock, (facts) => this.committer.update(facts), {
      ...(settings.clockUntrusted === 'correct' ? trustedTime : {}),
      restamped: (corrected, doubtful) => {
        metrics.restamped.inc({ outcome: 'corrected' }, corrected);
        metrics.restamped.inc({ outcome: 'doubtful' }, doubtful);
      },
    });
    this.committer.update(opened.facts);
    this.#warnOfBounds(opened.facts);
    const { bytes } = opened.facts.disk;
    const facts = { values: this.bufferedValues, bytes, series: opened.series.length };
    log.info({ event: 'store.opened', ...facts }, 'buffer opened');
  }

  /** Number of corrupt stores. */
  get setAside(): number {
    return this.#setAside.count;
  }

  /** Applies the commit interval and limits after a reload. */
  async reload(settings: Settings): Promise<void> {
    this.#settings = settings;
    this.committer.setPace(commitPace(settings));
    const facts = await this.values.configure(storeOptions(settings));
    this.committer.update(facts);
    this.#warnOfBounds(facts);
  }

  /** Latest report of the store. */
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

  /** BUFFER_MIN_FREE in bytes on the file system of STATE_DIR. */
  get minFreeBytes(): number {
    return minFreeBytes(this.#facts.disk, storeOptions(this.#settings).bounds);
  }

  /** Sentences for `/healthz`; empty while values can be accepted. */
  get problems(): string[] {
    const problems: string[] = [];
    const { failure } = this.committer;
    if (failure) problems.push(`new values are rejected: ${failure.message}`);
    else if (this.#facts.full) problems.push(DISK_FULL);
    else if (this.#clock.monotonicMs() - this.#lastRejectedMs < REJECTION_SHOWN_MS) {
      problems.push('new values are rejected: the buffer is full or the file system is too small');
    }
    return problems;
  }

  /**
   * Whether the store responds and commits. A store on a slow disk counts as alive unless it has not responded for
   * minutes.
   */
  isAlive(nowMs: number, patienceMs: number): boolean {
    if (this.client.pending === 0) this.#lastProgressMs = nowMs;
    return nowMs - this.#lastProgressMs < patienceMs && this.committer.isAlive(nowMs, patienceMs);
  }

  #note(facts: StoreFacts): void {
    this.#lastProgressMs = this.#clock.monotonicMs();
    if (this.#facts.isCarrying && !facts.isCarrying) {
      this.#log.info({ event: 'store.rebuilt' }, 'buffer rebuilt, all readable data copied from the corrupt file');
    }
    this.#facts = facts;
    for (const { reason, values } of facts.dropped) {
      this.#metrics.dropped.inc({ reason }, values);
      this.#drops.note(`dropped ${reason}`, values, logDropped(this.#log, reason));
    }
    for (const { what, values, file, salvaged } of facts.damaged) {
      if (file !== undefined) this.#setAside.report({ store: 'buffer.db', file, salvaged });
      else {
        this.#setAside.countRows();
        this.#drops.note(`damaged ${what}`, values, logDamaged(this.#log, what));
      }
    }
    this.#drops.settle(this.#lastProgressMs);
    this.outgoing.update(facts.lanes);
  }

  #noteCommit(values: number): void {
    this.#metrics.commits.inc({ outcome: 'ok' });
    // Empty commits succeed even while values are rejected, so they do not indicate recovery.
    if (this.#failures === 0 || (values === 0 && this.#isRejected)) return;
    this.#lastRejectedMs = Number.NEGATIVE_INFINITY;
    this.#log.info({ event: 'store.writable', failures: this.#failures }, 'disk writes restored');
    this.#failures = 0;
    this.#repeats.end('');
  }

  #noteFailure(error: StoreError): void {
    const nowMs = this.#clock.monotonicMs();
    this.#isRejected = error.code.startsWith('buffer.');
    this.#metrics.commits.inc({ outcome: this.#isRejected ? 'refused' : 'failed' });
    // The store itself reports a full disk until space is available.
    if (this.#isRejected && error.code !== 'buffer.disk-full') this.#lastRejectedMs = nowMs;
    this.#failures++;
    if (this.#repeats.note(error.code, nowMs) === undefined) return;
    this.#log.error(
      { event: 'store.refused', code: error.code, error: error.message, failures: this.#failures, hint: error.hint },
      'failed to commit, new values rejected',
    );
  }

  #warnOfBounds(facts: StoreFacts): void {
    this.#warnOfSeries();
    const { bufferMaxBytes } = this.#settings;
    const { freeBytes, bytes, totalBytes } = facts.disk;
    // If the size of the file system is unknown, so is the free space.
    const room = Math.max(0, Math.floor(freeBytes + bytes - this.minFreeBytes));
    if (bufferMaxBytes <= room || totalBytes === 0) return;
    this.#log.warn(
      { event: 'buffer.bound_beyond_disk', bufferMaxBytes, availableBytes: room },
      'BUFFER_MAX_BYTES exceeds the available space on the file system of STATE_DIR, minus BUFFER_MIN_FREE',
    );
  }

  #warnOfSeries(): void {
    const { maxSeries: configured } = this.#settings;
    const granted = maxSeries(this.#settings);
    if (configured === undefined || configured <= granted) return;
    this.#log.warn(
      { event: 'buffer.max_series_beyond_memory', maxSeries: configured, granted },
      "MAX_SERIES is too large for the service's memory limit, using the largest value that fits",
    );
  }

  /** Commits pending values and closes the files. */
  async stop(): Promise<void> {
    await this.committer.close().catch((error: unknown) => {
      this.#log.error({ event: 'store.last_commit_failed', error: messageOf(error) }, 'final commit failed');
    });
    this.#drops.settle(Number.POSITIVE_INFINITY);
    await this.client.stop();
  }
}

const NAME = 'stamps';

async function readStamps(store: Pick<Remote<ValueStore>, 'notes'>): Promise<Partial<KeptStamps>> {
  const [note] = await store.notes(NAME);
  if (note?.text === undefined) return {};
  return JSON.parse(note.text) as KeptStamps;
}

/** Returns the notes to store with a commit, or an empty list if they have not changed since the previous call. */
function stampNotes(stamps: Stamps): (wallMs: number) => Note[] {
  let written = '';
  return (wallMs) => {
    const text = JSON.stringify(stamps.kept(wallMs));
    if (text === written) return [];
    written = text;
    return [{ name: NAME, text }];
  };
}
