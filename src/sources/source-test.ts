/**
 * `sources test`: opens a second instance of a source and reports the first reading of every configured value. Stores
 * and acknowledges nothing.
 */
import type { Clock } from '../base/clock.ts';
import { messageOf, StoreError, TagferryError } from '../base/errors.ts';
import { silentLogger } from '../base/logger.ts';
import type { Supply } from '../buffer/client/committer.ts';
import type { Source } from '../config/tags.ts';
import { Gate, type GateOptions, type Quality } from './intake/gate.ts';
import type { RawReading } from './intake/shaping.ts';
import { Stamps } from './intake/stamps.ts';
import type { Point } from './points.ts';
import type { RunningSource, SourceContext, SourceKind } from './source-kind.ts';
import { type ObservedReading, rejectedText, SourceStatus } from './status.ts';

export interface TestedReport {
  source: string;
  tag: string;
  key: string;
  /** Address of the value in the notation of the device or broker. */
  address: string | null;
  raw: RawReading | null;
  /** Value that would be sent: raw, or its number in `map`, x scale + offset. */
  value: number | null;
  timestamp: string | null;
  quality: Quality | null;
  /** Problem with the timestamp of a value that was read. */
  warning: string | null;
  /** Reason why no value was read. */
  problem: string | null;
  hint: string | null;
}

/** Context of a test: that of the running source, with a separate broker client. */
export type TestContext = Omit<SourceContext, 'gate' | 'status' | 'notes' | 'isTest' | 'log'> &
  Pick<GateOptions, 'times'>;

/** Time limit for one poll of all values, in milliseconds. */
const POLL_MS = 60_000;
const NOT_STORED = { code: 'source.test', retryable: false };

/** Opens a source, waits until every value has arrived or `waitMs` has elapsed, and closes the source. */
export async function testSource(
  kind: SourceKind,
  context: TestContext,
  waitMs: number,
  signal: AbortSignal,
): Promise<TestedReport[]> {
  const { source, points, clock, brokers, times } = context;
  const log = silentLogger();
  const isPolled = !kind.reportsOnlyChanges;
  const status = new SourceStatus({ name: source.name, kind: kind.kind, points, isPolled, clock, log });
  let supply: Supply | undefined;
  // Stores nothing, so that a test confirms nothing to devices, brokers and files.
  const committer = {
    isClosed: false,
    isFullFor: () => false,
    offer: (offered: Supply) => {
      supply = offered;
    },
    /** Called when the test ends: rejects the waiting readings. */
    commitSoon: () => supply?.pull()?.failed(new StoreError('nothing is stored in a test', NOT_STORED)),
  };
  const gate = new Gate({ status, timeFrom: source.timeFrom, committer, stamps: new Stamps(), times, clock, log });
  const reportOf = (reading: ObservedReading) => testedReport(source, kind, reading, clock);
  let opened: RunningSource | undefined;
  try {
    const full: SourceContext = { ...context, gate, status, isTest: true, notes: async () => new Map(), log };
    opened = await kind.open(full as SourceContext<never, never>);
    const begin = () => {
      opened!.start();
      brokers.start();
    };
    const limitMs = status.isPolled ? POLL_MS : waitMs;
    return (await listenTo(status, points, clock, limitMs, signal, begin)).map(reportOf);
  } catch (error) {
    signal.throwIfAborted();
    const hint = error instanceof TagferryError ? error.hint : undefined;
    return points.map((point) => reportOf({ point, problem: messageOf(error), hint }));
  } finally {
    await opened?.stop(true);
    await gate.stop();
    await brokers.set([]);
  }
}

/**
 * Calls `begin`, and waits until every value has a reading or `waitMs` has elapsed. If the source is polled, a failure
 * is also a result, because each value is read once.
 */
export async function listenTo(
  status: SourceStatus,
  points: readonly Point[],
  clock: Clock,
  waitMs: number,
  signal: AbortSignal,
  begin = () => {},
): Promise<ObservedReading[]> {
  const read = new Map<number, ObservedReading>();
  const finished = new Set<number>();
  const rejectedBefore = status.report(0).rejected?.count ?? 0;
  const enough = new AbortController();
  const stop = status.listen((reading) => {
    const { series } = reading.point;
    if (finished.has(series)) return;
    read.set(series, reading);
    if (reading.problem === undefined || status.isPolled) finished.add(series);
    if (points.every((point) => finished.has(point.series))) enough.abort();
  });
  try {
    begin();
    if (points.length > 0) await clock.sleep(waitMs, AbortSignal.any([signal, enough.signal])).catch(() => {});
  } finally {
    stop();
  }
  signal.throwIfAborted();
  const { hint } = status;
  const { problem, rejected } = status.report(0);
  let silence = `no message within ${Math.round(waitMs / 1000)} s`;
  // Rejected data without a reading, such as lines of a program, may belong to any value.
  const isNew = rejected !== null && rejected.count > rejectedBefore;
  const isExplained = [...read.values()].some((reading) => reading.problem !== undefined);
  if (rejected !== null && (read.size === 0 || (isNew && !isExplained))) silence += `. ${rejectedText(rejected)}`;
  if (problem !== null) silence = status.problem ?? `the broker is not connected (${problem})`;
  return points.map((point) => {
    const reading = read.get(point.series) ?? { point, problem: silence, hint };
    return reading.problem === undefined
      ? reading
      : { ...reading, problem: status.unreadTextOf(point) ?? reading.problem };
  });
}

export function testedReport(
  { name: source, spec }: Pick<Source, 'name' | 'spec'>,
  kind: SourceKind,
  { point, raw, value, timeMs, quality = 'good', warning, problem = 'not read', hint }: ObservedReading,
  clock: Clock,
): TestedReport {
  // Split at the last space, because a tag may contain spaces but a key cannot.
  const space = point.name.lastIndexOf(' ');
  const [tag, key] = [point.name.slice(0, space), point.name.slice(space + 1)];
  const address = kind.addressOf?.(spec, point.spec) ?? null;
  const report = { source, tag, key, address, raw: raw ?? null, warning: warning ?? null };
  if (value === undefined) {
    return { ...report, value: null, timestamp: null, quality: null, problem, hint: hint ?? null };
  }
  const timestamp = new Date(timeMs ?? clock.wallMs()).toISOString();
  return { ...report, value, timestamp, quality, problem: null, hint: null };
}
