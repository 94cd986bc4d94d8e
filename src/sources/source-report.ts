/** What `status`, `sources ls`, metrics and health say of the sources of tags.yaml. Pure. */
import type { SourceFacts } from './source-facts.ts';

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
  /** On disk since the start. */
  stored: number;
  last_value_seconds_ago: number | null;
  waiting_for_commit: number;
  errors: number;
  polls_late: number;
  window: { used: number; size: number | null } | null;
  /** Messages that came again: known and not stored, or stored though somebody had been given them before. */
  redelivered: { known: number; taken: number } | null;
  certificate_days_left: number | null;
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
    stored: facts.stored,
    last_value_seconds_ago: facts.lastStoredMs === undefined ? null : seconds(nowMs - facts.lastStoredMs),
    waiting_for_commit: facts.waiting,
    errors: facts.errors,
    polls_late: facts.pollsLate,
    window: facts.window ? { used: facts.window.used, size: facts.window.size ?? null } : null,
    redelivered: facts.redelivered ?? null,
    certificate_days_left: facts.certificateDaysLeft ?? null,
  };
}

function isSilent(facts: SourceFacts, silentMs: number, nowMs: number): boolean {
  const { everyMs, values, connected, lastTakenMs, sinceMs } = facts;
  if (everyMs > 0) return values > 0 && silentMs > Math.max(MINUTE_MS, SILENT_POLLS * everyMs);
  // A broker that is there for `publish` alone has to be there.
  if (connected === false && nowMs - sinceMs > MINUTE_MS) return true;
  return values > 0 && silentMs > (lastTakenMs === undefined ? FIRST_WORD_MS : NEXT_WORD_MS);
}

/** One sentence for each source that is silent: what `/healthz` notes. */
export function silentNotes(reports: readonly SourceReport[]): string[] {
  return reports
    .filter(({ silent }) => silent)
    .map(({ name, kind, silent_seconds: seconds, problem, last_value_seconds_ago: last }) => {
      const since = last === null ? `nothing came yet, for ${seconds} s` : `nothing came for ${seconds} s`;
      return `the ${kind} source ${name} is silent: ${since}${problem === null ? '' : ` (${problem})`}`;
    });
}
