import { nounFor } from '../base/amounts.ts';
import { insteadOf, nearestName } from '../base/nearest.ts';
import type { EventType } from '../contract/events.ts';
import { isMembers, namesObjectOf, type Outline, outlineAt, pathsOf } from './event-outline.ts';
import { escapePointer, type YamlFile } from './placed-yaml.ts';
import { type Place, type Problems, printable, shown } from './problem.ts';
import type { Condition, NamedTag } from './reactions.ts';
import type { ReadTags } from './read-tags.ts';

type Scalar = string | number | boolean | null;
export type RawCondition = Scalar | Scalar[] | { above?: number; below?: number; change?: number; per?: string };

/** Reason why a condition never matches an event type, and the suggested correction. */
interface Obstacle {
  reason: string;
  instead: string;
  /** The member is undocumented, but the platform may send it. */
  mayBeSent?: true;
}

/**
 * Reads the conditions of one reaction. An invalid condition is an error. A condition that cannot match any of the
 * event types is a warning, because the platform may send undocumented members. Returns `undefined` after reporting an
 * error.
 */
export function readConditions(
  raw: Readonly<Record<string, RawCondition>>,
  types: readonly EventType[],
  at: string,
  isBroken: (pointer: string) => boolean,
  file: YamlFile,
  tags: ReadTags,
  problems: Problems,
): Condition[] | undefined {
  const conditions: Condition[] = [];
  let possible = new Set(types);
  let sound = true;
  let explained = false;
  for (const [path, written] of Object.entries(raw)) {
    const pointer = `${at}/${escapePointer(path)}`;
    if (isBroken(pointer)) {
      sound = false;
      continue;
    }
    if (isRate(written)) {
      problems.error(
        file.placeOf(pointer),
        `"${path}" can only be compared with above and below`,
        'use a value such as { above: 20 }',
        path,
      );
      sound = false;
      continue;
    }
    const condition = path === 'tag' ? readTags(written, pointer, file, tags, problems) : readPath(path, written);
    if (condition === undefined) {
      sound = false;
      continue;
    }
    conditions.push(condition);
    const obstacles = new Map(types.map((type) => [type, obstacleOf(condition, type, types)]));
    const [first] = obstacles.values();
    if (types.length > 0 && [...obstacles.values()].every((obstacle) => obstacle !== undefined)) {
      const place = condition.kind === 'tag' ? file.placeOf(pointer) : placeOfFault(condition, types, pointer, file);
      const never = first!.mayBeSent ? 'the rule probably never matches' : 'the rule can never match';
      problems.warning(place, `${never}: ${first!.reason}`, first!.instead, path);
      explained = true;
    } else if (Array.isArray(written)) {
      explainMembers(condition, types, pointer, file, problems);
    }
    possible = new Set([...possible].filter((type) => obstacles.get(type) === undefined));
  }
  if (sound && !explained && types.length > 0 && possible.size === 0) {
    const reason = 'the rule can never match: no event type in "on" contains every member in "if"';
    problems.warning(file.placeOfName(at), reason, 'use one rule per event type', '');
  }
  return sound ? conditions : undefined;
}

/** Reads one tag name or a list of alternatives. Returns `undefined` after reporting an unknown tag. */
function readTags(
  written: RawCondition,
  pointer: string,
  file: YamlFile,
  tags: ReadTags,
  problems: Problems,
): Condition | undefined {
  const read = (one: RawCondition, at: string) => readTag(one, at, file, tags, problems);
  const found = Array.isArray(written)
    ? written.map((one, index) => read(one, `${pointer}/${index}`))
    : [read(written, pointer)];
  const anyOf = found.filter((one) => one !== undefined);
  return anyOf.length === found.length ? { kind: 'tag', anyOf } : undefined;
}

