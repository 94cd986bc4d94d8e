import { readDuration } from '../base/quantity.ts';
import { printable } from '../config/problem.ts';
import type { MemberReport, Members } from '../config/source-kinds.ts';

interface DurationRule {
  minMs: number;
  maxMs: number;
  /** Limits as text, for example `between 20ms and 60s`. */
  range: string;
  example: string;
}

/** Reads a duration in milliseconds. Returns `defaultMs` if it is omitted, and `undefined` after reporting a problem. */
export function readDurationMember<Default extends number | undefined>(
  raw: Members,
  member: string,
  defaultMs: Default,
  { minMs, maxMs, range, example }: DurationRule,
  report: MemberReport,
): number | Default | undefined {
  const written = raw[member];
  if (written === undefined) return defaultMs;
  const reading = readDuration(String(written));
  if ('value' in reading && reading.value >= minMs && reading.value <= maxMs) return reading.value;
  const reason = 'reason' in reading ? reading.reason : `must be ${range}`;
  report.problem(member, `${member} "${printable(String(written))}" ${reason}`, `use a value such as ${example}`);
  return undefined;
}
