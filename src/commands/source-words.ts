/** Sources for a person: the words of `sources ls`, `sources test` and `status`. */

import { counted, countText, durationText } from '../base/amounts.ts';
import { endsSoon, expiryText } from '../base/certificates.ts';
import { systemClock } from '../base/clock.ts';
import { plain, visible } from '../base/foreign-text.ts';
import { type Paint, table } from '../base/table.ts';
import type { ScannedValue } from '../sources/source-kind.ts';
import { missingWords, type SourceReport } from '../sources/source-report.ts';
import type { TestedReport } from '../sources/source-test.ts';
import { findAlike } from './alike.ts';

const MAX_PROBLEMS_SHOWN = 4;

/** One or two words for how a source does. */
function stateWords({ silent, connected, problem }: SourceReport): string {
  if (silent) return 'silent';
  if (connected === false) return 'not connected';
  if (problem !== null) return 'in part';
  return connected === null ? 'reads' : 'connected';
}

function lastWords({ last_value_seconds_ago: last }: SourceReport): string {
  return last === null ? 'none yet' : `${durationText(last)} ago`;
}

/** Lines of `status`: how many there are, and those that somebody has to look at. */
export function sourceLines(sources: readonly SourceReport[]): { text: string; bad: boolean }[] {
  if (sources.length === 0) return [];
  const troubled = sources.filter((source) => !['connected', 'reads'].includes(stateWords(source)));
  const well = `${counted(sources.length, 'source')}, ${troubled.length === 0 ? 'all well' : `${troubled.length} not well`}`;
  const lines = troubled.slice(0, MAX_PROBLEMS_SHOWN).map((source) => {
    const problem = source.problem === null ? '' : `: ${plain(source.problem)}`;
    const since = source.silent ? source.silent_seconds : source.since_seconds;
    return { text: `${plain(source.name)} ${stateWords(source)} for ${durationText(since)}${problem}`, bad: true };
  });
  const more = troubled.length - lines.length;
  const lacking = sources.filter((source) => lacksValues(source)).slice(0, MAX_PROBLEMS_SHOWN);
  return [
    { text: well, bad: troubled.length > 0 },
    ...lines,
    ...lacking.map((source) => ({ text: lackingLine(source), bad: source.missing!.overdue })),
    ...(more > 0 ? [{ text: `and ${more} more: tagferry sources ls`, bad: true }] : []),
  ];
}

/** Where nothing is connected, that is what is wrong. */
function lacksValues({ missing, connected }: SourceReport): boolean {
  return missing !== null && connected !== false;
}

function lackingLine({ name, missing }: SourceReport): string {
  return plain(`${name}: ${missingWords(missing!)}, for ${durationText(missing!.since_seconds)}`);
}

export function sourcesTable(sources: readonly SourceReport[], width: number, paint: Paint): string {
  if (sources.length === 0) return 'tags.yaml names no sources: values are pushed.';
  const rows = sources.map((source) => [
    plain(source.name),
    source.kind,
    stateWords(source),
    durationText(source.silent ? source.silent_seconds : source.since_seconds),
    lastWords(source),
    countText(source.values),
    countText(source.errors),
    countText(source.polls_late),
  ]);
  const lines = table([['source', 'kind', 'state', 'for', 'last value', 'values', 'errors', 'late'], ...rows], width);
  const notes = sources.flatMap((source) => notesOf(source));
  return [lines, ...notes.map((note) => paint(note, 'yellow'))].join('\n');
}

function notesOf(source: SourceReport): string[] {
  const { name, problem, hint, window, certificate_expires: expires } = source;
  const notes: string[] = [];
  if (problem !== null) notes.push(`${plain(name)}: ${plain(problem)}`);
  if (problem !== null && hint !== null) notes.push(`  ${plain(hint)}`);
  if (lacksValues(source)) notes.push(lackingLine(source));
  if (window && window.size !== null && window.used >= window.size) {
    notes.push(`${plain(name)}: its window (${counted(window.size, 'message')}) is full, it waits for the disk`);
  }
  const endsMs = expires === null ? Number.POSITIVE_INFINITY : Date.parse(expires);
  if (endsSoon(endsMs, systemClock.wallMs()))
    notes.push(`${plain(name)}: a certificate ${expiryText(endsMs, systemClock.wallMs())}`);
  return notes;
}

export function testedTable(values: readonly TestedReport[], width: number, paint: Paint): string {
  if (values.length === 0) return 'No value of tags.yaml comes from these sources.';
  const read = values.filter((value) => value.problem === null);
  const rows = read.map(({ tag, key, raw, value, timestamp, quality, source, address }) => [
    plain(tag),
    key,
    String(raw),
    String(value),
    timestamp?.slice(11, 23) ?? '',
    quality ?? '',
    `${plain(source)} ${plain(address ?? '')}`,
  ]);
  const head = ['tag', 'key', 'raw', 'value', 'time (UTC)', 'quality', 'read at'];
  const unread = values.filter((value) => value.problem !== null).flatMap((value) => unreadLines(value));
  return [
    ...(rows.length > 0 ? [table([head, ...rows], width)] : []),
    ...unread.map((line) => paint(line, 'red')),
    `${read.length} of ${counted(values.length, 'value')} read`,
  ].join('\n');
}

function unreadLines({ tag, key, source, address, problem, hint }: TestedReport): string[] {
  const where = `${plain(source)}${address === null ? '' : ` ${plain(address)}`}`;
  return [`${plain(tag)} ${key} (${where}): ${plain(problem ?? '')}`, ...(hint === null ? [] : [`  ${plain(hint)}`])];
}

/** Ready for tags.yaml: below a tag's `values:`, or blocks of their own that many tags may share. */
export function scannedLines(source: string, found: readonly ScannedValue[], isLike: boolean): string {
  if (found.length === 0) return '# nothing was found in what was named';
  if (!isLike) return ['    values:', ...valueLines(source, found, '      ')].join('\n');
  const { alike, rest } = findAlike(found);
  const blocks = rest.length > 0 ? [...alike, { values: rest, tags: [] }] : alike;
  const lines = blocks.flatMap(({ values, tags }, at) => {
    const name = yamlText(at === 0 ? source : `${source}_${at + 1}`);
    const members = (tag: string) => `#   ${yamlText(tag)}: { asset: …, like: ${name} }`;
    return [`  ${name}:`, ...valueLines(source, values, '    '), ...tags.map(members)];
  });
  return ['like:', ...lines].join('\n');
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

/** As it can stand in tags.yaml, where `${` begins a placeholder: names of other people's topics may hold anything. */
function yamlText(value: string | number): string {
  if (typeof value === 'number') return String(value);
  const isPlain =
    /^[A-Za-z_][A-Za-z0-9_. -]*[A-Za-z0-9_]$|^[A-Za-z_]$/.test(value) &&
    !/^(true|false|null|yes|no|on|off|y|n)$/i.test(value);
  return isPlain ? value : visible(JSON.stringify(value.replaceAll('${', () => '$${')));
}
