import { insteadOf } from '../base/nearest.ts';
import { escapePointer, isMapping, type YamlFile } from './placed-yaml.ts';
import { type Place, type Problems, printable } from './problem.ts';
import { checkShape, compileSchema, type SchemaVerdict } from './schema-problems.ts';
import type { MemberReport, Members, SourceKinds, SourceReading } from './source-kinds.ts';
import { kindOf, readSource, reportAt, type TagsContext } from './source-reading.ts';
import type { Source, Tag, Tags, TagValue, ValueOrigin } from './tags.ts';
import { tagsSchema } from './tags-schema.ts';
import { reportUnknownKinds } from './unknown-kinds.ts';
import { readValueMap } from './value-map.ts';
import { kindByMembers, originMembersOf, readOrigin } from './value-reading.ts';
import { WrittenTargets } from './writable.ts';

interface RawTag {
  asset: number;
  instrumentation?: number;
}

/**
 * Valid tags and all tag names. Names of invalid tags are included so that references to them are not reported as
 * unknown.
 */
export interface ReadTags extends Tags {
  tagNames: readonly string[];
  sourceKinds: ReadonlyMap<string, SourceReading | undefined>;
  placeOfTag(name: string): Place;
  placeOfSource(name: string): Place;
  /** The file exists but could not be parsed, so an unknown name may be defined there. */
  unknown?: true;
}

export const NO_TAGS: ReadTags = {
  sources: new Map(),
  tags: new Map(),
  tagNames: [],
  sourceKinds: new Map(),
  placeOfTag: () => ({ file: 'tags.yaml', line: 1, column: 1 }),
  placeOfSource: () => ({ file: 'tags.yaml', line: 1, column: 1 }),
};

/** Validates tags.yaml against the schema and checks its meaning. Invalid parts are reported and omitted. */
export function readTags(file: YamlFile, problems: Problems, context: TagsContext): ReadTags {
  if (file.data === undefined) {
    warnOfNoTags({ file: file.name, line: 1, column: 1 }, 'contains no tags', problems);
    return NO_TAGS;
  }
  const schema = tagsSchema(context.kinds);
  const explained = reportUnknownKinds(file, schema, problems, context.kinds);
  const verdict = checkShape(compileSchema(schema), file, problems, explained);
  const data = (verdict.isBroken('') && typeof file.data !== 'object' ? {} : file.data) as Record<string, unknown>;
  const rawTags = entriesOf(data.tags);
  const sourceKinds = new Map<string, SourceReading | undefined>();
  const sources = new Map<string, Source>();
  for (const [name, raw] of entriesOf(data.sources)) {
    const at = `/sources/${escapePointer(name)}`;
    const sound = !verdict.isBroken(at);
    sourceKinds.set(name, isMapping(raw) ? kindOf(raw, context.kinds) : undefined);
    const rest = sound ? (raw as Members) : soundMembers(raw, at, verdict);
    // An invalid kind has already been reported. In a source with other errors, the address may still be readable.
    const isReadable = sound || kindOf(rest, context.kinds) !== undefined;
    const source = isReadable ? readSource(name, rest, at, file, problems, context) : undefined;
    if (sound && source !== undefined) sources.set(name, source);
  }
  const reportOf = (name: string) => {
    const at = `/sources/${escapePointer(name)}`;
    const raw = (data.sources as Record<string, Members>)[name]!;
    return reportAt((member) => `${at}/${escapePointer(member)}`, name, raw, file, problems, context.directory);
  };
  for (const kind of context.kinds) {
    const compared = [...sources.values()].filter((source) => source.kind === kind.kind);
    kind.compareSources?.(compared.map((source) => ({ source, report: reportOf(source.name) })));
  }
  const reader = new TagReader(file, verdict, { sourceKinds, sources, like: entriesOf(data.like) }, problems, context);
  const tags = new Map<string, Tag>();
  for (const [name, raw] of rawTags) {
    const tag = isMapping(raw) ? reader.read(name, raw) : undefined;
    if (tag !== undefined) tags.set(name, tag);
  }
  for (const source of sources.values()) {
    if (hasArrivalTimesInGroup(source, context.kinds, tags)) {
      const reason =
        `agents in the group "${printable(groupOf(source, context.kinds)!)}" can assign the same time to two values of one series, ` +
        'and the platform keeps only one of them';
      reportOf(source.name).warning(source.kind, reason, 'add time: to the values');
    }
  }
  if (rawTags.length === 0 && !verdict.isBroken('/tags'))
    warnOfNoTags(file.placeOf('/tags'), 'contains no tags', problems);
  const place = (part: string, name: string) => file.placeOfName(`/${part}/${escapePointer(name)}`);
  return {
    sources,
    tags,
    tagNames: rawTags.map(([name]) => name),
    sourceKinds,
    placeOfTag: (name) => place('tags', name),
    placeOfSource: (name) => place('sources', name),
  };
}

