import { nearestName } from '../../base/nearest.ts';
import type { SeriesCatalogue } from '../../buffer/series.ts';
import { Instrumentations } from '../../config/instrumentations.ts';
import type { Tag, TagValue, ValueMap } from '../../config/tags.ts';
import { KEY_PATTERN, type UnitReference } from '../../contract/values.ts';
import type { Problem } from './problem-list.ts';

/** Unvalidated address from a request that does not specify a tag. */
export interface DirectAddress {
  asset: unknown;
  unit: unknown;
  group: unknown;
  key: unknown;
}

/** Maximum number of cached address spellings, about 500 bytes each. A full cache is cleared. */
const MAX_REMEMBERED = 10_000;
/** Maximum number of cached addresses (combinations of group and unit) per key. */
const MAX_NEAR = 16;
/**
 * Maximum number of names for which a suggestion is looked up. Searching is slow for long names and many tags, and long
 * lists of unknown names are not caused by typing errors.
 */
const MAX_HINTS = 200;
const MAX_HINTED_NAME_LENGTH = 64;

const UNIT_CODE_PATTERN = /^[A-Za-z0-9._%/-]{1,128}$/;
const ADDRESS_FIELDS = ['asset', 'unit', 'group', 'key'] as const;

/**
 * Maps the addresses in requests to series. An address consists of `tag` and `key`, or of `asset`, `unit`, `group` and
 * `key`. Tag names are case-sensitive; keys and groups are not, because the platform converts them to lower case.
 * Lookups allocate no memory.
 */
export class AddressBook {
  readonly #catalogue: SeriesCatalogue;
  #tags: ReadonlyMap<string, Tag> = new Map();
  /** Set if VALUES_PATH contains an instrumentation, which is then part of the address. */
  #instrumentations: Instrumentations | undefined;
  /** Slots by tag, then by key as spelled in the request. */
  #slots = new Map<string, Map<string, Slot>>();
  /**
   * Slots by asset, then by key as spelled in the request. Each list contains the few addresses that differ only in
   * group and unit.
   */
  #direct = new Map<number, Map<string, Slot[]>>();
  #remembered = 0;
  /** Open series that tags.yaml contains. */
  readonly #ofTags = new Set<number>();
  #maxSeries: number;
  readonly #onSeriesLimit: () => void;
  #hints = new Map<string, string>();

  /**
   * `maxSeries`: number of series that programs may open by `asset`. Each open series uses memory, and a program that
   * includes a serial number in its key would open a series for each value. `onSeriesLimit` is called for each value
   * that would require another series.
   */
  constructor(
    catalogue: SeriesCatalogue,
    tags: ReadonlyMap<string, Tag>,
    byInstrumentation: boolean,
    maxSeries: number = Number.POSITIVE_INFINITY,
    onSeriesLimit: () => void = () => {},
  ) {
    this.#catalogue = catalogue;
    this.#maxSeries = maxSeries;
    this.#onSeriesLimit = onSeriesLimit;
    this.replaceTags(tags, byInstrumentation);
  }

  /** Applies a reload. Open series stay open. */
  setMaxSeries(maxSeries: number): void {
    this.#maxSeries = maxSeries;
  }

  /** Returns whether tags.yaml contains the series. */
  isOfTag(series: number): boolean {
    return this.#ofTags.has(series);
  }

  /** Applies a reload. Values accepted earlier keep their series. */
  replaceTags(tags: ReadonlyMap<string, Tag>, byInstrumentation = this.isByInstrumentation): void {
    this.#tags = tags;
    this.#ofTags.clear();
    this.#instrumentations = byInstrumentation ? new Instrumentations(tags.values()) : undefined;
    this.#slots = new Map();
    this.#direct = new Map();
    this.#hints = new Map();
    for (const [name, tag] of tags) {
      const slots = new Map<string, Slot>();
      for (const [key, { group, unit, map }] of tag.values) {
        const instrumentation = this.bound(tag);
        const slot = slotOf({ asset: tag.asset, key, group, unit, instrumentation }, true, map);
        this.#learn(slot);
        slots.set(key.toLowerCase(), slot);
      }
      this.#slots.set(name, slots);
    }
  }

