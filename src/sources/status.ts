/**
 * State of one source: its connection, its values and the data that could not be used. The source sets its connection,
 * problem and counters; the gate records readings and failures. `sources ls`, `status`, `doctor`, metrics, `/healthz` and
 * the page show the report.
 */
import { counted, countText } from '../base/amounts.ts';
import type { CertificateInUse, Certificates } from '../base/certificates.ts';
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';
import type { BrokerState } from '../broker/broker-client.ts';
import type { STATUS_FLAGS } from '../buffer/format/value-columns.ts';
import type { NoMeasurement, RawReading } from './intake/shaping.ts';
import { TroubleLog, USABLE_MS } from './intake/trouble-log.ts';
import type { Point } from './points.ts';

export interface SourceReport {
  name: string;
  kind: string;
  /** `null` if the source does not use a connection. */
  connected: boolean | null;
  /** Time since the latest connect or disconnect. */
  since_seconds: number;
  problem: string | null;
  hint: string | null;
  /** Whether the source has not sent a value within the expected time. Cleared by the next value. */
  silent: boolean;
  /** Time since the latest reading, or since the source was opened. */
  silent_seconds: number;
  /** Data that arrives but has not yielded a value for a long time; `null` if values arrive or no data does. */
  unusable: { readings: number; since_seconds: number; problem: string } | null;
  /** Readings, messages, lines and rows without a usable value since startup, with the latest problem. */
  rejected: CountedReport | null;
  /** Warnings about accepted values, by event, with the latest problem. */
  warnings: readonly (CountedReport & { event: string; message: string })[];
  /** Number of configured values. */
  values: number;
  /** Values that have not arrived since the source was opened; `null` if none is missing. */
  missing: MissingReport | null;
  /** Number of values written to disk since startup. */
  stored: number;
  last_value_seconds_ago: number | null;
  waiting_for_commit: number;
  errors: number;
  polls_late: number;
  window: { used: number; size: number | null } | null;
  /** Number of accepted messages that the broker had delivered before. */
  redelivered: { taken: number } | null;
  /** Earliest expiry of the client and server certificates, ISO 8601. */
  certificate_expires: string | null;
}

/** Number of occurrences, and the latest problem. */
interface CountedReport {
  count: number;
  problem: string;
  seconds_ago: number;
}

export interface MissingReport {
  values: number;
  /**
   * The first five missing values, with their display names. `problem`: problem with the latest unreadable data; `null`
   * if no data has arrived.
   */
  first: readonly { name: string; problem: string | null }[];
  since_seconds: number;
  /**
   * Whether the values should have arrived by now. Polled values are expected immediately, other values within 15
   * minutes.
   */
  overdue: boolean;
}

/** A reading as it arrived, for `sources test` and for the verification of writes. */
export interface ObservedReading {
  point: Point;
  /** Before mapping and scaling. */
  raw?: RawReading | undefined;
  /** After mapping and scaling; unset if the reading has no value. */
  value?: number;
  timeMs?: number | undefined;
  quality?: keyof typeof STATUS_FLAGS | undefined;
  /** Problem with the timestamp of a value that was read. */
  warning?: string | undefined;
  /** Reason why the reading has no value. */
  problem?: string | undefined;
  hint?: string | undefined;
}

export interface SourceStatusOptions {
  name: string;
  kind: string;
  points: readonly Point[];
  /** Whether every poll returns a value. If a source reports only changes, silence is not a failure. */
  isPolled: boolean;
  clock: Clock;
  log: Logger;
}

/** State of one value. */
interface PointState {
  /** Latest value received since the source was opened, whether sent or suppressed by the dead band. */
  latest: number | undefined;
  /** Readings without a value since the latest one with a value, with the latest problem. */
  failures: number;
  problem: string | undefined;
  /** Reason why a reading was not a measurement, until its recovery is logged. */
  fault: NoMeasurement | undefined;
}

const MINUTE_MS = 60_000;
/** Number of missed poll intervals after which a polled source is considered silent. */
const SILENT_POLLS = 3;
/**
 * If a source is not polled, its first value is expected within this time after startup, and then one value per day.
 */