/** Reads a tag name. Returns `undefined` after reporting an unknown tag. */
export function readTag(
  written: RawCondition,
  pointer: string,
  file: YamlFile,
  tags: ReadTags,
  problems: Problems,
): NamedTag | undefined {
  if (typeof written === 'object') {
    const instead = 'use a tag name or a list of tag names';
    problems.error(file.placeOf(pointer), `${shown(written)} is not a tag name`, instead, '');
    return undefined;
  }
  const name = file.textOf(pointer) ?? String(written);
  const tag = tags.tags.get(name);
  if (tag !== undefined) {
    const { asset, instrumentation } = tag;
    return { tag: name, asset, ...(instrumentation === undefined ? {} : { instrumentation }) };
  }
  if (!tags.tagNames.includes(name) && !tags.unknown) {
    const instead =
      tags.tagNames.length === 0 ? `add "${printable(name)}" under tags: in tags.yaml` : insteadOf(name, tags.tagNames);
    problems.error(file.placeOf(pointer), `tags.yaml contains no tag "${printable(name)}"`, instead, name);
  }
  return undefined;
}

/**
 * Warns about list items that can never match. The condition matches if any item does, so such an item is probably a
 * typo.
 */
function explainMembers(
  condition: Condition,
  types: readonly EventType[],
  pointer: string,
  file: YamlFile,
  problems: Problems,
): void {
  if (condition.kind === 'range' || types.length === 0) return;
  for (const [index, member] of condition.anyOf.entries()) {
    const alone = { ...condition, anyOf: [member] } as Condition;
    const obstacles = types.map((type) => obstacleOf(alone, type, types));
    if (obstacles.includes(undefined)) continue;
    const { reason, instead } = obstacles[0]!;
    const name = condition.kind === 'tag' ? (member as NamedTag).tag : String(member);
    problems.warning(file.placeOf(`${pointer}/${index}`), `this tag can never match: ${reason}`, instead, name);
  }
}

function readPath(path: string, written: RawCondition): Condition {
  if (Array.isArray(written)) return { kind: 'equals', path, anyOf: written };
  if (typeof written === 'object' && written !== null) return { kind: 'range', path, ...written };
  return { kind: 'equals', path, anyOf: [written] };
}

function isRate(written: RawCondition): boolean {
  return typeof written === 'object' && written !== null && ('change' in written || 'per' in written);
}

/** Returns the location of the value if an event type documents the path, otherwise the location of the path. */
function placeOfFault(condition: Condition, types: readonly EventType[], pointer: string, file: YamlFile): Place {
  const path = condition.kind === 'tag' ? '' : condition.path;
  const known = types.some((type) => {
    const outline = outlineAt(type, path);
    return outline !== undefined && !isMembers(outline);
  });
  return known ? file.placeOf(pointer) : file.placeOfName(pointer);
}

function obstacleOf(condition: Condition, type: EventType, types: readonly EventType[]): Obstacle | undefined {
  if (condition.kind === 'tag') {
    return tagsObstacle(condition.anyOf, type, types);
  }
  // A missing member counts as null, so null can always match.
  if (condition.kind === 'equals' && condition.anyOf.includes(null)) return undefined;
  const outline = outlineAt(type, condition.path);
  if (outline === undefined) return unknownPath(condition.path, type, types);
  if (isMembers(outline)) {
    const members = Object.keys(outline);
    return {
      reason: `"${condition.path}" is not a single value`,
      instead: `use one of ${members.map((member) => `"${condition.path}.${member}"`).join(', ')}`,
    };
  }
  return condition.kind === 'range' ? rangeObstacle(condition, outline) : equalsObstacle(condition, outline);
}

function tagsObstacle(tags: readonly NamedTag[], type: EventType, types: readonly EventType[]): Obstacle | undefined {
  if (tags.some((tag) => namesObjectOf(type, tag))) return undefined;
  const naming = types.length === 1 ? `${type} contains` : 'these events contain';
  if (!type.startsWith('instrumentation_')) {
    const instead = tags.length === 1 ? 'remove the tag' : 'remove the tags';
    return { reason: `${naming} neither asset nor instrumentation`, instead };
  }
  const whose = tags.length === 1 ? `tag "${printable(tags[0]!.tag)}" has none` : 'none of the tags has one';
  return {
    reason: `${naming} only an instrumentation, and ${whose}`,
    instead: `add instrumentation: to the ${nounFor(tags.length, 'tag')} in tags.yaml`,
  };
}

