import type { Logger } from '../../base/logger.ts';
import { nearestName } from '../../base/nearest.ts';
import type { SeriesCatalogue } from '../../buffer/series.ts';
import { Instrumentations } from '../../config/instrumentations.ts';
import type { Tag, TagValue, ValueMap } from '../../config/tags.ts';
import { KEY_PATTERN, type UnitReference } from '../../contract/values.ts';

/** Unvalidated address from a request that does not specify a tag. */
export interface DirectAddress {
  asset: unknown;
  unit: unknown;
  group: unknown;
  key: unknown;
}

/**
 * Destination series of a value. `series` is 0 until the first value is accepted, so that a rejected request opens no
 * series in the catalogue.
 */
export interface Slot {
  readonly asset: number;
  readonly key: string;
  readonly group: string | undefined;
  readonly unit: UnitReference | undefined;
  readonly instrumentation: number | undefined;
  series: number;
  /** Whether tags.yaml contains the series. Such series do not count towards MAX_SERIES. */
  readonly ofTag: boolean;
  /** Map of the value in tags.yaml. */
  readonly map: ValueMap | undefined;
}

export interface AddressBookOptions {
  catalogue: SeriesCatalogue;
  tags: ReadonlyMap<string, Tag>;
  /** Whether VALUES_PATH contains an instrumentation, which is then part of the series address. */
  byInstrumentation?: boolean;
  /**
   * Number of series that programs may open by `asset`; unlimited if omitted. Each series uses memory, and a program
   * that includes a serial number in its key would open a series for each value.
   */
  maxSeries?: number | undefined;
  log: Logger;
}

/** Maximum number of cached addresses, about 500 bytes each. A full cache is cleared. */
const MAX_REMEMBERED = 10_000;
/**
 * Maximum number of names for which a suggestion is looked up. Searching is slow for long names and many tags, and long
 * lists of unknown names are not caused by typing errors.
 */
const MAX_HINTS = 200;
const MAX_HINTED_NAME_LENGTH = 64;
const UNIT_CODE_PATTERN = /^[A-Za-z0-9._%/-]{1,128}$/;
const NO_INSTRUMENTATION = 'has no instrumentation in tags.yaml, which VALUES_PATH requires: use a tag';
const SERIES_LIMIT_HINT =
  'Correct the program that creates the series, or increase MAX_SERIES. A restart removes series without stored values.';

/**
 * Maps the addresses in requests to series. An address consists of `tag` and `key`, or of `asset`, `unit`, `group` and
 * `key`. Tag names are case-sensitive; keys and groups are not, because the platform converts them to lower case.
 */
export class AddressBook {
  readonly #catalogue: SeriesCatalogue;
  readonly #log: Logger;
  #tags: ReadonlyMap<string, Tag> = new Map();
  #instrumentations: Instrumentations | undefined;
  #maxSeries = 0;
  #isLimitReported = false;
  /** Slots by tag, then by key in lower case. */
  readonly #slots = new Map<string, Map<string, Slot>>();
  /** Latest slot by asset, then by key as spelled in the request. */
  readonly #direct = new Map<number, Map<string, { slot: Slot; unit: number | string | undefined }>>();
  #remembered = 0;
  /** Open series that tags.yaml contains. */
  readonly #ofTags = new Set<number>();
  readonly #hints = new Map<string, string>();

  constructor({ catalogue, tags, byInstrumentation = false, maxSeries, log }: AddressBookOptions) {
    this.#catalogue = catalogue;
    this.#log = log;
    this.reload(tags, byInstrumentation, maxSeries);
  }

  /** Applies a reload. Values accepted earlier keep their series, and open series stay open. */
  reload(tags: ReadonlyMap<string, Tag>, byInstrumentation: boolean, maxSeries = Number.POSITIVE_INFINITY): void {
    this.#tags = tags;
    this.#instrumentations = byInstrumentation ? new Instrumentations(tags.values()) : undefined;
    this.#maxSeries = maxSeries;
    this.#isLimitReported = false;
    this.#direct.clear();
    this.#remembered = 0;
    this.#hints.clear();
    this.#slots.clear();
    this.#ofTags.clear();
    for (const [name, tag] of tags) {
      const slots = new Map<string, Slot>();
      for (const value of tag.values.values()) {
        const { key, group, unit, map } = value;
        const series = this.seriesIfOpen(tag, value) ?? 0;
        if (series > 0) this.#ofTags.add(series);
        const instrumentation = this.#boundOf(tag);
        slots.set(key.toLowerCase(), { asset: tag.asset, key, group, unit, instrumentation, series, ofTag: true, map });
      }
      this.#slots.set(name, slots);
    }
  }

  /** Returns whether tags.yaml contains the series. */
  isOfTag(series: number): boolean {
    return this.#ofTags.has(series);
  }

  /** Opens and returns the series of a value in tags.yaml, also of a configuration that has not been applied yet. */
  seriesOf(tag: Tag, { key, group, unit }: TagValue): number {
    const series = this.#catalogue.idOf(tag.asset, key, group, unit, this.#boundOf(tag));
    this.#ofTags.add(series);
    return series;
  }

  /** Returns the series of a value in tags.yaml, or `undefined` if no value has been accepted for the series yet. */
  seriesIfOpen(tag: Tag, { key, group, unit }: TagValue): number | undefined {
    return this.#catalogue.find(tag.asset, key, group, unit, this.#boundOf(tag));
  }

