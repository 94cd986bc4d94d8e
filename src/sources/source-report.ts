/** What `status`, `sources ls`, metrics and health say of the sources of tags.yaml. Pure. */
import { countText } from '../base/amounts.ts';
import type { CertificateInUse, Certificates } from '../base/certificates.ts';
import type { MissingValue, SourceFacts } from './source-facts.ts';

export interface SourceReport {
  name: string;
  kind: string;
  /** `null` where there is nothing to be connected to. */
  connected: boolean | null;
  /** Since when it is connected, or is not. */
  since_seconds: number;
  problem: string | null;
  hint: string | null;
  /** It gave nothing for longer than it should, or nothing yet; stays until it speaks. */
  silent: boolean;
  /** Since its last reading, or since it was opened. */
  silent_seconds: number;
  /** Configured for it. */
  values: number;
  /** Values that have not arrived since it was opened; `null` where none is missing. */
  missing: MissingReport | null;
  /** On disk since the start. */
  stored: number;
  last_value_seconds_ago: number | null;
  waiting_for_commit: number;
  errors: number;
  polls_late: number;
  window: { used: number; size: number | null } | null;
  /** Messages that came again: known and not stored, or stored though somebody had been given them before. */
  redelivered: { known: number; taken: number } | null;
  /** When the first of its certificates ends, its own or the server's: ISO 8601. */
  certificate_expires: string | null;
}

export interface MissingReport {
  values: number;
  /** The first five. */
  first: readonly MissingValue[];
  since_seconds: number;
  /** They should have arrived: polled ones, and others after a quarter of an hour. */
  overdue: boolean;
}

const MINUTE_MS = 60_000;
/** What is polled gives something with each poll; so many may fail before anybody is called. */
const SILENT_POLLS = 3;
/** Brokers speak when they like: at all within this after the start, and once a day from then on. */
const FIRST_WORD_MS = 15 * MINUTE_MS;
const NEXT_WORD_MS = 24 * 60 * MINUTE_MS;

export function sourceReports(facts: readonly SourceFacts[], nowMs: number): SourceReport[] {
  return facts.map((one) => sourceReport(one, nowMs));
}

function sourceReport(facts: SourceFacts, nowMs: number): SourceReport {
  const seconds = (ms: number) => Math.max(0, Math.round(ms / 1000));
  const silentMs = nowMs - (facts.lastTakenMs ?? facts.openedMs);
  return {
    name: facts.name,
    kind: facts.kind,
    connected: facts.connected ?? null,
    since_seconds: seconds(nowMs - facts.sinceMs),
    problem: facts.problem ?? null,
    hint: facts.hint ?? null,
    silent: isSilent(facts, silentMs, nowMs),
    silent_seconds: seconds(silentMs),
    values: facts.values,
    missing: missingReport(facts, nowMs),
    stored: facts.stored,
    last_value_seconds_ago: facts.lastStoredMs === undefined ? null : seconds(nowMs - facts.lastStoredMs),
    waiting_for_commit: facts.waiting,
    errors: facts.errors,
    polls_late: facts.pollsLate,
    window: facts.window ? { used: facts.window.used, size: facts.window.size ?? null } : null,
    redelivered: facts.redelivered ?? null,
    certificate_expires: facts.certificateEndsMs === undefined ? null : new Date(facts.certificateEndsMs).toISOString(),
  };
}

function missingReport({ missing, openedMs, everyMs }: SourceFacts, nowMs: number): MissingReport | null {
  if (missing.count === 0) return null;
  const openMs = nowMs - openedMs;
  const overdue = everyMs > 0 || openMs > FIRST_WORD_MS;
  return { values: missing.count, first: missing.first, since_seconds: Math.round(openMs / 1000), overdue };
}

function isSilent(facts: SourceFacts, silentMs: number, nowMs: number): boolean {
  const { everyMs, values, connected, lastTakenMs, sinceMs } = facts;
  if (everyMs > 0) return values > 0 && silentMs > Math.max(MINUTE_MS, SILENT_POLLS * everyMs);
  // A broker that is there for `publish` alone has to be there.
  if (connected === false && nowMs - sinceMs > MINUTE_MS) return true;
  return values > 0 && silentMs > (lastTakenMs === undefined ? FIRST_WORD_MS : NEXT_WORD_MS);
}

/** Those of sources beside the others, the earliest first. */
export function certificatesInUse(others: Certificates, reports: readonly SourceReport[]): CertificateInUse[] {
  const ofSources = reports.flatMap(({ name, certificate_expires: expires }) =>
    expires === null ? [] : [{ use: `source ${name}`, endsMs: Date.parse(expires) }],
  );
  return [...others.list(), ...ofSources].sort((a, b) => a.endsMs - b.endsMs);
}

/** One sentence for each source that is silent or lacks values: what `/healthz` notes. */
export function sourceNotes(reports: readonly SourceReport[]): string[] {
  const lacking = reports.filter(
    ({ silent, connected, missing }) => !silent && connected !== false && missing?.overdue,
  );
  return [
    ...silentNotes(reports),
    ...lacking.map(({ name, kind, missing }) => `the ${kind} source ${name}: ${missingWords(missing!)}`),
  ];
}

/** `2 of its values have not arrived yet: FT-101 flow, …` */
export function missingWords({ values, first }: MissingReport): string {
  const names = first.map(({ name, problem }) => (problem === null ? name : `${name} (${problem})`));
  const more = values > first.length ? `, and ${countText(values - first.length)} more` : '';
  return `no value yet of ${names.join(', ')}${more}`;
}

function silentNotes(reports: readonly SourceReport[]): string[] {
  return reports
    .filter(({ silent }) => silent)
    .map(({ name, kind, silent_seconds: seconds, problem, last_value_seconds_ago: last }) => {
      const since = last === null ? `no value yet, for ${seconds} s` : `no value for ${seconds} s`;
      return `the ${kind} source ${name} is silent: ${since}${problem === null ? '' : ` (${problem})`}`;
    });
}
