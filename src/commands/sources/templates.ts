/**
 * Proposes templates for scanned values whose addresses differ in only one word, which becomes the tag. For example,
 * `plant/P-1/flow` and `plant/P-2/flow` become `plant/{tag}/flow`.
 */
import { ScannedNames } from '../../sources/scanned-names.ts';
import type { ScannedValue } from '../../sources/source-kind.ts';

export interface Template {
  /** Values with `{tag}` instead of the word. */
  values: ScannedValue[];
  tags: string[];
}

/** One way to split a scanned value into a tag and a template. */
interface Split {
  found: ScannedValue;
  tag: string;
  /** Part of the address before the tag. */
  prefix: string;
  /** The template as JSON, for comparison. */
  shape: string;
  /** Whether the tag is the final word of the address. */
  isLast: boolean;
  template: ScannedValue;
}

/** Word separators in an address, in order of preference. */
const SEPARATORS = [/[/.=;]/, / /, /_/];
const MAX_TAG = 64;

/** Returns the templates, starting with the one that saves the most lines, and the values without a template. */
export function proposeTemplates(found: readonly ScannedValue[]): { templates: Template[]; rest: ScannedValue[] } {
  const templates: Template[] = [];
  let rest = [...found];
  for (;;) {
    const best = largestGroup(rest);
    if (best === undefined) return { templates, rest };
    templates.push({ values: templateValues(best.splits, best.tags[0]!), tags: best.tags });
    const covered = new Set(best.splits.map((split) => split.found));
    rest = rest.filter((one) => !covered.has(one));
  }
}

interface Group {
  tags: string[];
  splits: Split[];
}

function largestGroup(found: readonly ScannedValue[]): Group | undefined {
  for (const separator of [undefined, ...SEPARATORS]) {
    const splits = found.flatMap((one) => splitsOf(one, separator));
    const groups = [...Map.groupBy(splits, ({ prefix }) => prefix).values()].flatMap(groupsOf);
    const [best] = groups.toSorted((one, other) => savedLines(other) - savedLines(one));
    if (best) return best;
  }
  return undefined;
}

const savedLines = ({ tags, splits }: Group) => splits.length - splits.length / tags.length;

/** Groups tags with the same prefix whose values have the same shapes. */
function groupsOf(samePrefix: readonly Split[]): Group[] {
  const byTag = Map.groupBy(samePrefix, ({ tag }) => tag);
  const signatureOf = (splits: readonly Split[]) => JSON.stringify(splits.map(({ shape }) => shape).toSorted());
  return [...Map.groupBy(byTag, ([, splits]) => signatureOf(splits)).values()]
    .map((same) => ({ tags: same.map(([tag]) => tag), splits: same.flatMap(([, splits]) => splits) }))
    .filter(isLikely);
}

/**
 * The final word of an address usually identifies a value, not a tag. Accept the final words as tags only if they
 * differ only in their digits.
 */
function isLikely({ tags, splits }: Group): boolean {
  if (tags.length < 2) return false;
  if (splits.some(({ isLast }) => !isLast)) return true;
  const patterns = new Set(tags.map((tag) => tag.replaceAll(/\d+/g, '#')));
  return patterns.size === 1 && /[a-z].*#|#.*[a-z]/i.test([...patterns][0]!);
}

function splitsOf(found: ScannedValue, separator: RegExp | undefined): Split[] {
  if (separator === undefined) {
    const { tag, ...template } = found;
    const shape = JSON.stringify([template.key, template.members]);
    return tag === undefined ? [] : [{ found, tag, prefix: '', shape, isLast: false, template }];
  }
  return Object.entries(found.members).flatMap(([member, address]) =>
    typeof address === 'string' ? splitsAt(found, member, address, separator) : [],
  );
}

function splitsAt(found: ScannedValue, member: string, address: string, separator: RegExp): Split[] {
  const splits: Split[] = [];
  let from = 0;
  for (const word of address.split(separator)) {
    const [before, after] = [address.slice(0, from), address.slice(from + word.length)];
    from += word.length + 1;
    // A number in a JSON pointer is a list index.
    const isName = /^[a-z0-9][\w .-]*$/i.test(word) && (member !== 'at' || !/^\d+$/.test(word));
    if (!isName || word.length > MAX_TAG || word === address) continue;
    const members = { ...found.members, [member]: `${before}{tag}${after}` };
    splits.push({
      found,
      tag: word,
      prefix: `${member} ${before}`,
      shape: JSON.stringify(members),
      isLast: after === '',
      template: { ...found, members },
    });
  }
  return splits;
}

/** Returns the values of a tag, with the tag name removed from their keys. */
function templateValues(splits: readonly Split[], tag: string): ScannedValue[] {
  const names = new ScannedNames();
  const tagInKey = tag.toLowerCase().replaceAll(/[^a-z0-9_-]+/g, '_');
  return splits
    .filter((split) => split.tag === tag)
    .map(({ template }) => {
      const { key, members, sample } = template;
      return { key: names.unique(key === tagInKey ? '' : key.replace(tagInKey, '')), members, sample };
    });
}
