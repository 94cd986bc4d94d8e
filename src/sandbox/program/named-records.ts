import { UsageError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { nearestName } from '../../base/nearest.ts';
import { formOf } from '../site/record-check.ts';
import { KIND_OF_PERMITABLE, KINDS, type Kind } from '../site/records.ts';
import type { AdminClient } from './admin-client.ts';

/** How the sandbox's records are written on the command line. */
export type AnyRecord = { id: number } & Record<string, unknown>;

const NAMES = ['tag', 'serial_number', 'name', 'code', 'email', 'display_name', 'client_id'] as const;

/** `assets`, `asset`, `Asset`, `edge-device`, `EDM::EdgeDevice`. Throws `UsageError` with the nearest kind. */
export function kindOf(text: string): Kind {
  const wanted = squeezed(text);
  const found =
    KINDS.find((kind) => squeezed(kind) === wanted || singulars(kind).includes(wanted)) ??
    Object.entries(KIND_OF_PERMITABLE).find(([type]) => squeezed(type) === wanted)?.[1];
  if (found !== undefined) return found;
  const spelled = text.toLowerCase().replaceAll(/[^a-z]+/g, '_');
  const hint = nearestHint(spelled, KINDS, '`tagferry sandbox ls` shows the kinds.');
  throw new UsageError(`${JSON.stringify(text)} is no kind of object`, hint);
}

/** What people call a record: its tag, serial number, name, code or address. */
export function nameOf(record: AnyRecord): string {
  const name = NAMES.map((member) => record[member]).find((value) => typeof value === 'string' && value !== '');
  return plain(String(name ?? record.id));
}

/** `881`, `asset/881` or `FT-101`: the id. Throws `UsageError` with the nearest name. */
export async function idOf(client: AdminClient, kind: Kind, text: string): Promise<number> {
  const [, prefix, rest] = /^([A-Za-z_:-]+)\/(.+)$/.exec(text) ?? [undefined, undefined, text];
  if (prefix !== undefined && kindOf(prefix) !== kind) {
    throw new UsageError(`${JSON.stringify(text)} is none of ${kind}`, `Write the id or the name of one of ${kind}.`);
  }
  const records = await recordsOf(client, kind);
  // A number is an id first, then perhaps a serial number; what is neither the sandbox refuses in its own words.
  const isNumber = /^\d{1,15}$/.test(rest!);
  if (isNumber && records.some(({ id }) => id === Number(rest))) return Number(rest);
  const found = records.filter((record) => NAMES.some((member) => record[member] === rest));
  if (found.length === 1) return found[0]!.id;
  if (found.length > 1) {
    const ids = found.map(({ id }) => id).join(', ');
    throw new UsageError(`${found.length} of ${kind} are called ${JSON.stringify(rest)}`, `Write an id: ${ids}.`);
  }
  if (isNumber) return Number(rest);
  const known = records.map(nameOf);
  throw new UsageError(
    `none of ${kind} is called ${JSON.stringify(rest)}`,
    nearestHint(rest!, known, `\`tagferry sandbox ls ${kind}\` shows which there are.`),
  );
}

export async function recordsOf(client: AdminClient, kind: Kind): Promise<AnyRecord[]> {
  const { objects } = await client.get<{ objects: AnyRecord[] }>(`objects/${kind}`);
  return objects;
}

/** `name=value` pairs as members of a record: JSON where it reads as such, text where the kind wants text. */
export function membersOf(words: readonly string[], kind?: Kind): Record<string, unknown> {
  return Object.fromEntries(
    words.map((word) => {
      const at = word.indexOf('=');
      if (at < 1) throw new UsageError(`${JSON.stringify(word)} is not name=value`, 'Write for example status=71.');
      const name = word.slice(0, at);
      return [name, memberValue(word.slice(at + 1), kind !== undefined && formOf(kind, name) === 'text')];
    }),
  );
}

function memberValue(text: string, isText: boolean): unknown {
  if (isText) return text;
  // A list of ids, as people write one.
  if (/^\d+(,\d+)+$/.test(text)) return text.split(',').map(Number);
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

function singulars(kind: string): string[] {
  const short = squeezed(kind);
  return [short.replace(/ies$/, 'y'), short.replace(/es$/, ''), short.replace(/s$/, ''), short.replace('sof', 'of')];
}

function squeezed(text: string): string {
  return text.toLowerCase().replaceAll(/[^a-z]/g, '');
}

/** What was most likely meant by a name that nothing has, or else where the known ones are listed. */
export function nearestHint(text: string, known: Iterable<string>, otherwise: string): string {
  const nearest = nearestName(text, known);
  return nearest?.likely ? `Did you mean ${nearest.name}? ${otherwise}` : otherwise;
}