function groupOf(source: Source, kinds: SourceKinds): string | undefined {
  return kinds.find(({ kind }) => kind === source.kind)?.groupOf?.(source.spec);
}

/** Returns whether several agents in a group would assign their own arrival times to values of this source. */
function hasArrivalTimesInGroup(source: Source, kinds: SourceKinds, tags: ReadonlyMap<string, Tag>): boolean {
  if (groupOf(source, kinds) === undefined) return false;
  const hasTime = kinds.find(({ kind }) => kind === source.kind)?.hasTime ?? (() => false);
  const origins = [...tags.values()].flatMap(({ values }) => [...values.values()].map(({ from }) => from));
  return origins.some((from) => from?.source === source.name && (source.timeFrom === 'arrival' || !hasTime(from.spec)));
}

/** Warns about missing tags. This is not an error, because programs can push values by asset number. */
export function warnOfNoTags(place: Place, what: string, problems: Problems): void {
  problems.warning(
    place,
    `the file ${what}, so only values pushed by asset number are accepted`,
    'add tags: with one tag per measuring point',
  );
}

interface Named {
  sourceKinds: ReadonlyMap<string, SourceReading | undefined>;
  sources: ReadonlyMap<string, Source>;
  like: readonly [string, unknown][];
}

class TagReader {
  readonly #file: YamlFile;
  readonly #verdict: SchemaVerdict;
  readonly #named: Named;
  readonly #like: ReadonlyMap<string, readonly [string, unknown][]>;
  readonly #problems: Problems;
  readonly #context: TagsContext;
  /** First value with each destination, to detect duplicates. */
  readonly #taken = new Map<string, { tag: string; key: string; at: string }>();
  readonly #targets = new WrittenTargets<{ tag: string; key: string; at: string }>();
  /** Problems reported for shared values under `like`, so that they are not repeated for each tag. */
  readonly #reported = new Set<string>();

  constructor(file: YamlFile, verdict: SchemaVerdict, named: Named, problems: Problems, context: TagsContext) {
    this.#file = file;
    this.#verdict = verdict;
    this.#named = named;
    this.#like = new Map(named.like.map(([name, values]) => [name, entriesOf(values)]));
    this.#problems = problems;
    this.#context = context;
  }

