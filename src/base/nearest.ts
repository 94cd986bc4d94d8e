/** Known name that most closely matches a misspelled one. */
export interface Nearest {
  name: string;
  /** Whether the match is close enough to be the intended name. */
  likely: boolean;
}

/** Maximum length of compared text. The algorithm takes quadratic time, and the text is external. */
const MAX_LETTERS = 128;

/**
 * Returns the closest candidate, ignoring case, or `undefined` if there are no candidates. If several candidates are
 * equally close, returns the first one.
 */
export function nearestName(name: string, candidates: Iterable<string>): Nearest | undefined {
  const wanted = name.slice(0, MAX_LETTERS).toLowerCase();
  let best: { name: string; distance: number } | undefined;
  for (const candidate of candidates) {
    const distance = editDistance(wanted, candidate.slice(0, MAX_LETTERS).toLowerCase());
    if (best === undefined || distance < best.distance) best = { name: candidate, distance };
  }
  if (best === undefined) return undefined;
  // A name in which every letter differs is not a typo.
  const kept = best.distance < Math.max(wanted.length, best.name.length);
  const near = kept && best.distance <= Math.max(2, Math.floor(wanted.length / 3));
  return { name: best.name, likely: near || begins(wanted, best.name.toLowerCase()) };
}

/**
 * Matches `warning` with `warn` and `oldest` with `drop-oldest`: one name is a prefix or word of the other and longer
 * than two letters.
 */
function begins(one: string, other: string): boolean {
  if (Math.min(one.length, other.length) < 3) return false;
  return one.startsWith(other) || other.startsWith(one) || other.split('-').includes(one);
}

/** Describes an invalid choice. Lists the choices unless `insteadOf` does. */
export function noneOf(text: string, candidates: readonly string[]): string {
  return nearestName(text, candidates)?.likely ? `is not one of ${candidates.join(', ')}` : 'is unknown';
}

/** Suggests the closest known name. */
export function insteadOf(name: string, candidates: readonly string[], quote = '"'): string {
  const nearest = nearestName(name, candidates);
  if (nearest === undefined) return 'remove it';
  if (nearest.likely || candidates.length === 1) return `use ${quote}${nearest.name}${quote}`;
  if (candidates.length <= 12) {
    const others = candidates.map((candidate) => `${quote}${candidate}${quote}`).join(', ');
    return `use one of ${others} (the nearest is ${quote}${nearest.name}${quote})`;
  }
  return `remove it (the nearest known is ${quote}${nearest.name}${quote})`;
}

/** Returns the number of inserted, removed, changed and swapped letters. */
function editDistance(one: string, other: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: other.length + 1 }, (_, index) => index);
  for (let i = 1; i <= one.length; i++) {
    const row = [i];
    for (let j = 1; j <= other.length; j++) {
      const same = one[i - 1] === other[j - 1];
      let cost = Math.min(row[j - 1]! + 1, last[j]! + 1, last[j - 1]! + (same ? 0 : 1));
      if (i > 1 && j > 1 && one[i - 1] === other[j - 2] && one[i - 2] === other[j - 1]) {
        cost = Math.min(cost, beforeLast[j - 2]! + 1);
      }
      row.push(cost);
    }
    beforeLast = last;
    last = row;
  }
  return last[other.length]!;
}
