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

/** Time for which rejected data and data warnings are reported as findings, in seconds. */
const DATA_SHOWN_S = 3_600;

/** Returns the findings of a status report, the most important ones first. */
export function findings({ sources }: { sources: readonly SourceReport[] }): Finding[] {
  return sources.flatMap(sourceFindings).toSorted((one, other) => rankOf(one) - rankOf(other));
}

function rankOf({ severity }: Finding): number {
  return severity === 'error' ? 0 : 1;
}

/** Returns the findings of a source, the most important one first. */
export function sourceFindings(source: SourceReport): Finding[] {
  const { name, kind, hint } = source;
  const subject = `${kind} source ${name}`;
  const command = `tagferry sources test ${shellWord(name)}`;
  return [...stateOf(source), ...dataOf(source)].map(({ isHinted = false, ...found }) => ({
    ...found,
    subject,
    hint: isHinted ? hint : null,
    command,
  }));
}

/** `isHinted`: whether the hint of the source is about this condition. */
type Condition = Pick<Finding, 'severity' | 'event' | 'sentence'> & { isHinted?: true };

/** Returns why values are missing. */
function stateOf(source: SourceReport): Condition[] {
  const { problem, silent, connected, unusable, missing, rejected, last_value_seconds_ago: last } = source;
  const because = problem === null ? '' : `: ${problem}`;
  const error = (event: string, sentence: string): Condition[] => [
    { severity: 'error', event, sentence, isHinted: true },
  ];
  if (silent) {
    const since = durationText(source.silent_seconds);
    if (last !== null) return error('source.silent', `no value for ${since}${because}`);
    const example = problem === null && rejected !== null ? `: ${rejectedText(rejected)}` : because;
    return error('source.silent', `no value since the source was opened ${since} ago${example}`);
  }
  if (connected === false) {
    return error('source.disconnected', `not connected for ${durationText(source.since_seconds)}${because}`);
  }
  if (unusable !== null) {
    return error('source.unusable', `${unusableText(unusable)}, for ${durationText(unusable.since_seconds)}`);
  }
  const found: Condition[] = [];
  if (problem !== null) {
    const sentence = `some values cannot be read${because}`;
    found.push({ severity: 'warning', event: 'source.partial', sentence, isHinted: true });
  }
  if (missing?.overdue) {
    const sentence = `${missingText(missing)}, for ${durationText(missing.since_seconds)}`;
    found.push({ severity: 'warning', event: 'source.incomplete', sentence });
  }
  return found;
}

/** Returns the problems with received data. An error of the whole source already contains an example. */
function dataOf(source: SourceReport): Condition[] {
  const { silent, connected, unusable, missing, rejected, warnings } = source;
  if (silent || connected === false || unusable !== null) return [];
  const found: Condition[] = [];
  // A value that has not arrived yet is listed with its own problem.
  const isListed = missing?.first.some(({ problem }) => problem !== null && rejected?.problem.includes(problem));
  if (rejected !== null && !isListed && rejected.seconds_ago <= DATA_SHOWN_S) {
    const sentence = `${rejectedText(rejected)}, ${durationText(rejected.seconds_ago)} ago`;
    found.push({ severity: 'warning', event: 'source.rejected', sentence });
  }
  for (const warning of warnings) {
    if (warning.seconds_ago > DATA_SHOWN_S) continue;
    const sentence = `${warningText(warning)}, ${durationText(warning.seconds_ago)} ago`;
    found.push({ severity: 'warning', event: warning.event, sentence });
  }
  return found;
}

/** Quotes text for a shell, because names come from files and the command is copied. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
