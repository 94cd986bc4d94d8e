/** Text output of `sources ls`, `sources test`, `sources scan` and the source lines of `status`. */
import { counted, countText, durationText } from '../../base/amounts.ts';
import { endsSoon, expiryText } from '../../base/certificates.ts';
import { systemClock } from '../../base/clock.ts';
import { plain, visible } from '../../base/foreign-text.ts';
import { type Paint, table } from '../../base/table.ts';
import { findings } from '../../ops/findings.ts';
import type { ProposedMember, ScannedValue } from '../../sources/source-kind.ts';
import type { TestedReport } from '../../sources/source-test.ts';
import { missingText, rejectedText, type SourceReport, unusableText, warningText } from '../../sources/status.ts';
import { proposeTemplates } from './templates.ts';

const MAX_PROBLEMS_SHOWN = 4;

function stateText({ silent, connected, problem, unusable }: SourceReport): string {
  if (silent) return 'silent';
  if (connected === false) return 'not connected';
  if (unusable !== null) return 'unusable';
  if (problem !== null) return 'partial';
  return connected === null ? 'reading' : 'connected';
}

/** Returns a source's problem, or the reason why its data yields no values. */
function problemText(source: SourceReport): string | undefined {
  if (stateText(source) === 'unusable') return plain(unusableText(source.unusable!));
  return source.problem === null ? undefined : plain(source.problem);
}

/** Duration of the current state. */
function sinceSeconds(source: SourceReport): number {
  const { silent, silent_seconds: silentSeconds, since_seconds: seconds, unusable } = source;
  if (silent) return silentSeconds;
  return stateText(source) === 'unusable' ? unusable!.since_seconds : seconds;
}

function lastValueText({ last_value_seconds_ago: last }: SourceReport): string {
  return last === null ? 'none yet' : `${durationText(last)} ago`;
}

/** Returns the lines of `status`: the number of sources, and each source with a problem. */
export function sourceLines(sources: readonly SourceReport[]): { text: string; bad: boolean }[] {
  if (sources.length === 0) return [];
  const found = findings({ sources });
  const summary = `${counted(sources.length, 'source')}, ${found.length === 0 ? 'all OK' : `${new Set(found.map(({ subject }) => subject)).size} with problems`}`;
  const shown = found.slice(0, MAX_PROBLEMS_SHOWN);
  const more = found.length - shown.length;
  return [
    { text: summary, bad: found.length > 0 },
    ...shown.map(({ subject, sentence }) => ({ text: plain(`${subject}: ${sentence}`), bad: true })),
    ...sources.filter(isStarting).map((source) => ({ text: missingLine(source), bad: false })),
    ...(more > 0 ? [{ text: `and ${more} more, see \`tagferry sources ls\``, bad: true }] : []),
  ];
}

/** Whether values that have not arrived yet are not overdue. */
function isStarting(source: SourceReport): boolean {
  return hasMissingValues(source) && !source.missing!.overdue;
}

/** Missing values are reported only while the source is connected. */
function hasMissingValues({ missing, connected }: SourceReport): boolean {
  return missing !== null && connected !== false;
}

function missingLine({ name, missing }: SourceReport): string {
  return plain(`${name}: ${missingText(missing!)}, for ${durationText(missing!.since_seconds)}`);
}

export function sourcesTable(sources: readonly SourceReport[], width: number, paint: Paint): string {
  if (sources.length === 0) return 'No sources in tags.yaml. Programs push values.';
  const rows = sources.map((source) => [
    plain(source.name),
    source.kind,
    stateText(source),
    durationText(sinceSeconds(source)),
    lastValueText(source),
    countText(source.values),
    countText(source.errors),
    countText(source.polls_late),
  ]);
  const lines = table([['source', 'kind', 'state', 'for', 'last value', 'values', 'errors', 'late'], ...rows], width);
  const notes = sources.flatMap((source) => notesOf(source));
  return [lines, ...notes.map((note) => paint(note, 'yellow'))].join('\n');
}

function notesOf(source: SourceReport): string[] {
  const { name, hint, rejected, window, certificate_expires: expires } = source;
  const notes: string[] = [];
  const problem = problemText(source);
  if (problem !== undefined) notes.push(`${plain(name)}: ${problem}`);
  if (problem !== undefined && hint !== null) notes.push(`  ${plain(hint)}`);
  if (rejected !== null) {
    notes.push(plain(`${name}: ${rejectedText(rejected)} (${durationText(rejected.seconds_ago)} ago)`));
  }
  for (const one of source.warnings) {
    notes.push(plain(`${name}: ${warningText(one)} (${durationText(one.seconds_ago)} ago)`));
  }
  if (hasMissingValues(source)) notes.push(missingLine(source));
  if (window && window.size !== null && window.used >= window.size) {
    notes.push(`${plain(name)}: receive window of ${counted(window.size, 'message')} is full, waiting for the disk`);
  }
  const endsMs = expires === null ? Number.POSITIVE_INFINITY : Date.parse(expires);
  if (endsSoon(endsMs, systemClock.wallMs()))
    notes.push(`${plain(name)}: certificate ${expiryText(endsMs, systemClock.wallMs())}`);
  return notes;
}

