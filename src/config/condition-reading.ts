import { nounFor } from '../base/amounts.ts';
import { insteadOf, nearestName } from '../base/nearest.ts';
import type { EventType } from '../contract/events.ts';
import { isMembers, namesObjectOf, type Outline, outlineAt, pathsOf } from './event-outline.ts';
import { escapePointer, type YamlFile } from './placed-yaml.ts';
import { type Place, type Problems, printable, shown } from './problem.ts';
import type { Condition, NamedTag } from './reactions.ts';
import type { ReadTags } from './read-tags.ts';

type Scalar = string | number | boolean | null;
export type RawCondition = Scalar | Scalar[] | { above?: number; below?: number };

/** Why a condition never holds for an event type, and what to write instead. */
interface Obstacle {
  reason: string;
  instead: string;
  /** It is about a member that the spec does not show beside others: the platform may send it all the same. */
  mayBeSent?: true;
}

/**
 * Reads the conditions of one reaction. A condition that cannot be understood is an error; one that can never hold for any of
 * the types is explained as a warning, since a platform may send more than the spec shows. `undefined` where one is wrong.
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
      const never = first!.mayBeSent ? 'the rule will hardly match' : 'the rule can never match';
      problems.warning(place, `${never}: ${first!.reason}`, first!.instead, path);
      explained = true;
    } else if (Array.isArray(written)) {
      explainMembers(condition, types, pointer, file, problems);
    }
    possible = new Set([...possible].filter((type) => obstacles.get(type) === undefined));
  }
  if (sound && !explained && types.length > 0 && possible.size === 0) {
    const reason = 'the rule can never match: no event type of its "on" has all that its "if" names';
    problems.warning(file.placeOfName(at), reason, 'make a rule for each event type', '');
  }
  return sound ? conditions : undefined;
}

/** One name of a tag, or a list of them: any of these. `undefined` where one is wrong. */
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

function readTag(
  written: RawCondition,
  pointer: string,
  file: YamlFile,
  tags: ReadTags,
  problems: Problems,
): NamedTag | undefined {
  if (typeof written === 'object') {
    const instead = 'write one name, or a list of names';
    problems.error(file.placeOf(pointer), `${shown(written)} is not the name of a tag`, instead, '');
    return undefined;
  }
  const name = String(written);
  const tag = tags.tags.get(name);
  if (tag !== undefined) {
    const { asset, instrumentation } = tag;
    return { tag: name, asset, ...(instrumentation === undefined ? {} : { instrumentation }) };
  }
  if (!tags.tagNames.includes(name) && !tags.unknown) {
    const instead =
      tags.tagNames.length === 0 ? `add "${printable(name)}" under tags: in tags.yaml` : insteadOf(name, tags.tagNames);
    problems.error(file.placeOf(pointer), `there is no tag "${printable(name)}" in tags.yaml`, instead, name);
  }
  return undefined;
}

/** A list holds as soon as one of it does; what can never be that one is most likely a slip. */
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
    problems.warning(file.placeOf(`${pointer}/${index}`), `this one can never match: ${reason}`, instead, name);
  }
}

function readPath(path: string, written: RawCondition): Condition {
  if (Array.isArray(written)) return { kind: 'equals', path, anyOf: written };
  if (typeof written === 'object' && written !== null) return { kind: 'range', path, ...written };
  return { kind: 'equals', path, anyOf: [written] };
}

/** A path that names nothing is wrong itself; else it is what stands behind it. */
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
  // A member that is missing counts as null, so null may always come.
  if (condition.kind === 'equals' && condition.anyOf.includes(null)) return undefined;
  const outline = outlineAt(type, condition.path);
  if (outline === undefined) return unknownPath(condition.path, type, types);
  if (isMembers(outline)) {
    const members = Object.keys(outline);
    return {
      reason: `"${condition.path}" is no single value`,
      instead: `write one of ${members.map((member) => `"${condition.path}.${member}"`).join(', ')}`,
    };
  }
  return condition.kind === 'range' ? rangeObstacle(condition, outline) : equalsObstacle(condition, outline);
}

function tagsObstacle(tags: readonly NamedTag[], type: EventType, types: readonly EventType[]): Obstacle | undefined {
  if (tags.some((tag) => namesObjectOf(type, tag))) return undefined;
  const naming = types.length === 1 ? `${type} names` : 'these events name';
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
    return { reason: `${whose} no "${path}", paths start in content`, instead: `write "${within}"` };
  }
  const beside = membersBeside(path, type);
  if (beside.length > 0) {
    const where = types.length === 1 ? type : 'these events';
    const names = beside.map((member) => `"${member}"`);
    const instead = names.length === 1 ? `write ${names[0]}` : `write one of ${names.join(', ')}`;
    return { reason: `the spec does not show "${path}" in ${where}`, instead, mayBeSent: true };
  }
  const nearest = nearestName(path, paths);
  const example = types.includes('threshold_reached') ? 'data.value' : paths[0];
  const instead = nearest?.likely ? `write "${nearest.name}"` : `write a path of the event, for example "${example}"`;
  return { reason: `${whose} no "${path}"`, instead };
}

/**
 * What the spec shows in place of the last name of a path, where the rest is right and the name no slip of one of these. Nobody
 * compares an `href`, so it is named only where nothing else is.
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
      instead: 'write an above that is less than below',
    };
  }
  // A text may be a number that the platform sends as text; one of a few words is none.
  if (!Array.isArray(outline)) return undefined;
  const reason = `"${path}" is a word, and above and below compare numbers`;
  return { reason, instead: `write one of ${outline.join(', ')}` };
}

/** As reactions compare: a number also with text that is a number, everything else strictly. */
function equalsObstacle(condition: Condition & { kind: 'equals' }, outline: Outline): Obstacle | undefined {
  const { path, anyOf } = condition;
  const [first] = anyOf;
  if (outline === 'open' || first === undefined) return undefined;
  const numbers = anyOf.filter((one) => typeof one === 'number');
  const texts = anyOf.filter((one) => typeof one === 'string');
  if (outline === 'number') {
    if (numbers.length > 0) return undefined;
    const bare = typeof first === 'string' && first.trim() !== '' && Number.isFinite(Number(first));
    const instead = bare ? `write ${first} without quotes` : 'write a number';
    return { reason: `"${path}" is a number, never ${shown(first)}`, instead };
  }
  if (outline === 'text') {
    if (texts.length + numbers.length > 0) return undefined;
    return { reason: `"${path}" is text, never ${shown(first)}`, instead: `write "${first}" in quotes` };
  }
  if (!Array.isArray(outline) || texts.some((one) => outline.includes(one))) return undefined;
  return { reason: `"${path}" is never ${shown(first)}`, instead: insteadOf(String(first), outline) };
}