function unknownPath(path: string, type: EventType, types: readonly EventType[]): Obstacle {
  const whose = types.length === 1 ? `the content of ${type} has` : 'the content of these events has';
  const paths = pathsOf(types);
  const within = path.startsWith('content.') ? path.slice('content.'.length) : undefined;
  if (within !== undefined && paths.includes(within)) {
    return { reason: `${whose} no "${path}"; paths start in content`, instead: `use "${within}"` };
  }
  const beside = membersBeside(path, type);
  if (beside.length > 0) {
    const where = types.length === 1 ? type : 'these events';
    const names = beside.map((member) => `"${member}"`);
    const instead = names.length === 1 ? `use ${names[0]}` : `use one of ${names.join(', ')}`;
    return { reason: `the specification does not mention "${path}" in ${where}`, instead, mayBeSent: true };
  }
  const nearest = nearestName(path, paths);
  const example = types.includes('threshold_reached') ? 'data.value' : paths[0];
  const instead = nearest?.likely ? `use "${nearest.name}"` : `use a path of the event, for example "${example}"`;
  return { reason: `${whose} no "${path}"`, instead };
}

/**
 * Returns the documented siblings of a path's final member if the rest of the path is valid and the final member is not
 * a typo. Omits `href` if there are other members.
 */
function membersBeside(path: string, type: EventType): string[] {
  const end = path.lastIndexOf('.');
  const object = end < 0 ? undefined : outlineAt(type, path.slice(0, end));
  if (object === undefined || !isMembers(object)) return [];
  const all = Object.keys(object);
  if (nearestName(path.slice(end + 1), all)?.likely) return [];
  const members = all.filter((member) => member !== 'href');
  return (members.length > 0 ? members : all).map((member) => `${path.slice(0, end)}.${member}`);
}

function rangeObstacle(condition: Condition & { kind: 'range' }, outline: Outline): Obstacle | undefined {
  const { path, above, below } = condition;
  if (above !== undefined && below !== undefined && above >= below) {
    return {
      reason: `no "${path}" is above ${above} and below ${below}`,
      instead: 'set above to a number less than below',
    };
  }
  // A number can match text, because the platform may send numbers as text, but not a member with a fixed set of words.
  if (!Array.isArray(outline)) return undefined;
  const reason = `"${path}" is text, but above and below compare numbers`;
  return { reason, instead: `use one of ${outline.join(', ')}` };
}

/** Compares values in the same way as reactions: a number matches numeric text; all other comparisons are strict. */
function equalsObstacle(condition: Condition & { kind: 'equals' }, outline: Outline): Obstacle | undefined {
  const { path, anyOf } = condition;
  const [first] = anyOf;
  if (outline === 'open' || first === undefined) return undefined;
  const numbers = anyOf.filter((one) => typeof one === 'number');
  const texts = anyOf.filter((one) => typeof one === 'string');
  if (outline === 'number') {
    if (numbers.length > 0) return undefined;
    const bare = typeof first === 'string' && first.trim() !== '' && Number.isFinite(Number(first));
    const instead = bare ? `use ${first} without quotes` : 'use a number';
    return { reason: `"${path}" is a number, never ${shown(first)}`, instead };
  }
  if (outline === 'text') {
    if (texts.length + numbers.length > 0) return undefined;
    return { reason: `"${path}" is text, never ${shown(first)}`, instead: `use "${first}" in quotes` };
  }
  if (!Array.isArray(outline) || texts.some((one) => outline.includes(one))) return undefined;
  return { reason: `"${path}" is never ${shown(first)}`, instead: insteadOf(String(first), outline) };
}
