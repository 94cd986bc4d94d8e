/** `sources test`: every configured value read once, as a person wants to see it. */
import type { Clock } from '../base/clock.ts';
import type { TestedValue, Unread } from './arrivals.ts';
import type { Gate, Quality } from './gate.ts';
import type { Point } from './points.ts';
import { scaledOf } from './shaping.ts';
import { rejectedWords, unreadWords } from './source-facts.ts';
import type { SourceKind } from './source-kind.ts';

export interface TestedReport {
  source: string;
  tag: string;
  key: string;
  /** Where it was read, as the device or broker names it. */
  address: string | null;
  raw: number | null;
  /** raw x scale + offset: what would be sent. */
  value: number | null;
  timestamp: string | null;
  quality: Quality | null;
  /** Why nothing was read. */
  problem: string | null;
  hint: string | null;
}

/** What brokers and programs say by themselves is listened to: until each value came, or for `waitMs`. */
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
  const otherwise = rejected === undefined ? silence : `${silence}. ${rejectedWords(rejected)}`;
  return points.map((point) => {
    const failed = unread.get(point.name) ?? gate.arrivals.unreadOf(point);
    return read.get(point.name) ?? { point, problem: failed ? unreadWords(failed) : otherwise };
  });
}

export function testedReport(
  source: { name: string; spec: unknown },
  kind: SourceKind,
  tested: TestedValue,
  clock: Clock,
): TestedReport {
  const { point } = tested;
  // A key has no space in it, a tag may.
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
  const value = scaledOf(raw, point.shaping);
  return { ...base, raw, value, timestamp: new Date(timeMs).toISOString(), quality, problem: null, hint: null };
}