const FIRST_VALUE_MS = 15 * MINUTE_MS;
const NEXT_VALUE_MS = 24 * 60 * MINUTE_MS;
/** Grace period for the first value. For polled values, three poll intervals are added to it. */
const GRACE_MS = 20_000;
const GRACE_POLLS = 3;
const MISSING_SHOWN = 5;
const NOT_READ = 'not read';
/** Log messages by fault. */
const NO_MEASUREMENT: Readonly<Record<NoMeasurement, { reported: string; restored: string }>> = {
  not_a_number: { reported: 'reading is not a number or not in map', restored: 'usable readings restored' },
  no_value: { reported: 'reading means "no value"', restored: 'readings restored' },
  out_of_range: { reported: 'reading out of range', restored: 'in-range readings restored' },
};
/** Data is reported as unusable after this time without a value. */
const UNUSABLE_MS = 15 * MINUTE_MS;
/** Minimum number of readings after which the shorter limit applies. */
const MANY_READINGS = 100;
const UNUSABLE_MANY_MS = MINUTE_MS;

/** Warnings about accepted values: log event and message. */
const WARNINGS = {
  timeReplaced: { event: 'source.time_replaced', message: 'implausible timestamp replaced with the arrival time' },
  timeAhead: { event: 'source.time_ahead', message: 'timestamp ahead of the arrival time' },
  zoneMissing: { event: 'source.zone_missing', message: 'timestamp without a UTC offset is probably local time' },
  zoneWrong: { event: 'source.zone_wrong', message: 'local time that does not exist in the time zone of the source' },
  sameTime: { event: 'source.same_time', message: 'duplicate timestamps, the platform keeps only one value' },
  revised: { event: 'opcua.revised', message: 'server samples more slowly or queues less than configured' },
} as const;

type SourceWarning = keyof typeof WARNINGS;
type Counted = Omit<CountedReport, 'seconds_ago'> & { atMs: number };

/** Times are monotonic unless stated otherwise. */
export class SourceStatus {
  readonly name: string;
  readonly kind: string;
  readonly #options: SourceStatusOptions;
  #trouble: TroubleLog;
  readonly #openedMs: number;
  points: readonly Point[];

  /** `undefined` if the source does not use a connection. */
  connected: boolean | undefined;
  /** Time of the latest connect or disconnect. */
  sinceMs: number;
  /** Reason for the disconnection, or the latest problem: a code or a short message. */
  problem: string | undefined;
  hint: string | undefined;
  /** Number of failed connections, and of reads and messages without a usable value. */
  errors = 0;
  /** Number of polls that did not run when they were due. */
  pollsLate = 0;
  /** Earliest expiry of the client and server certificates, according to the wall clock. */
  certificateEndsMs: number | undefined;
  /** Broker whose connection the source uses. */
  broker: { state(): BrokerState } | undefined;

  /** Number of values on disk, and the time of the latest commit. */
  stored = 0;
  lastStoredMs: number | undefined;
  /** Time of the latest valid reading, whether sent or suppressed by the dead band. */
  lastAcceptedMs: number | undefined;

  /** By series. */
  readonly #states = new Map<number, PointState>();
  readonly #listeners = new Set<(reading: ObservedReading) => void>();
  #rejected: Counted | undefined;
  readonly #warnings = new Map<SourceWarning, Counted>();
  /** Data that arrived since the latest value without yielding one. */
  #useless: { readings: number; sinceMs: number; problem: string; isReported: boolean } | undefined;

  constructor(options: SourceStatusOptions) {
    const { name, points, clock, log } = options;
    this.name = name;
    this.kind = options.kind;
    this.points = points;
    this.#options = options;
    this.#openedMs = this.sinceMs = clock.monotonicMs();
    this.#trouble = new TroubleLog(log, clock, 'values');
  }

