/** Reports on the sources in tags.yaml for `status`, `sources ls`, metrics and health. Pure. */
import { counted, countText } from '../base/amounts.ts';
import type { CertificateInUse, Certificates } from '../base/certificates.ts';
import type { Unread } from './intake/arrivals.ts';
import type { Gate } from './intake/gate.ts';
import type { Point } from './points.ts';
import type { SourceState } from './source-kind.ts';

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
  /**
   * Numbers of redelivered messages. `known`: recognised and not stored again. `taken`: stored, although they may have
   * been stored before.
   */
  redelivered: { known: number; taken: number } | null;
  /** Earliest expiry of the client and server certificates, ISO 8601. */
  certificate_expires: string | null;
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

/** A source in tags.yaml. Times are monotonic. */
export interface ReportedSource {
  name: string;
  kind: string;
  state: SourceState;
  openedMs: number;
  points: readonly Pick<Point, 'name' | 'series' | 'everyMs'>[];
  /** Whether the source is polled and every poll returns a value. */
  isPolled: boolean;
  /** Omitted if the source could not be opened. */
  gate?: Pick<Gate, 'stored' | 'lastStoredMs' | 'lastAcceptedMs' | 'waiting' | 'arrivals'>;
}

export function sourceReport(source: ReportedSource, nowMs: number): SourceReport {
  const { name, kind, state, openedMs, points, gate } = source;
  const seconds = (ms: number) => Math.max(0, Math.round(ms / 1000));
  const silentMs = nowMs - (gate?.lastAcceptedMs ?? openedMs);
  const { window, redelivered, certificateEndsMs } = state;
  return {
    name,
    kind,
    connected: state.connected ?? null,
    since_seconds: seconds(nowMs - state.sinceMs),
    problem: problemOf(source) ?? null,
    hint: state.hint ?? null,
    silent: isSilent(source, silentMs, nowMs),
    silent_seconds: seconds(silentMs),
    unusable: unusableReport(source, nowMs),
    values: points.length,
    missing: missingReport(source, nowMs - openedMs),
    stored: gate?.stored ?? 0,
    last_value_seconds_ago: gate?.lastStoredMs === undefined ? null : seconds(nowMs - gate.lastStoredMs),
    waiting_for_commit: gate?.waiting ?? 0,
    errors: state.errors + (gate?.arrivals.notNumbers ?? 0),
    polls_late: state.pollsLate,
    window: window ? { used: window.used, size: window.size ?? null } : null,
    redelivered: redelivered ?? null,
    certificate_expires: certificateEndsMs === undefined ? null : new Date(certificateEndsMs).toISOString(),
  };
}

function problemOf({ state, gate }: ReportedSource): string | undefined {
  const rejected = gate?.lastAcceptedMs === undefined ? gate?.arrivals.rejected : undefined;
  return state.problem ?? (rejected && rejectedText(rejected));
}

function unusableReport({ gate }: ReportedSource, nowMs: number): SourceReport['unusable'] {
  const unusable = gate?.arrivals.unusable;
  if (unusable === undefined) return null;
  const { readings, sinceMs, problem } = unusable;
  return { readings, since_seconds: Math.round((nowMs - sinceMs) / 1000), problem };
}

/** Returns the shortest poll interval in milliseconds, or 0 if the source determines when it sends values. */
function pollIntervalMs({ points, isPolled, gate }: ReportedSource): number {
  if (!isPolled || gate === undefined) return 0;
  const minimumMs = Math.min(...points.map(({ everyMs }) => everyMs).filter((ms) => ms > 0));
  return Number.isFinite(minimumMs) ? minimumMs : 0;
}

function missingReport(source: ReportedSource, openMs: number): MissingReport | null {
  const { points, gate } = source;
  if (gate === undefined || openMs < GRACE_MS) return null;
  const missing = points.filter((point) => openMs >= GRACE_POLLS * point.everyMs && !gate.arrivals.has(point));
  if (missing.length === 0) return null;
  const first = missing.slice(0, MISSING_SHOWN).map((point) => {
    const unread = gate.arrivals.unreadOf(point);
    return { name: point.name, problem: unread ? unreadText(unread) : null };
  });
  const overdue = pollIntervalMs(source) > 0 || openMs > FIRST_VALUE_MS;
  return { values: missing.length, first, since_seconds: Math.round(openMs / 1000), overdue };
}

function isSilent(source: ReportedSource, silentMs: number, nowMs: number): boolean {
  const { state, points, gate } = source;
  const everyMs = pollIntervalMs(source);
  if (everyMs > 0) return silentMs > Math.max(MINUTE_MS, SILENT_POLLS * everyMs);
  // A broker without values is used only by `publish` and must be connected.
  if (state.connected === false && nowMs - state.sinceMs > MINUTE_MS) return true;
  return points.length > 0 && silentMs > (gate?.lastAcceptedMs === undefined ? FIRST_VALUE_MS : NEXT_VALUE_MS);
}

/** Describes source data that could not be read. */
export function rejectedText({ count, problem }: Unread): string {
  return count === 1 ? `rejected: ${problem}` : `${countText(count)} rejected, latest: ${problem}`;
}

/** Describes why a value could not be read, and how many messages were affected. */
export function unreadText({ problem, count }: Unread): string {
  return count === 1 ? problem : `${counted(count, 'message')} received, latest problem: ${problem}`;
}

/** Returns the certificates used by sources and other components, earliest expiry first. */
export function certificatesInUse(others: Certificates, reports: readonly SourceReport[]): CertificateInUse[] {
  const ofSources = reports.flatMap(({ name, certificate_expires: expires }) =>
    expires === null ? [] : [{ use: `source ${name}`, endsMs: Date.parse(expires) }],
  );
  return [...others.list(), ...ofSources].sort((a, b) => a.endsMs - b.endsMs);
}

/** Describes data that does not yield values, for example `no value in the latest 120 readings: …`. */
export function unusableText({ readings, problem }: NonNullable<SourceReport['unusable']>): string {
  return `no value in the latest ${counted(readings, 'reading')}, latest problem: ${problem}`;
}

/** Example: `2 of its values have not arrived yet: FT-101 flow, …` */
export function missingText({ values, first }: MissingReport): string {
  const names = first.map(({ name, problem }) => (problem === null ? name : `${name} (${problem})`));
  const more = values > first.length ? `, and ${countText(values - first.length)} more` : '';
  return `no value yet for ${names.join(', ')}${more}`;
}
