/** Parses, filters and prints log lines. */
import { timeText } from '../../base/amounts.ts';
import { plain } from '../../base/foreign-text.ts';
import { parseLogfmt } from '../../base/logfmt.ts';
import type { Paint } from '../../base/table.ts';

export const LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal'] as const;
type Level = (typeof LEVELS)[number];

/** Members of an agent log line. Lines of other programs, such as systemd, contain time, level, `from` and `msg`. */
export interface LogLine {
  level: Level;
  time?: string;
  event?: string;
  msg?: string;
  [member: string]: unknown;
}

/** Levels by syslog(3) priority. */
const OF_PRIORITY: readonly Level[] = ['fatal', 'fatal', 'fatal', 'error', 'warn', 'info', 'info', 'debug'];

/** Parses a line in JSON or logfmt. Any other text, such as a Node warning, becomes the message of a line at `info`. */
export function readLine(text: string): LogLine {
  const found = ownLine(text);
  return found ?? { level: 'info', msg: text };
}

function ownLine(text: string): LogLine | undefined {
  const line = parseLogfmt(text) ?? jsonMembers(text);
  return line && { ...line, level: LEVELS.find((one) => one === line.level) ?? 'info' };
}

function jsonMembers(text: string): Record<string, unknown> | undefined {
  if (!text.startsWith('{')) return undefined;
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return undefined;
  }
}

/** Parses an entry of `journalctl -o json`; `undefined` if it is invalid. */
export function readEntry(text: string): { line: LogLine; cursor: string } | undefined {
  let entry: Record<string, unknown>;
  try {
    entry = JSON.parse(text) as Record<string, unknown>;
  } catch {
    return undefined;
  }
  const message = messageIn(entry.MESSAGE);
  const own = ownLine(message);
  const cursor = String(entry.__CURSOR ?? '');
  const atMs = Number(entry.__REALTIME_TIMESTAMP) / 1_000;
  const time = Number.isFinite(atMs) ? new Date(Math.round(atMs)).toISOString() : undefined;
  if (own) return { line: time === undefined ? own : { time, ...own }, cursor };
  const level = OF_PRIORITY[Number(entry.PRIORITY ?? 6)] ?? 'info';
  const from = String(entry.SYSLOG_IDENTIFIER ?? '');
  const line = { level, ...(time ? { time } : {}), ...(from === '' || from === 'tagferry' ? {} : { from }) };
  return { line: { ...line, msg: message }, cursor };
}

/** The journal encodes text that is not valid UTF-8 as bytes. */
function messageIn(value: unknown): string {
  if (typeof value === 'string') return value;
  return Array.isArray(value) ? Buffer.from(value as number[]).toString('utf8') : '';
}

/** Filter for log lines. A line matches if it refers to any of the `tags` or `assets`. */
export interface Choice {
  level?: Level | undefined;
  events: readonly string[];
  tags: readonly string[];
  /** Platform objects of the tags, for lines that contain only IDs. */
  ofTags?: readonly { asset: number; instrumentation?: number | undefined }[] | undefined;
  assets: readonly number[];
  sinceMs?: number | undefined;
}

export function chooser({ level, events, tags, ofTags = [], assets, sinceMs }: Choice): (line: LogLine) => boolean {
  const rank = level === undefined ? 0 : LEVELS.indexOf(level);
  const patterns = events.map(patternOf);
  return (line) => {
    if (LEVELS.indexOf(line.level) < rank) return false;
    if (sinceMs !== undefined && !(Date.parse(line.time ?? '') >= sinceMs)) return false;
    if (patterns.length > 0 && !patterns.some((pattern) => pattern.test(line.event ?? ''))) return false;
    if (tags.length + assets.length === 0) return true;
    if (assets.some((asset) => namesAsset(line, asset))) return true;
    if (tags.some((tag) => namesTag(line, tag))) return true;
    return !namesAnyTag(line) && ofTags.some((one) => namesObject(line, one));
  };
}

/** `*` is a wildcard. */
function patternOf(text: string): RegExp {
  const parts = text.split('*').map((part) => part.replaceAll(/[^\w]/g, '\\$&'));
  return new RegExp(`^${parts.join('.*')}$`);
}

/** `value` has the form `FT-101 flow`. */
function namesTag({ tag, tags, value }: LogLine, name: string): boolean {
  if (tag === name || (Array.isArray(tags) && tags.includes(name))) return true;
  return typeof value === 'string' && value.startsWith(`${name} `);
}

function namesAnyTag({ tag, tags, value }: LogLine): boolean {
  return typeof tag === 'string' || Array.isArray(tags) || (typeof value === 'string' && value.includes(' '));
}

/** An asset can have several instrumentations. If the line contains one, the instrumentation must match. */
function namesObject(
  line: LogLine,
  { asset, instrumentation }: { asset: number; instrumentation?: number | undefined },
): boolean {
  const { kind, id, instrumentation: named, instrumentations } = line;
  const about = typeof named === 'number' ? named : kind === 'instrumentation' ? id : undefined;
  if (about !== undefined) return about === instrumentation;
  if (Array.isArray(instrumentations)) return instrumentations.includes(instrumentation);
  return namesAsset(line, asset);
}

function namesAsset({ asset, assets, kind, id }: LogLine, number: number): boolean {
  if (asset === number || (Array.isArray(assets) && assets.includes(number))) return true;
  return kind === 'asset' && id === number;
}

const COLOURS = { fatal: 'red', error: 'red', warn: 'yellow', info: 'bold', debug: 'dim', trace: 'dim' } as const;

/** Formats a line: time (UTC), level, event, message, members. Control characters are escaped. */
export function lineText(line: LogLine, paint: Paint): string {
  const { level, time, event, msg, from, ...members } = line;
  const shown = Object.entries(members).map(([name, value]) => `${plain(name)}=${memberText(value)}`);
  const head = [timeText(time), paint(level.toUpperCase().padEnd(5), COLOURS[level])].join(' ');
  const what = [event ?? from, msg].flatMap((part) => (typeof part === 'string' ? [plain(part)] : [])).join('  ');
  return [head, what, ...(shown.length === 0 ? [] : [paint(shown.join(' '), 'dim')])].join('  ');
}

function memberText(value: unknown): string {
  if (typeof value === 'string' && /^[\w.:/@+-]+$/.test(value)) return value;
  return plain(JSON.stringify(value) ?? '');
}