  /**
   * Continues the counters, warnings and repeated log entries of the source that this one replaces after a reload.
   * `isSameDevice`: whether the source itself is unchanged, so that unchanged values keep their state.
   */
  continue(previous: SourceStatus, isSameDevice: boolean): void {
    this.#trouble = previous.#trouble;
    this.errors = previous.errors;
    this.pollsLate = previous.pollsLate;
    this.stored = previous.stored;
    this.lastStoredMs = previous.lastStoredMs;
    this.#rejected = previous.#rejected;
    for (const [kind, warning] of previous.#warnings) this.#warnings.set(kind, warning);
    if (!isSameDevice) return;
    this.lastAcceptedMs = previous.lastAcceptedMs;
    const unchanged = new Set(previous.points.map((point) => JSON.stringify(point)));
    for (const point of this.points) {
      const state = previous.#states.get(point.series);
      if (state !== undefined && unchanged.has(JSON.stringify(point))) this.#states.set(point.series, state);
    }
  }

  /** Records that the device, server or program responds. Clears the problem. */
  connect(): void {
    this.#setConnected(true, undefined, undefined);
  }

  disconnect(problem?: string, hint?: string): void {
    this.#setConnected(false, problem, hint);
  }

  #setConnected(connected: boolean, problem: string | undefined, hint: string | undefined): void {
    if (this.connected !== connected) this.sinceMs = this.#options.clock.monotonicMs();
    this.connected = connected;
    this.problem = problem;
    this.hint = hint;
  }

  /** Calls the listener for each reading. Returns a function that removes the listener. */
  listen(listener: (reading: ObservedReading) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #stateOf(series: number): PointState {
    let state = this.#states.get(series);
    if (state === undefined) {
      state = { latest: undefined, failures: 0, problem: undefined, fault: undefined };
      this.#states.set(series, state);
    }
    return state;
  }

