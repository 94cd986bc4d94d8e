/**
 * What needs attention, as one list. `status`, `doctor`, `/healthz` and the page show the same findings, so that a
 * problem has one sentence and one command. Pure.
 */
import { durationText } from '../base/amounts.ts';
import { missingText, rejectedText, type SourceReport, unusableText, warningText } from '../sources/status.ts';

export interface Finding {
  /** `error`: values are missing or not delivered. `warning`: some are, or soon will be. */
  severity: 'error' | 'warning';
  /** Event code, which also identifies the finding in `/healthz`. */
  event: string;
  /** What is affected, for example `modbus source plc`. */
  subject: string;
  /** State, duration and cause. Contains text from devices. */
  sentence: string;
  /** How to fix it, as an imperative sentence. */
  hint: string | null;
  /** Command that shows more. */
  command: string;
}

/** Time for which rejected data is a finding, in seconds. */
const REJECTED_SHOWN_S = 3_600;

/** Returns the findings of a status report, the most important ones first. */
export function findings({ sources }: { sources: readonly SourceReport[] }): Finding[] {
  return sources.flatMap(sourceFinding).toSorted((one, other) => rankOf(one) - rankOf(other));
}

function rankOf({ severity }: Finding): number {
  return severity === 'error' ? 0 : 1;
}

/** Returns the most important finding of a source, or none. */
export function sourceFinding(source: SourceReport): Finding[] {
  const { name, kind, hint } = source;
  const found = conditionOf(source);
  if (found === undefined) return [];
  const subject = `${kind} source ${name}`;
  return [{ ...found, subject, hint, command: `tagferry sources test ${shellWord(name)}` }];
}

type Condition = Pick<Finding, 'severity' | 'event' | 'sentence'>;

function conditionOf(source: SourceReport): Condition | undefined {
  const { problem, silent, connected, unusable, missing, rejected, last_value_seconds_ago: last } = source;
  const because = problem === null ? '' : `: ${problem}`;
  const time = (seconds: number) => durationText(seconds);
  if (silent) {
    const since = time(source.silent_seconds);
    if (last !== null)
      return { severity: 'error', event: 'source.silent', sentence: `no value for ${since}${because}` };
    const example = problem === null && rejected !== null ? `: ${rejectedText(rejected)}` : because;
    const sentence = `no value since it was opened ${since} ago${example}`;
    return { severity: 'error', event: 'source.silent', sentence };
  }
  if (connected === false) {
    const sentence = `not connected for ${time(source.since_seconds)}${because}`;
    return { severity: 'error', event: 'source.disconnected', sentence };
  }
  if (unusable !== null) {
    const sentence = `${unusableText(unusable)}, for ${time(unusable.since_seconds)}`;
    return { severity: 'error', event: 'source.unusable', sentence };
  }
  if (missing?.overdue) {
    const isExplained = rejected === null || missing.first.some((value) => value.problem !== null);
    const example = isExplained ? '' : `; ${rejectedText(rejected)}`;
    const sentence = `${missingText(missing)}, for ${time(missing.since_seconds)}${example}`;
    return { severity: 'warning', event: 'source.incomplete', sentence };
  }
  if (problem !== null) {
    return { severity: 'warning', event: 'source.partial', sentence: `some values cannot be read${because}` };
  }
  // A value that has not arrived yet is listed with its own problem.
  if (rejected !== null && missing === null && rejected.seconds_ago <= REJECTED_SHOWN_S) {
    const sentence = `${rejectedText(rejected)}, ${time(rejected.seconds_ago)} ago`;
    return { severity: 'warning', event: 'source.rejected', sentence };
  }
  const warning = source.warnings.find((one) => one.seconds_ago <= REJECTED_SHOWN_S);
  if (warning === undefined) return undefined;
  const sentence = `${warningText(warning)}, ${time(warning.seconds_ago)} ago`;
  return { severity: 'warning', event: warning.event, sentence };
}

/** Quotes text for a shell, because names come from files and the command is copied. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
