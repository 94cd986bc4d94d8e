/** The known name that a misspelled one most likely means. */
export interface Nearest {
  name: string;
  /** Whether it is near enough to be what was meant, rather than only the nearest of all. */
  likely: boolean;
}

/** Longer names are not compared letter by letter: the work grows with the square, and text comes from outside. */
const MAX_LETTERS = 128;

/** Without regard to case; `undefined` where nothing is known. Ties go to the earlier candidate. */
export function nearestName(name: string, candidates: Iterable<string>): Nearest | undefined {
  const wanted = name.slice(0, MAX_LETTERS).toLowerCase();
  let best: { name: string; distance: number } | undefined;
  for (const candidate of candidates) {
    const distance = editDistance(wanted, candidate.slice(0, MAX_LETTERS).toLowerCase());
    if (best === undefined || distance < best.distance) best = { name: candidate, distance };
  }
  if (best === undefined) return undefined;
  // With every letter another it is no misspelling, however short.
  const kept = best.distance < Math.max(wanted.length, best.name.length);
  const near = kept && best.distance <= Math.max(2, Math.floor(wanted.length / 3));
  return { name: best.name, likely: near || begins(wanted, best.name.toLowerCase()) };
}

/** `warning` for `warn`, `oldest` for `drop-oldest`: one is the beginning of the other, or a word of it, and no mere letter or two. */
function begins(one: string, other: string): boolean {
  if (Math.min(one.length, other.length) < 3) return false;
  return one.startsWith(other) || other.startsWith(one) || other.split('-').includes(one);
}

/** What is wrong with a text that should be one of a few: says which, unless `insteadOf` does. */
export function noneOf(text: string, candidates: readonly string[]): string {
  return nearestName(text, candidates)?.likely ? `is none of ${candidates.join(', ')}` : 'is unknown';
}

/** What to write instead of an unknown name: always names the nearest known one. */
export function insteadOf(name: string, candidates: readonly string[], quote = '"'): string {
  const nearest = nearestName(name, candidates);
  if (nearest === undefined) return 'remove it';
  if (nearest.likely || candidates.length === 1) return `write ${quote}${nearest.name}${quote}`;
  if (candidates.length <= 12) {
    const others = candidates.map((candidate) => `${quote}${candidate}${quote}`).join(', ');
    return `write one of ${others} (the nearest is ${quote}${nearest.name}${quote})`;
  }
  return `remove it (the nearest known is ${quote}${nearest.name}${quote})`;
}

/** Letters inserted, removed, changed, or swapped with their neighbour. */
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