  /** Records a reading with a number. `value`: number after scaling. */
  recordNumber(reading: Omit<ObservedReading, 'value'>, value: number, nowMs: number): void {
    const { series, name } = reading.point;
    const state = this.#stateOf(series);
    state.latest = value;
    state.failures = 0;
    state.problem = undefined;
    this.recordValues(nowMs);
    for (const listener of this.#listeners) listener({ ...reading, value });
    const { fault } = state;
    if (fault === undefined) return;
    const fields = { source: this.name, value: name };
    const { restored } = NO_MEASUREMENT[fault];
    const isOver = this.#trouble.recovered(`source.${fault}`, fields, restored, name, USABLE_MS);
    if (isOver) state.fault = undefined;
  }

  latestOf(series: number): number | undefined {
    return this.#states.get(series)?.latest;
  }

  /**
   * Records that a value could not be read. `problem`: the problem with the data; `undefined` if none arrived. `count`:
   * number of readings; 0 if the data contains other values.
   */
  recordFailure(
    point: Point,
    problem: string | undefined,
    details: Pick<ObservedReading, 'raw' | 'hint'> = {},
    count = 1,
  ): void {
    const silence = { point, problem: this.problem ?? NOT_READ, hint: this.hint };
    const reading = problem === undefined ? silence : { point, problem, ...details };
    for (const listener of this.#listeners) listener(reading);
    if (problem === undefined) return;
    const state = this.#stateOf(point.series);
    state.failures += count;
    state.problem = problem;
    if (count > 0) this.#recordUseless(problem, count);
  }

  /** Counts and logs readings that are not measurements. */
  reportNoMeasurement({ series, name }: Point, error: string, fault: NoMeasurement, count = 1): void {
    this.errors += count;
    this.#stateOf(series).fault = fault;
    this.recordRejected(`${name}: ${error}`, count);
    const fields = { source: this.name, value: name, error };
    this.#trouble.report({ event: `source.${fault}`, ...fields }, NO_MEASUREMENT[fault].reported, name);
  }

  /** Records that data yielded values. */
  recordValues(nowMs: number): void {
    this.lastAcceptedMs = nowMs;
    if (this.#useless?.isReported)
      this.#trouble.recovered('source.unusable', { source: this.name }, 'usable values restored');
    this.#useless = undefined;
  }

  /** Records lines, rows or files without a usable value. `problem` contains an example. */
  reject(problem: string, count = 1): void {
    this.recordRejected(problem, count);
    this.#recordUseless(problem, count);
  }

  /** Records the rejection of a value with an implausible timestamp. */
  rejectTime(point: Point, problem: string): void {
    this.errors++;
    this.recordFailure(point, problem);
    this.recordRejected(`${point.name}: ${problem}`);
    const fields = { event: 'source.time_rejected', source: this.name, value: point.name, error: problem };
    this.#trouble.report(fields, 'value with an implausible timestamp rejected', point.name);
  }

  /** Records a warning about accepted values. `problem` contains an example. `value`: name of the value, if known. */
  warn(kind: SourceWarning, problem: string, count = 1, value = ''): void {
    this.#warnings.set(kind, this.#counted(this.#warnings.get(kind), problem, count));
    const { message, ...event } = WARNINGS[kind];
    this.#trouble.report({ ...event, source: this.name, error: problem }, message, value);
  }

  /** Records a warning that lasts until this is called without a problem. */
  warnWhile(kind: SourceWarning, problem: string | undefined): void {
    if (this.#warnings.get(kind)?.problem === problem) return;
    this.#warnings.delete(kind);
    if (problem === undefined) return;
    this.warn(kind, problem);
    this.#warnings.get(kind)!.atMs = Number.POSITIVE_INFINITY;
  }

  /** Records messages or readings without a usable value, whose values are recorded with `recordFailure`. */
  recordRejected(problem: string, count = 1): void {
    this.#rejected = this.#counted(this.#rejected, problem, count);
  }

  #counted(previous: Counted | undefined, problem: string, count: number): Counted {
    return { count: (previous?.count ?? 0) + count, problem, atMs: this.#options.clock.monotonicMs() };
  }

  #recordUseless(problem: string, count: number): void {
    const nowMs = this.#options.clock.monotonicMs();
    this.#useless ??= { readings: 0, sinceMs: nowMs, problem, isReported: false };
    const useless = this.#useless;
    useless.readings += count;
    useless.problem = problem;
    const limitMs = useless.readings >= MANY_READINGS ? UNUSABLE_MANY_MS : UNUSABLE_MS;
    if (useless.isReported || nowMs - useless.sinceMs < limitMs) return;
    useless.isReported = true;
    const fields = { source: this.name, readings: useless.readings, error: problem };
    this.#trouble.report({ event: 'source.unusable', ...fields }, 'source provides data but no values');
  }

  /** Returns the problem with the data that arrived since the latest reading of a value, and how often it occurred. */
  unreadTextOf({ series }: Pick<Point, 'series'>): string | undefined {
    const { failures = 0, problem } = this.#states.get(series) ?? {};
    return failures > 1 ? `${counted(failures, 'reading')} without a value, latest problem: ${problem}` : problem;
  }

  /** `waiting`: number of values waiting for the disk. */
  report(waiting: number): SourceReport {
    const nowMs = this.#options.clock.monotonicMs();
    const secondsSince = (ms: number) => Math.max(0, Math.round((nowMs - ms) / 1_000));
    const shown = ({ count, problem, atMs }: Counted) => ({ count, problem, seconds_ago: secondsSince(atMs) });
    const broker = this.broker?.state();
    const { connected = null, sinceMs, certificateEndsMs } = broker ?? this;
    const { problem = null, hint = null } = broker?.problem === undefined ? this : broker;
    const acceptedMs = this.lastAcceptedMs ?? this.#openedMs;
    const { isReported = false, readings = 0, sinceMs: uselessMs = 0, problem: useless = '' } = this.#useless ?? {};
    return {
      name: this.name,
      kind: this.kind,
      connected,
      since_seconds: secondsSince(sinceMs),
      problem,
      hint,
      silent: this.#isSilent(nowMs - acceptedMs, connected === false ? nowMs - sinceMs : 0),
      silent_seconds: secondsSince(acceptedMs),
      unusable: isReported ? { readings, since_seconds: secondsSince(uselessMs), problem: useless } : null,
      rejected: this.#rejected ? shown(this.#rejected) : null,
      warnings: [...this.#warnings].map(([kind, warning]) => ({ ...WARNINGS[kind], ...shown(warning) })),
      values: this.points.length,
      missing: this.#missingReport(nowMs - this.#openedMs),
      stored: this.stored,
      last_value_seconds_ago: this.lastStoredMs === undefined ? null : secondsSince(this.lastStoredMs),
      waiting_for_commit: waiting,
      errors: this.errors + (broker ? broker.failures + broker.discarded : 0),
      polls_late: this.pollsLate,
      window: broker ? { used: broker.window.used, size: broker.window.size ?? null } : null,
      redelivered: broker ? { taken: broker.redelivered } : null,
      certificate_expires: certificateEndsMs === undefined ? null : new Date(certificateEndsMs).toISOString(),
    };
  }

  /** Whether every value is read at an interval, so that one failed read is a result. */
  get isPolled(): boolean {
    return this.#pollIntervalMs() > 0;
  }

  #isSilent(silentMs: number, disconnectedMs: number): boolean {
    const everyMs = this.#pollIntervalMs();
    if (everyMs > 0) return silentMs > Math.max(MINUTE_MS, SILENT_POLLS * everyMs);
    // A broker without values is used only by `publish` and must be connected.
    if (disconnectedMs > MINUTE_MS) return true;
    return this.points.length > 0 && silentMs > (this.lastAcceptedMs === undefined ? FIRST_VALUE_MS : NEXT_VALUE_MS);
  }

  /** Returns the shortest poll interval in milliseconds, or 0 if the source determines when it sends values. */
  #pollIntervalMs(): number {
    if (!this.#options.isPolled) return 0;
    const minimumMs = Math.min(...this.points.map(({ everyMs }) => everyMs).filter((ms) => ms > 0));
    return Number.isFinite(minimumMs) ? minimumMs : 0;
  }

  #missingReport(openMs: number): MissingReport | null {
    if (openMs < GRACE_MS) return null;
    const missing = this.points.filter(
      ({ everyMs, series }) => openMs >= GRACE_POLLS * everyMs && this.latestOf(series) === undefined,
    );
    if (missing.length === 0) return null;
    const shown = missing.slice(0, MISSING_SHOWN);
    return {
      values: missing.length,
      first: shown.map((point) => ({ name: point.name, problem: this.unreadTextOf(point) ?? null })),
      since_seconds: Math.round(openMs / 1_000),
      overdue: this.isPolled || openMs > FIRST_VALUE_MS,
    };
  }
}

/** Returns the certificates used by sources and other components, earliest expiry first. */
export function certificatesInUse(others: Certificates, reports: readonly SourceReport[]): CertificateInUse[] {
  const ofSources = reports.flatMap(({ name, certificate_expires: expires }) =>
    expires === null ? [] : [{ use: `source ${name}`, endsMs: Date.parse(expires) }],
  );
  return [...others.list(), ...ofSources].sort((a, b) => a.endsMs - b.endsMs);
}

/** Describes rejected data, for example `12 rejected, latest: line 3: …`. */
export function rejectedText({ count, problem }: NonNullable<SourceReport['rejected']>): string {
  return count === 1 ? `rejected: ${problem}` : `${countText(count)} rejected, latest: ${problem}`;
}

/** Example: `implausible timestamp replaced with the arrival time (3 times), latest: …` */
export function warningText({ message, count, problem }: SourceReport['warnings'][number]): string {
  return count === 1 ? `${message}: ${problem}` : `${message} (${countText(count)} times), latest: ${problem}`;
}

/** Describes data that does not yield values, for example `no value in the latest 120 readings: …`. */
export function unusableText({ readings, problem }: NonNullable<SourceReport['unusable']>): string {
  return `no value in the latest ${counted(readings, 'reading')}, latest problem: ${problem}`;
}

/** Example: `no value yet for FT-101 flow, …` */
export function missingText({ values, first }: MissingReport): string {
  const names = first.map(({ name, problem }) => (problem === null ? name : `${name} (${problem})`));
  const more = values > first.length ? `, and ${countText(values - first.length)} more` : '';
  return `no value yet for ${names.join(', ')}${more}`;
}
