/**
 * `like`: values that many tags share. A tag's own values come on top, member by member; `{tag}`, `{asset}` and
 * `{instrumentation}` in texts are filled in, in a tag's own values too.
 */
import { escapePointer } from './placed-yaml.ts';
import type { Members } from './source-kinds.ts';

/** A value of a tag as it stands in the file, before anything is filled in. */
export interface WrittenValue {
  members: Members;
  /** Pointer of the value, where something is said about it as a whole. */
  at: string;
  /** Where a member stands: in the tag, or in what it is like. */
  pointerOf(member: string): string;
  /** It stands under `like` as a whole: what is wrong with it is wrong once, not once a tag. */
  isShared: boolean;
}

/** A tag's own values on top of those that it shares, by key as written. */
export function valuesOf(
  own: readonly [string, unknown][],
  ownAt: string,
  like: { name: string; values: readonly [string, unknown][] } | undefined,
): Map<string, WrittenValue> {
  const written = new Map<string, WrittenValue>();
  const likeAt = `/like/${escapePointer(like?.name ?? '')}`;
  for (const [key, value] of like?.values ?? []) {
    const at = `${likeAt}/${escapePointer(key)}`;
    written.set(key.toLowerCase(), shared((value ?? {}) as Members, at));
  }
  const before = new Map(written);
  const seen = new Set<string>();
  for (const [key, value] of own) {
    const at = `${ownAt}/${escapePointer(key)}`;
    // The same key twice in one tag stays twice: that is a problem, and not of this file.
    const name = seen.has(key.toLowerCase()) ? at : key.toLowerCase();
    seen.add(name);
    const below = before.get(name);
    const members = (value ?? {}) as Members;
    const pointerOf = (member: string) =>
      below === undefined || Object.hasOwn(members, member)
        ? `${at}/${escapePointer(member)}`
        : below.pointerOf(member);
    written.set(name, { members: { ...below?.members, ...members }, at, pointerOf, isShared: false });
  }
  return written;
}

function shared(members: Members, at: string): WrittenValue {
  return { members, at, pointerOf: (member) => `${at}/${escapePointer(member)}`, isShared: true };
}

const PLACEHOLDER = /\{(tag|asset|instrumentation)\}/g;

/** Texts with `{tag}` and its like filled in, or the first that cannot be: an instrumentation that the tag does not have. */
export function fillIn(
  members: Members,
  tag: { name: string; asset: number; instrumentation?: number },
): { members: Members } | { unfilled: string } {
  let filled: Record<string, unknown> | undefined;
  for (const [member, value] of Object.entries(members)) {
    if (typeof value !== 'string' || !value.includes('{')) continue;
    if (value.includes('{instrumentation}') && tag.instrumentation === undefined) return { unfilled: member };
    const words: Record<string, string> = {
      tag: tag.name,
      asset: String(tag.asset),
      instrumentation: String(tag.instrumentation),
    };
    filled ??= { ...members };
    filled[member] = value.replaceAll(PLACEHOLDER, (_, name: string) => words[name]!);
  }
  return { members: filled ?? members };
}