  get isByInstrumentation(): boolean {
    return this.#instrumentations !== undefined;
  }

  /** Returns the instrumentation that is part of the tag's series, if any. */
  bound(tag: Tag): number | undefined {
    return this.isByInstrumentation ? tag.instrumentation : undefined;
  }

  /** Returns `undefined` for an unknown tag or key; `explain` describes the problem. */
  find(tag: string, key: string): Slot | undefined {
    const slots = this.#slots.get(tag);
    if (slots === undefined) return undefined;
    const found = slots.get(key);
    if (found !== undefined) return found;
    const lower = slots.get(key.toLowerCase());
    if (lower !== undefined && this.#remember()) slots.set(key, lower);
    return lower;
  }

  /** Returns the reason why `find` returned `undefined`. */
  explain(tag: string, key: string): Omit<Problem, 'index'> {
    const known = this.#tags.get(tag);
    if (known === undefined) {
      const hint = this.#hint(`tag ${tag}`, tag, this.#tags.keys());
      return { field: 'tag', problem: `tag ${quote(tag)} is not in tags.yaml${hint}` };
    }
    const hint = this.#hint(`key ${tag} ${key}`, key, known.values.keys());
    return { field: 'key', problem: `the tag ${quote(tag)} has no key ${quote(key)}${hint}` };
  }

  /** Returns the slot of a valid address, or the problem of an invalid one. */
  findDirect(address: DirectAddress): Slot | Omit<Problem, 'index'> {
    const { asset, key } = address;
    if (typeof asset === 'number' && typeof key === 'string') {
      const near = this.#direct.get(asset)?.get(key);
      if (near !== undefined) {
        for (const slot of near) if (sameUnit(slot.unit, address.unit) && slot.group === address.group) return slot;
      }
    }
    const wrong = problemOf(address);
    if (wrong !== undefined) return wrong;
    const group = address.group as string | undefined;
    const instrumentation = this.#instrumentations?.of(asset as number, key as string, group);
    if (this.isByInstrumentation && instrumentation === undefined) {
      return { field: 'asset', problem: 'has no instrumentation in tags.yaml, which VALUES_PATH requires: use a tag' };
    }
    const unit = unitOf(address.unit);
    const slot = slotOf({ asset: asset as number, key: key as string, group, unit, instrumentation }, false);
    if (this.#remember()) this.#rememberDirect(slot);
    return slot;
  }

  /** Opens the series of a slot if necessary. Returns `undefined` if the limit is reached. */
  open(slot: Slot): number | undefined {
    if (slot.series === 0 && !this.#learn(slot)) {
      if (!slot.ofTag && this.#catalogue.size - this.#ofTags.size >= this.#maxSeries) {
        this.#onSeriesLimit();
        return undefined;
      }
      this.#catalogue.idOf(slot.asset, slot.key, slot.group, slot.unit, slot.instrumentation);
      this.#learn(slot);
    }
    return slot.series;
  }

  /** Opens the series of a value in tags.yaml. The tag may be part of a configuration that has not been applied yet. */
  openOfTag(tag: Tag, { key, group, unit }: TagValue): number {
    const series = this.#catalogue.idOf(tag.asset, key, group, unit, this.bound(tag));
    this.#ofTags.add(series);
    return series;
  }

  /** Returns the series of a value in tags.yaml, or `undefined` if no value has been accepted for the series yet. */
  seriesIfOpen(tag: Tag, { key, group, unit }: TagValue): number | undefined {
    return this.#catalogue.find(tag.asset, key, group, unit, this.bound(tag));
  }

  /** Looks up the series of a slot. Returns `false` if the series is not open. */
  #learn(slot: Slot): boolean {
    const series = this.#catalogue.find(slot.asset, slot.key, slot.group, slot.unit, slot.instrumentation);
    if (series === undefined) return false;
    slot.series = series;
    if (slot.ofTag) this.#ofTags.add(series);
    return true;
  }

  #remember(): boolean {
    if (++this.#remembered <= MAX_REMEMBERED) return true;
    this.#remembered = 0;
    this.replaceTags(this.#tags);
    return false;
  }

  #rememberDirect(slot: Slot): void {
    const keys = this.#direct.get(slot.asset) ?? new Map<string, Slot[]>();
    this.#direct.set(slot.asset, keys);
    const near = keys.get(slot.key);
    // The number is limited because lists are searched linearly, and a hostile sender may use ten thousand groups for
    // one key.
    if (near && near.length < MAX_NEAR) near.push(slot);
    else if (!near) keys.set(slot.key, [slot]);
  }

  #hint(question: string, name: string, candidates: Iterable<string>): string {
    if (name.length > MAX_HINTED_NAME_LENGTH) return '';
    const before = this.#hints.get(question);
    if (before !== undefined) return before;
    if (this.#hints.size >= MAX_HINTS) return '';
    const nearest = nearestName(name, candidates);
    const hint = nearest?.likely ? `; did you mean ${quote(nearest.name)}?` : '';
    this.#hints.set(question, hint);
    return hint;
  }
}

type Address = Pick<Slot, 'asset' | 'key' | 'group' | 'unit' | 'instrumentation'>;

/** Creates every slot with the same members in the same order, so that all slots share one hidden class. */
function slotOf(
  { asset, key, group, unit, instrumentation }: Address,
  ofTag: boolean,
  map: ValueMap | undefined = undefined,
): Slot {
  return {
    asset,
    key,
    group,
    unit,
    instrumentation,
    series: 0,
    ofTag,
    map,
  };
}

/** Returns external text truncated, quoted and on one line, for use in a response. */
export function quote(text: string): string {
  return JSON.stringify(text.length > 64 ? `${text.slice(0, 64)}…` : text);
}

function problemOf(address: DirectAddress): Omit<Problem, 'index'> | undefined {
  for (const field of ADDRESS_FIELDS) {
    const problem = problemOfField(field, address[field]);
    if (problem !== undefined) return { field, problem };
  }
  return undefined;
}

function problemOfField(field: (typeof ADDRESS_FIELDS)[number], value: unknown): string | undefined {
  if (field === 'asset') return isId(value) ? undefined : 'must be an asset number';
  if (field === 'unit') {
    if (value === undefined || isId(value)) return undefined;
    const unit = value as { id?: unknown; code?: unknown } | null;
    if (typeof unit === 'object' && unit !== null) {
      if (isId(unit.id) && unit.code === undefined) return undefined;
      const isCode = typeof unit.code === 'string' && UNIT_CODE_PATTERN.test(unit.code);
      if (isCode && unit.id === undefined) return undefined;
    }
    return 'must be a unit number or {"code": "…"}';
  }
  if (field === 'group' && value === undefined) return undefined;
  if (typeof value !== 'string') return value === undefined ? 'is missing' : 'must be a string';
  return KEY_PATTERN.test(value) ? undefined : 'must be 1 to 128 letters, digits, ".", "-" or "_"';
}

function unitOf(unit: unknown): UnitReference | undefined {
  if (unit === undefined) return undefined;
  if (typeof unit === 'number') return { id: unit };
  const { id, code } = unit as { id?: number; code?: string };
  return id === undefined ? { code: code! } : { id };
}

/** `written`: unit in the request, which may be a number, `{ id }`, `{ code }` or undefined. */
function sameUnit(unit: UnitReference | undefined, written: unknown): boolean {
  if (unit === undefined || written === undefined) return unit === written;
  if (typeof written === 'number') return 'id' in unit && unit.id === written;
  if (typeof written !== 'object' || written === null) return false;
  const { id, code } = written as { id?: unknown; code?: unknown };
  return 'id' in unit ? unit.id === id && code === undefined : unit.code === code && id === undefined;
}

function isId(value: unknown): boolean {
  return typeof value === 'number' && Number.isSafeInteger(value) && value > 0;
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
