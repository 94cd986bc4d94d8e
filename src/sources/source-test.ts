/** `sources test`: reads every configured value once and formats the results. */
import type { Clock } from '../base/clock.ts';
import type { TestedValue, Unread } from './intake/arrivals.ts';
import type { Gate, Quality } from './intake/gate.ts';
import { type RawReading, shape } from './intake/shaping.ts';
import type { Point } from './points.ts';
import type { SourceKind } from './source-kind.ts';
import { rejectedText, unreadText } from './source-report.ts';

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
  /** Reason why no value was read. */
  problem: string | null;
  hint: string | null;
}

/** Waits for unsolicited values from brokers and programs until every value has arrived or `waitMs` has elapsed. */
export async function listenTo(
  gate: Gate,
  points: readonly Point[],
  clock: Clock,
  waitMs: number,
  signal: AbortSignal,
): Promise<TestedValue[]> {
  const read = new Map<string, TestedValue>();
  const unread = new Map<string, Unread>();
  const enough = new AbortController();
  const stop = gate.arrivals.listen((heard) => {
    const { name } = heard.point;
    if ('problem' in heard) {
      unread.set(name, { problem: heard.problem, count: (unread.get(name)?.count ?? 0) + 1 });
      return;
    }
    read.set(name, heard);
    if (read.size >= points.length && points.every((point) => read.has(point.name))) enough.abort();
  });
  try {
    if (points.length > 0) await clock.sleep(waitMs, AbortSignal.any([signal, enough.signal])).catch(() => {});
  } finally {
    stop();
  }
  signal.throwIfAborted();
  const { rejected } = gate.arrivals;
  const silence = `no message within ${Math.round(waitMs / 1000)} s`;
  const otherwise = rejected === undefined ? silence : `${silence}. ${rejectedText(rejected)}`;
  return points.map((point) => {
    const failed = unread.get(point.name) ?? gate.arrivals.unreadOf(point);
    return read.get(point.name) ?? { point, problem: failed ? unreadText(failed) : otherwise };
  });
}

export function testedReport(
  source: { name: string; spec: unknown },
  kind: SourceKind,
  tested: TestedValue,
  clock: Clock,
): TestedReport {
  const { point } = tested;
  // Split at the last space, because a tag may contain spaces but a key cannot.
  const space = point.name.lastIndexOf(' ');
  const base = {
    source: source.name,
    tag: point.name.slice(0, space),
    key: point.name.slice(space + 1),
    address: kind.addressOf?.(source.spec, point.spec) ?? null,
  };
  if ('problem' in tested) {
    const { problem, hint = null } = tested;
    return { ...base, raw: null, value: null, timestamp: null, quality: null, problem, hint };
  }
  const { raw, timeMs = clock.wallMs(), quality = 'good' } = tested;
  const shaped = shape(raw, point);
  if ('problem' in shaped) {
    const { problem } = shaped;
    return { ...base, raw, value: null, timestamp: null, quality: null, problem, hint: null };
  }
  const { value } = shaped;
  return { ...base, raw, value, timestamp: new Date(timeMs).toISOString(), quality, problem: null, hint: null };
}
