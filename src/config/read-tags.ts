import { insteadOf } from './nearest.ts';
import { originMembersOf, type RawValue, readOrigin } from './origin-reading.ts';
import { escapePointer, type YamlFile } from './placed-yaml.ts';
import type { Place, Problems } from './problem.ts';
import { printable } from './problem.ts';
import { checkShape, compileSchema, type SchemaVerdict } from './schema-problems.ts';
import { kindOf, type RawSource, readSource, type SourceKind } from './source-reading.ts';
import type { Source, Tag, Tags, TagValue } from './tags.ts';
import { TAGS_SCHEMA } from './tags-schema.ts';

interface RawTag {
  asset: number;
  instrumentation?: number;
  values?: Record<string, RawValue | null> | null;
}

/** Tags as far as they are sound, and the names that exist, sound or not: a name that is there is not reported as unknown. */
export interface ReadTags extends Tags {
  tagNames: readonly string[];
  sourceKinds: ReadonlyMap<string, SourceKind | undefined>;
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
export function readTags(file: YamlFile, problems: Problems): ReadTags {
  if (file.data === undefined) {
    warnOfNoTags({ file: file.name, line: 1, column: 1 }, 'names no tag', problems);
    return NO_TAGS;
  }
  const verdict = checkShape(compileSchema(TAGS_SCHEMA), file, problems);
  const data = (verdict.isBroken('') && typeof file.data !== 'object' ? {} : file.data) as Record<string, unknown>;
  const rawSources = entriesOf(data.sources);
  const rawTags = entriesOf(data.tags);
  const sourceKinds = new Map<string, SourceKind | undefined>();
  const sources = new Map<string, Source>();
  for (const [name, raw] of rawSources) {
    const at = `/sources/${escapePointer(name)}`;
    const sound = !verdict.isBroken(at);
    sourceKinds.set(name, isMapping(raw) ? kindOf(raw as RawSource) : undefined);
    const rest = sound ? (raw as RawSource) : soundMembers(raw, at, verdict);
    // A source whose kind is broken has been reported; of another broken one the address can still be read.
    const source = sound || kindOf(rest) !== undefined ? readSource(name, rest, at, file, problems) : undefined;
    if (sound && source !== undefined) sources.set(name, source);
  }
  const reader = new TagReader(file, verdict, sourceKinds, problems);
  const tags = new Map<string, Tag>();
  for (const [name, raw] of rawTags) {
    const tag = isMapping(raw) ? reader.read(name, raw) : undefined;
    if (tag !== undefined) tags.set(name, tag);
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

/** Not an error: programs may push by asset number alone. */
export function warnOfNoTags(place: Place, what: string, problems: Problems): void {
  problems.warning(
    place,
    `the file ${what}, so only values pushed by asset number are taken`,
    'add tags: with a tag for each measuring point',
  );
}

class TagReader {
  readonly #file: YamlFile;
  readonly #verdict: SchemaVerdict;
  readonly #sourceKinds: ReadonlyMap<string, SourceKind | undefined>;
  readonly #problems: Problems;
  /** Which value already fills a key of an asset. */
  readonly #taken = new Map<string, { tag: string; key: string; at: string }>();

  constructor(
    file: YamlFile,
    verdict: SchemaVerdict,
    sourceKinds: ReadonlyMap<string, SourceKind | undefined>,
    problems: Problems,
  ) {
    this.#file = file;
    this.#verdict = verdict;
    this.#sourceKinds = sourceKinds;
    this.#problems = problems;
  }

  read(name: string, raw: Record<string, unknown>): Tag | undefined {
    const at = `/tags/${escapePointer(name)}`;
    const assetIsSound = typeof raw.asset === 'number' && !this.#verdict.isBroken(`${at}/asset`);
    const values = new Map<string, TagValue>();
    const spelt = new Map<string, string>();
    for (const [key, value] of entriesOf(raw.values)) {
      const valueAt = `${at}/values/${escapePointer(key)}`;
      if (this.#verdict.isBroken(valueAt)) {
        // Whether its source exists can still be told: one look at the file should be enough.
        if (isMapping(value) && typeof value.from === 'string') this.#kindOf(value.from, valueAt);
        continue;
      }
      const earlier = spelt.get(key.toLowerCase());
      if (earlier !== undefined) {
        const { line } = this.#file.placeOfName(`${at}/values/${escapePointer(earlier)}`);
        const reason = `"${key}" and "${earlier}" on line ${line} are one key, which the platform lower-cases`;
        this.#problems.error(this.#file.placeOfName(valueAt), reason, 'rename one of them', key);
        continue;
      }
      spelt.set(key.toLowerCase(), key);
      const read = this.#readValue(key, (value ?? {}) as RawValue, valueAt);
      if (assetIsSound && this.#isTaken(raw.asset as number, name, key, (value ?? {}) as RawValue, valueAt)) continue;
      if (read !== undefined) values.set(read.key, read);
    }
    if (!assetIsSound || this.#verdict.isBroken(`${at}/instrumentation`)) return undefined;
    const { asset, instrumentation } = raw as unknown as RawTag;
    return { name, asset, ...(instrumentation === undefined ? {} : { instrumentation }), values };
  }

  #readValue(key: string, raw: RawValue, at: string): TagValue | undefined {
    const value: TagValue = {
      key: key.toLowerCase(),
      ...(raw.group === undefined ? {} : { group: raw.group.toLowerCase() }),
      ...(raw.unit === undefined
        ? {}
        : { unit: typeof raw.unit === 'number' ? { id: raw.unit } : { code: raw.unit.code } }),
    };
    if (raw.from === undefined) {
      const [member] = originMembersOf(raw);
      if (member === undefined) return value;
      const reason = `"${member}" says how to read a source, and "${printable(key)}" names none`;
      this.#problems.error(
        this.#file.placeOfName(`${at}/${member}`),
        reason,
        'add from: with the name of a source, or remove it',
        member,
      );
      return undefined;
    }
    const kind = this.#kindOf(raw.from, at);
    if (kind === undefined) return undefined;
    const from = readOrigin(raw as RawValue & { from: string }, kind, at, this.#file, this.#problems);
    return from === undefined ? undefined : { ...value, from };
  }

  /** What the source of a value is; one that does not exist is reported. */
  #kindOf(from: string, at: string): SourceKind | undefined {
    if (this.#sourceKinds.has(from)) return this.#sourceKinds.get(from);
    const names = [...this.#sourceKinds.keys()];
    const instead = names.length === 0 ? `add "${printable(from)}" under sources:` : insteadOf(from, names);
    const reason = `there is no source "${printable(from)}"`;
    this.#problems.error(this.#file.placeOf(`${at}/from`), reason, instead, from);
    return undefined;
  }

  /** Two values that are one on the platform would overwrite each other there. */
  #isTaken(asset: number, tag: string, key: string, raw: RawValue, at: string): boolean {
    const series = `${asset} ${raw.group?.toLowerCase() ?? ''} ${key.toLowerCase()}`;
    const earlier = this.#taken.get(series);
    if (earlier === undefined) {
      this.#taken.set(series, { tag, key, at });
      return false;
    }
    const { line } = this.#file.placeOfName(earlier.at);
    const group = raw.group === undefined ? '' : ` in group "${raw.group.toLowerCase()}"`;
    const reason = `"${key}" of tag "${printable(tag)}" is the same value as "${earlier.key}" of tag "${printable(earlier.tag)}" on line ${line}: key "${key.toLowerCase()}"${group} of asset ${asset}`;
    this.#problems.error(this.#file.placeOfName(at), reason, 'give one of them another asset, key or group', key);
    return true;
  }
}

function soundMembers(raw: unknown, at: string, verdict: SchemaVerdict): RawSource {
  return Object.fromEntries(entriesOf(raw).filter(([member]) => !verdict.isBroken(`${at}/${escapePointer(member)}`)));
}

function entriesOf(data: unknown): [string, unknown][] {
  return isMapping(data) ? Object.entries(data) : [];
}

function isMapping(data: unknown): data is Record<string, unknown> {
  return typeof data === 'object' && data !== null && !Array.isArray(data);
}