  read(name: string, raw: Record<string, unknown>): Tag | undefined {
    const at = `/tags/${escapePointer(name)}`;
    const assetIsSound = typeof raw.asset === 'number' && !this.#verdict.isBroken(`${at}/asset`);
    const apart = this.#context.byInstrumentation ? raw.instrumentation : undefined;
    const target = `${raw.asset}${typeof apart === 'number' ? ` of instrumentation ${apart}` : ''}`;
    const isSound = assetIsSound && !this.#verdict.isBroken(`${at}/instrumentation`);
    const { asset, instrumentation } = raw as unknown as RawTag;
    const tag = { name, asset, ...(instrumentation === undefined ? {} : { instrumentation }) };
    const values = new Map<string, TagValue>();
    const spelt = new Map<string, string>();
    for (const [, written] of valuesOf(entriesOf(raw.values), `${at}/values`, this.#likeOf(raw, at))) {
      const key = lastPart(written.at);
      if (this.#verdict.isBroken(written.at)) {
        // Also check whether the source exists, so that all problems are reported at once.
        const { from } = written.members;
        if (typeof from === 'string' && !written.isShared) this.#kindOf(from, written.pointerOf('from'));
        continue;
      }
      const earlier = spelt.get(key.toLowerCase());
      if (earlier !== undefined) {
        const { line } = this.#file.placeOfName(`${at}/values/${escapePointer(earlier)}`);
        const reason = `"${key}" and "${earlier}" on line ${line} are the same key, because the platform converts keys to lower case`;
        this.#problems.error(this.#file.placeOfName(written.at), reason, 'rename one of them', key);
        continue;
      }
      spelt.set(key.toLowerCase(), key);
      const read = this.#readValue(key, written, tag, isSound);
      if (assetIsSound && this.#isTaken(target, name, key, written, `${at}/like`)) continue;
      if (read !== undefined) values.set(read.key, read);
    }
    return isSound ? { ...tag, values } : undefined;
  }

  #likeOf(
    raw: Record<string, unknown>,
    at: string,
  ): { name: string; values: readonly [string, unknown][] } | undefined {
    const { like } = raw;
    if (typeof like !== 'string') return undefined;
    const values = this.#like.get(like);
    if (values !== undefined) return { name: like, values };
    const names = [...this.#like.keys()];
    const instead = names.length === 0 ? `add "${printable(like)}" under like:` : insteadOf(like, names);
    this.#problems.error(this.#file.placeOf(`${at}/like`), `unknown template "${printable(like)}"`, instead, like);
    return undefined;
  }

  #readValue(key: string, written: WrittenValue, tag: Omit<Tag, 'values'>, isSound: boolean): TagValue | undefined {
    const { unit, group } = written.members as { unit?: number | { code: string }; group?: string };
    const problems = this.#problemsOf(written);
    const reportOf = (raw: Members) =>
      reportAt((one) => written.pointerOf(one), key, raw, this.#file, problems, this.#context.directory);
    const map = readValueMap(written.members, reportOf(written.members));
    if (map === undefined && written.members.map !== undefined) return undefined;
    const value: TagValue = {
      key: key.toLowerCase(),
      ...(group === undefined ? {} : { group: group.toLowerCase() }),
      ...(unit === undefined ? {} : { unit: typeof unit === 'number' ? { id: unit } : { code: unit.code } }),
      ...(map === undefined ? {} : { map }),
    };
    const { from } = written.members;
    if (from === undefined) {
      const [member] = originMembersOf(written.members);
      if (member === undefined) return value;
      const reason = `"${member}" requires a source, and "${printable(key)}" has no from:`;
      const place = this.#file.placeOfName(written.pointerOf(member));
      problems.error(place, reason, 'add from: with a source name, or remove it', member);
      return undefined;
    }
    const known = this.#kindOf(String(from), written.pointerOf('from'));
    const kind = known ?? kindByMembers(written.members, this.#context.kinds);
    // A tag without an asset is not read, but its sources have been checked.
    if (kind === undefined || !isSound) return undefined;
    const filled = fillIn(written.members, tag);
    if ('unfilled' in filled) {
      const place = this.#file.placeOf(written.pointerOf(filled.unfilled));
      const reason = `tag "${printable(tag.name)}" has no instrumentation for {instrumentation}`;
      this.#problems.error(place, reason, 'add instrumentation: with its number', '');
      return undefined;
    }
    const raw = filled.members;
    const report = reportOf(raw);
    const source = this.#named.sources.get(String(from));
    const readable = { raw, template: written.members, at: written.at, pointerOf: written.pointerOf, report };
    const origin = readOrigin(readable, kind, this.#context.kinds, source, this.#file, problems);
    if (origin === undefined || known === undefined) return undefined;
    const owner = { tag: tag.name, key, at: written.at };
    return this.#sharesTarget(origin, known, owner, report) ? undefined : { ...value, from: origin };
  }

  /** Reports a writable value that writes the same register, node, metric or topic as an earlier one. */
  #sharesTarget(
    { source: name, spec, writable }: ValueOrigin,
    { writing }: SourceReading,
    owner: { tag: string; key: string; at: string },
    report: MemberReport,
  ): boolean {
    const source = this.#named.sources.get(name);
    if (writable === undefined || writing === undefined || source === undefined) return false;
    const other = this.#targets.claim(writing.targetsOf(source.spec, spec), owner);
    if (other === undefined) return false;
    const { line } = this.#file.placeOfName(other.at);
    const reason = `the value writes the same target as "${other.key}" of tag "${printable(other.tag)}" on line ${line}`;
    report.problem('writable', reason, 'remove writable from one of them');
    return true;
  }

  /** Returns the list to which problems with a value are added. Problems with shared values are reported only once. */
  #problemsOf(written: WrittenValue): Problems {
    if (!written.isShared) return this.#problems;
    const reported = this.#reported;
    const once = (report: Problems['error']): Problems['error'] => {
      return (place, reason, instead, text) => {
        const id = `${place.file}:${place.line}:${place.column}:${instead}`;
        if (reported.has(id)) return;
        reported.add(id);
        report(place, reason, instead, text);
      };
    };
    const problems = this.#problems;
    return Object.assign(Object.create(problems) as Problems, {
      error: once((...args) => problems.error(...args)),
      warning: once((...args) => problems.warning(...args)),
    });
  }

  /** Returns the kind of the source. Reports a source that does not exist. */
  #kindOf(from: string, pointer: string): SourceReading | undefined {
    const { sourceKinds } = this.#named;
    if (sourceKinds.has(from)) return sourceKinds.get(from);
    const names = [...sourceKinds.keys()];
    const instead = names.length === 0 ? `add "${printable(from)}" under sources:` : insteadOf(from, names);
    const id = `${pointer} ${from}`;
    if (!this.#reported.has(id)) {
      this.#reported.add(id);
      this.#problems.error(this.#file.placeOf(pointer), `unknown source "${printable(from)}"`, instead, from);
    }
    return undefined;
  }

  /** Reports values that have the same destination on the platform and would overwrite each other. */
  #isTaken(target: string, tag: string, key: string, written: WrittenValue, likeAt: string): boolean {
    const groupName = (written.members.group as string | undefined)?.toLowerCase();
    const series = `${target} ${groupName ?? ''} ${key.toLowerCase()}`;
    const at = written.isShared ? likeAt : written.at;
    const earlier = this.#taken.get(series);
    if (earlier === undefined) {
      this.#taken.set(series, { tag, key, at });
      return false;
    }
    const { line } = this.#file.placeOfName(earlier.at);
    const group = groupName === undefined ? '' : ` in group "${groupName}"`;
    const reason = `"${key}" of tag "${printable(tag)}" is the same value as "${earlier.key}" of tag "${printable(earlier.tag)}" on line ${line}: key "${key.toLowerCase()}"${group} of asset ${target}`;
    const text = written.isShared ? '' : key;
    this.#problems.error(this.#file.placeOfName(at), reason, 'change the asset, key or group of one of them', text);
    return true;
  }
}