export function testedTable(values: readonly TestedReport[], width: number, paint: Paint): string {
  if (values.length === 0) return 'No values in tags.yaml use these sources.';
  const read = values.filter((value) => value.problem === null);
  const rows = read.map(({ tag, key, raw, value, timestamp, quality, source, address }) => [
    plain(tag),
    key,
    String(raw),
    String(value),
    timeText(timestamp),
    quality ?? '',
    `${plain(source)} ${plain(address ?? '')}`,
  ]);
  const head = ['tag', 'key', 'raw', 'value', 'time (UTC)', 'quality', 'source'];
  const warned = read.flatMap(({ tag, key, warning }) =>
    warning === null ? [] : [`${plain(tag)} ${key}: ${plain(warning)}`],
  );
  const unread = values.filter((value) => value.problem !== null).flatMap((value) => unreadLines(value));
  return [
    ...(rows.length > 0 ? [table([head, ...rows], width)] : []),
    ...warned.map((line) => paint(line, 'yellow')),
    ...unread.map((line) => paint(line, 'red')),
    `${read.length} of ${counted(values.length, 'value')} read`,
  ].join('\n');
}

/** Returns the time of day, and the date unless it is today. */
function timeText(timestamp: string | null): string {
  if (timestamp === null) return '';
  const [date, time] = [timestamp.slice(0, 10), timestamp.slice(11, 23)];
  const today = new Date(systemClock.wallMs()).toISOString().slice(0, 10);
  return date === today ? time : `${date} ${time}`;
}

function unreadLines({ tag, key, source, address, problem, hint }: TestedReport): string[] {
  const where = `${plain(source)}${address === null ? '' : ` ${plain(address)}`}`;
  return [`${plain(tag)} ${key} (${where}): ${plain(problem ?? '')}`, ...(hint === null ? [] : [`  ${plain(hint)}`])];
}

/** Returns lines for a tag's `values:` in tags.yaml or, with `isLike`, templates shared by many tags. */
export function scannedLines(source: string, found: readonly ScannedValue[], isLike: boolean): string {
  if (found.length === 0) return '# no values found';
  if (!isLike) return ['    values:', ...valueLines(source, found, '      ')].join('\n');
  const { templates, rest } = proposeTemplates(found);
  const blocks = rest.length > 0 ? [...templates, { values: rest, tags: [] }] : templates;
  const lines = blocks.flatMap(({ values, tags }, at) => {
    const name = yamlText(at === 0 ? source : `${source}_${at + 1}`);
    const members = (tag: string) => `#   ${yamlText(tag)}: { asset: …, like: ${name} }`;
    return [`  ${name}:`, ...valueLines(source, values, '    '), ...tags.map(members)];
  });
  return ['like:', ...lines].join('\n');
}

/**
 * Returns a comment with members that the source in tags.yaml requires, ending with a line feed; empty if no members
 * are required.
 */
export function proposedLine(source: string, members: Readonly<Record<string, ProposedMember>>): string {
  const textOf = (value: ProposedMember): string => {
    if (typeof value !== 'object') return yamlText(value);
    if (Array.isArray(value)) return `[${value.map(yamlText).join(', ')}]`;
    return `{ ${Object.entries(value)
      .map(([name, text]) => `${yamlText(name)}: ${yamlText(text)}`)
      .join(', ')} }`;
  };
  const texts = Object.entries(members).map(([name, value]) => `${name}: ${textOf(value)}`);
  return texts.length === 0 ? '' : `# add to ${yamlText(source)} under sources: ${texts.join(', ')}\n`;
}

function valueLines(source: string, found: readonly ScannedValue[], indent: string): string[] {
  const lines = found.map(({ key, members, sample, tag }) => {
    const rest = Object.entries(members).map(([name, value]) => `${name}: ${yamlText(value)}`);
    const text = `${yamlText(key)}: { ${[`from: ${yamlText(source)}`, ...rest].join(', ')} }`;
    return { text, sample: tag === undefined ? sample : `${tag}: ${sample}` };
  });
  const width = Math.max(...lines.map(({ text }) => text.length));
  return lines.map(({ text, sample }) => `${indent}${text.padEnd(width)}  # ${plain(sample)}`);
}

/**
 * Quotes text for tags.yaml and escapes `${`, which starts a placeholder, because topic names can contain any
 * character.
 */
function yamlText(value: string | number): string {
  if (typeof value === 'number') return String(value);
  const isPlain =
    /^[A-Za-z_][A-Za-z0-9_. -]*[A-Za-z0-9_]$|^[A-Za-z_]$/.test(value) &&
    !/^(true|false|null|yes|no|on|off|y|n)$/i.test(value);
  return isPlain ? value : visible(JSON.stringify(value.replaceAll('${', () => '$${')));
}