  /** Returns the instrumentation that is part of the tag's series, if any. */
  #boundOf(tag: Tag): number | undefined {
    return this.#instrumentations === undefined ? undefined : tag.instrumentation;
  }

  /** Returns `undefined` for an unknown tag or key; `explain` describes the problem. */
  find(tag: string, key: string): Slot | undefined {
    const slots = this.#slots.get(tag);
    return slots?.get(key) ?? slots?.get(key.toLowerCase());
  }

  /** Returns the wrong member if `find` returned `undefined`. */
  wrongFieldOf(tag: string): 'tag' | 'key' {
    return this.#tags.has(tag) ? 'key' : 'tag';
  }

  /** Returns the reason why `find` returned `undefined`. */
  explain(tag: string, key: string): string {
    const known = this.#tags.get(tag);
    if (known === undefined) return `tag ${quote(tag)} is not in tags.yaml${this.#hint(tag, this.#tags.keys(), '')}`;
    return `the tag ${quote(tag)} has no key ${quote(key)}${this.#hint(key, known.values.keys(), tag)}`;
  }

  /** Returns the slot of a valid address, or the problem of an invalid one. */
  findDirect(address: DirectAddress): Slot | { field: string; problem: string } {
    const { asset, key, group } = address as { asset: number; key: string; group: string | undefined };
    const known = this.#direct.get(asset)?.get(key);
    const isKnown = known !== undefined && known.slot.group === group;
    if (isKnown && known.unit === address.unit) return known.slot;
    const unit = unitOf(address.unit);
    if (isKnown && known.unit === unit) return known.slot;
    if (!isId(asset)) return { field: 'asset', problem: 'must be an asset number' };
    if (unit === null) return { field: 'unit', problem: 'must be a unit number or {"code": "…"}' };
    const wrongGroup = group === undefined ? undefined : problemOfName(group);
    if (wrongGroup !== undefined) return { field: 'group', problem: wrongGroup };
    const wrongKey = problemOfName(key);
    if (wrongKey !== undefined) return { field: 'key', problem: wrongKey };
    const instrumentation = this.#instrumentations?.of(asset, key, group);
    if (this.#instrumentations !== undefined && instrumentation === undefined) {
      return { field: 'asset', problem: NO_INSTRUMENTATION };
    }
    let reference: UnitReference | undefined;
    if (unit !== undefined) reference = typeof unit === 'number' ? { id: unit } : { code: unit };
    const slot = { asset, key, group, unit: reference, instrumentation, series: 0, ofTag: false, map: undefined };
    if (++this.#remembered > MAX_REMEMBERED) {
      this.#direct.clear();
      this.#remembered = 1;
    }
    const keys = this.#direct.get(asset) ?? new Map();
    this.#direct.set(asset, keys.set(key, { slot, unit }));
    return slot;
  }

  /** Opens the series of a slot if necessary. Returns `undefined` if the limit is reached, which is logged once. */
  open(slot: Slot): number | undefined {
    if (slot.series > 0) return slot.series;
    const { asset, key, group, unit, instrumentation, ofTag } = slot;
    const known = this.#catalogue.find(asset, key, group, unit, instrumentation);
    if (known === undefined && !ofTag && this.#catalogue.size - this.#ofTags.size >= this.#maxSeries) {
      const fields = { event: 'ingest.series_limit', maxSeries: this.#maxSeries, hint: SERIES_LIMIT_HINT };
      if (!this.#isLimitReported) this.#log.warn(fields, 'series limit reached, values of further series are rejected');
      this.#isLimitReported = true;
      return undefined;
    }
    slot.series = known ?? this.#catalogue.idOf(asset, key, group, unit, instrumentation);
    if (ofTag) this.#ofTags.add(slot.series);
    return slot.series;
  }

  /** Returns the name of an open series, for example `asset 881 flow`. */
  nameOf(series: number): string | undefined {
    const found = this.#catalogue.get(series);
    return found && `asset ${found.asset} ${found.key}`;
  }

  #hint(name: string, candidates: Iterable<string>, within: string): string {
    const question = `${within}\n${name}`;
    const before = this.#hints.get(question);
    if (before !== undefined) return before;
    if (name.length > MAX_HINTED_NAME_LENGTH || this.#hints.size >= MAX_HINTS) return '';
    const nearest = nearestName(name, candidates);
    const hint = nearest?.likely ? `; did you mean ${quote(nearest.name)}?` : '';
    this.#hints.set(question, hint);
    return hint;
  }
}

/** Returns external text truncated, quoted and on one line, for use in a response. */
export function quote(text: string): string {
  return JSON.stringify(text.length > 64 ? `${text.slice(0, 64)}…` : text);
}

/** Returns the number or code of a unit, `undefined` if there is none, or `null` if it is invalid. Allocates nothing. */
function unitOf(written: unknown): number | string | undefined | null {
  if (written === undefined || isId(written)) return written;
  if (typeof written !== 'object' || written === null) return null;
  const { id, code } = written as { id?: unknown; code?: unknown };
  if (isId(id) && code === undefined) return id;
  return id === undefined && typeof code === 'string' && UNIT_CODE_PATTERN.test(code) ? code : null;
}

function problemOfName(value: unknown): string | undefined {
  if (typeof value !== 'string') return value === undefined ? 'is missing' : 'must be a string';
  return KEY_PATTERN.test(value) ? undefined : 'must be 1 to 128 letters, digits, ".", "-" or "_"';
}

function isId(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value > 0;
}