function lastPart(pointer: string): string {
  return pointer
    .slice(pointer.lastIndexOf('/') + 1)
    .replaceAll('~1', '/')
    .replaceAll('~0', '~');
}

function soundMembers(raw: unknown, at: string, verdict: SchemaVerdict): Members {
  return Object.fromEntries(entriesOf(raw).filter(([member]) => !verdict.isBroken(`${at}/${escapePointer(member)}`)));
}

function entriesOf(data: unknown): [string, unknown][] {
  return isMapping(data) ? Object.entries(data) : [];
}

/** A value of a tag as written in the file, before placeholders are replaced. */
interface WrittenValue {
  members: Members;
  /** Pointer to the value, for problems that concern the whole value. */
  at: string;
  /** Returns the pointer to a member in the tag or in its `like`. */
  pointerOf(member: string): string;
  /** The whole value is defined under `like`, so its problems are reported once rather than per tag. */
  isShared: boolean;
}

/** Returns the values of a tag and its shared values by key. Values of the tag override shared ones. */
function valuesOf(
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
    // Keep a duplicate key within one tag, so that it is reported as a problem.
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

/**
 * Replaces `{tag}` and similar placeholders. Fails if a placeholder requires an instrumentation that the tag does not
 * have.
 */
function fillIn(
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
