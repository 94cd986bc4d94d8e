/**
 * What of a scan looks alike: values whose places differ in one word alone, which then is the tag. `plant/P-1/flow` and `plant/P-2/flow` are
 * `plant/{tag}/flow`. A proposal; pure.
 */
import { ScannedNames } from '../sources/scanned-names.ts';
import type { ScannedValue } from '../sources/source-kind.ts';

export interface Alike {
  /** With `{tag}` in the place of the word. */
  values: ScannedValue[];
  tags: string[];
}

/** One way to read a found value: as that of a tag. */
interface Reading {
  found: ScannedValue;
  tag: string;
  /** What values of the same family have in common. */
  family: string;
  /** What of it the tags would share. */
  shape: string;
  /** Nothing stands behind the word. */
  isLast: boolean;
  template: ScannedValue;
}

/** Words of places, the best way to divide them first. */
const DIVIDED_BY = [/[/.=;]/, / /, /_/];
const MAX_TAG = 64;

/** Groups of tags that have the same values, the greatest first, and what is left over. */
export function findAlike(found: readonly ScannedValue[]): { alike: Alike[]; rest: ScannedValue[] } {
  const alike: Alike[] = [];
  let rest = [...found];
  for (;;) {
    const best = greatestOf(rest);
    if (best === undefined) return { alike, rest };
    alike.push({ values: namedAnew(best.readings, best.tags[0]!), tags: best.tags });
    const taken = new Set(best.readings.map((reading) => reading.found));
    rest = rest.filter((one) => !taken.has(one));
  }
}

interface Group {
  tags: string[];
  readings: Reading[];
}

function greatestOf(found: readonly ScannedValue[]): Group | undefined {
  for (const divider of [undefined, ...DIVIDED_BY]) {
    const readings = found.flatMap((one) => readingsOf(one, divider));
    const groups = [...Map.groupBy(readings, ({ family }) => family).values()].flatMap(groupsOf);
    const [best] = groups.toSorted((one, other) => savedBy(other) - savedBy(one));
    if (best) return best;
  }
  return undefined;
}

/** Lines that need not be written. */
const savedBy = ({ tags, readings }: Group) => readings.length - readings.length / tags.length;

/** Of one family: tags that have the same shapes. */
function groupsOf(family: readonly Reading[]): Group[] {
  const byTag = Map.groupBy(family, ({ tag }) => tag);
  const signatureOf = (readings: readonly Reading[]) => JSON.stringify(readings.map(({ shape }) => shape).toSorted());
  return [...Map.groupBy(byTag, ([, readings]) => signatureOf(readings)).values()]
    .map((same) => ({ tags: same.map(([tag]) => tag), readings: same.flatMap(([, readings]) => readings) }))
    .filter(isLikely);
}

/** The last word of a place is more often the name of a value than that of a tag: there the words themselves have to look alike. */
function isLikely({ tags, readings }: Group): boolean {
  if (tags.length < 2) return false;
  if (readings.some(({ isLast }) => !isLast)) return true;
  const patterns = new Set(tags.map((tag) => tag.replaceAll(/\d+/g, '#')));
  return patterns.size === 1 && /[a-z].*#|#.*[a-z]/i.test([...patterns][0]!);
}

function readingsOf(found: ScannedValue, divider: RegExp | undefined): Reading[] {
  if (divider === undefined) {
    const { tag, ...template } = found;
    const shape = JSON.stringify([template.key, template.members]);
    return tag === undefined ? [] : [{ found, tag, family: '', shape, isLast: false, template }];
  }
  return Object.entries(found.members).flatMap(([member, place]) =>
    typeof place === 'string' ? divisionsOf(found, member, place, divider) : [],
  );
}

function divisionsOf(found: ScannedValue, member: string, place: string, divider: RegExp): Reading[] {
  const readings: Reading[] = [];
  let from = 0;
  for (const word of place.split(divider)) {
    const [before, behind] = [place.slice(0, from), place.slice(from + word.length)];
    from += word.length + 1;
    // A number in a pointer is the place in a list.
    const isName = /^[a-z0-9][\w .-]*$/i.test(word) && (member !== 'at' || !/^\d+$/.test(word));
    if (!isName || word.length > MAX_TAG || word === place) continue;
    const members = { ...found.members, [member]: `${before}{tag}${behind}` };
    readings.push({
      found,
      tag: word,
      family: `${member} ${before}`,
      shape: JSON.stringify(members),
      isLast: behind === '',
      template: { ...found, members },
    });
  }
  return readings;
}

/** As the first tag has them, without its own name in their keys. */
function namedAnew(readings: readonly Reading[], tag: string): ScannedValue[] {
  const names = new ScannedNames();
  const own = tag.toLowerCase().replaceAll(/[^a-z0-9_-]+/g, '_');
  return readings
    .filter((reading) => reading.tag === tag)
    .map(({ template }) => {
      const { key, members, sample } = template;
      return { key: names.give(key === own ? '' : key.replace(own, '')), members, sample };
    });
}
