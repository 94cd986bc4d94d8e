import { insteadOf } from '../base/nearest.ts';
import { fillIn, valuesOf, type WrittenValue } from './like.ts';
import { escapePointer, type YamlFile } from './placed-yaml.ts';
import type { Place, Problems } from './problem.ts';
import { printable } from './problem.ts';
import { checkShape, compileSchema, type SchemaVerdict } from './schema-problems.ts';
import type { Members, SourceKinds, SourceReading } from './source-kinds.ts';
import { kindOf, readSource, reportAt, type TagsContext } from './source-reading.ts';
import type { Source, Tag, Tags, TagValue } from './tags.ts';
import { tagsSchema } from './tags-schema.ts';
import { kindByMembers, originMembersOf, readOrigin } from './value-reading.ts';

interface RawTag {
  asset: number;
  instrumentation?: number;
}

/** Tags as far as they are sound, and the names that exist, sound or not: a name that is there is not reported as unknown. */
export interface ReadTags extends Tags {
  tagNames: readonly string[];
  sourceKinds: ReadonlyMap<string, SourceReading | undefined>;
  placeOfTag(name: string): Place;
  placeOfSource(name: string): Place;
  /** The file is there but could not be understood: names that seem unknown may be in it. */
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

/** Reads tags.yaml: its shape by the schema, then its meaning; whatever is wrong is reported and left out. */
export function readTags(file: YamlFile, problems: Problems, context: TagsContext): ReadTags {
  if (file.data === undefined) {
    warnOfNoTags({ file: file.name, line: 1, column: 1 }, 'names no tag', problems);
    return NO_TAGS;
  }
  const verdict = checkShape(compileSchema(tagsSchema(context.kinds)), file, problems);
  const data = (verdict.isBroken('') && typeof file.data !== 'object' ? {} : file.data) as Record<string, unknown>;
  const rawTags = entriesOf(data.tags);
  const sourceKinds = new Map<string, SourceReading | undefined>();
  const sources = new Map<string, Source>();
  for (const [name, raw] of entriesOf(data.sources)) {
    const at = `/sources/${escapePointer(name)}`;
    const sound = !verdict.isBroken(at);
    sourceKinds.set(name, isMapping(raw) ? kindOf(raw, context.kinds) : undefined);
    const rest = sound ? (raw as Members) : soundMembers(raw, at, verdict);
    // A source whose kind is broken has been reported; of another broken one the address can still be read.
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
        `agents of the group "${printable(groupOf(source, context.kinds)!)}" give the same time to two values of one series, ` +
        'of which the platform keeps one';
      reportOf(source.name).warning(
        source.kind,
        reason,
        'add time: to the values, or member: 1/2 with another number on each gateway',
      );
    }
  }
  if (rawTags.length === 0 && !verdict.isBroken('/tags')) warnOfNoTags(file.placeOf('/tags'), 'names no tag', problems);
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

/** Whether agents of a group give values of this source the time of their arrival, each by itself. */
function hasArrivalTimesInGroup(source: Source, kinds: SourceKinds, tags: ReadonlyMap<string, Tag>): boolean {
  if (source.member !== undefined || groupOf(source, kinds) === undefined) return false;
  const hasTime = kinds.find(({ kind }) => kind === source.kind)?.hasTime ?? (() => false);
  const origins = [...tags.values()].flatMap(({ values }) => [...values.values()].map(({ from }) => from));
  return origins.some((from) => from?.source === source.name && (source.timeFrom === 'arrival' || !hasTime(from.spec)));
}

/** Not an error: programs may push by asset number alone. */
export function warnOfNoTags(place: Place, what: string, problems: Problems): void {
  problems.warning(
    place,
    `the file ${what}, so only values pushed by asset number are taken`,
    'add tags: with a tag for each measuring point',
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
  /** Which value already fills a key of an asset. */
  readonly #taken = new Map<string, { tag: string; key: string; at: string }>();
  /** What a value under `like` says wrong, it says for each tag: kept until the first has been reported. */
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
        // Whether its source exists can still be told: one look at the file should be enough.
        const { from } = written.members;
        if (typeof from === 'string' && !written.isShared) this.#kindOf(from, written.pointerOf('from'));
        continue;
      }
      const earlier = spelt.get(key.toLowerCase());
      if (earlier !== undefined) {
        const { line } = this.#file.placeOfName(`${at}/values/${escapePointer(earlier)}`);
        const reason = `"${key}" and "${earlier}" on line ${line} are one key, which the platform lower-cases`;
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
    this.#problems.error(this.#file.placeOf(`${at}/like`), `there is no like "${printable(like)}"`, instead, like);
    return undefined;
  }

  #readValue(key: string, written: WrittenValue, tag: Omit<Tag, 'values'>, isSound: boolean): TagValue | undefined {
    const { unit, group } = written.members as { unit?: number | { code: string }; group?: string };
    const value: TagValue = {
      key: key.toLowerCase(),
      ...(group === undefined ? {} : { group: group.toLowerCase() }),
      ...(unit === undefined ? {} : { unit: typeof unit === 'number' ? { id: unit } : { code: unit.code } }),
    };
    const { from } = written.members;
    if (from === undefined) {
      const [member] = originMembersOf(written.members);
      if (member === undefined) return value;
      const reason = `"${member}" says how to read a source, and "${printable(key)}" names none`;
      const place = this.#file.placeOfName(written.pointerOf(member));
      this.#problemsOf(written).error(place, reason, 'add from: with the name of a source, or remove it', member);
      return undefined;
    }
    const known = this.#kindOf(String(from), written.pointerOf('from'));
    const kind = known ?? kindByMembers(written.members, this.#context.kinds);
    // Without its asset a tag is not read; its sources were looked at.
    if (kind === undefined || !isSound) return undefined;
    const filled = fillIn(written.members, tag);
    if ('unfilled' in filled) {
      const place = this.#file.placeOf(written.pointerOf(filled.unfilled));
      const reason = `tag "${printable(tag.name)}" has no instrumentation to fill in for {instrumentation}`;
      this.#problems.error(place, reason, 'add instrumentation: with its number', '');
      return undefined;
    }
    const problems = this.#problemsOf(written);
    const raw = filled.members;
    const report = reportAt((one) => written.pointerOf(one), key, raw, this.#file, problems, this.#context.directory);
    const everyMs = this.#named.sources.get(String(from))?.everyMs ?? kind.everyMs ?? 0;
    const readable = { raw, template: written.members, at: written.at, pointerOf: written.pointerOf, report };
    const origin = readOrigin(readable, kind, everyMs, this.#file, problems);
    return origin === undefined || known === undefined ? undefined : { ...value, from: origin };
  }

  /** Of what many tags share, each problem once. */
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

  /** What the source of a value is; one that does not exist is reported. */
  #kindOf(from: string, pointer: string): SourceReading | undefined {
    const { sourceKinds } = this.#named;
    if (sourceKinds.has(from)) return sourceKinds.get(from);
    const names = [...sourceKinds.keys()];
    const instead = names.length === 0 ? `add "${printable(from)}" under sources:` : insteadOf(from, names);
    const id = `${pointer} ${from}`;
    if (!this.#reported.has(id)) {
      this.#reported.add(id);
      this.#problems.error(this.#file.placeOf(pointer), `there is no source "${printable(from)}"`, instead, from);
    }
    return undefined;
  }

  /** Two values that are one on the platform would overwrite each other there. */
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
    this.#problems.error(this.#file.placeOfName(at), reason, 'give one of them another asset, key or group', text);
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

function isMapping(data: unknown): data is Record<string, unknown> {
  return typeof data === 'object' && data !== null && !Array.isArray(data);
}
