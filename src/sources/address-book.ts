import { nearestName } from '../base/nearest.ts';
import type { SeriesCatalogue } from '../buffer/series.ts';
import { Instrumentations } from '../config/instrumentations.ts';
import type { Tag, TagValue } from '../config/tags.ts';
import { KEY_PATTERN, type UnitReference } from '../contract/values.ts';
import type { Problem } from './problem-list.ts';
import type { Slot } from './slot.ts';

/** An address as a program writes it, in place of a tag; nothing of it is checked yet. */
export interface DirectAddress {
  asset: unknown;
  unit: unknown;
  group: unknown;
  key: unknown;
}

/** Spellings remembered, some 500 bytes each; forgotten together when there are more. */
const MAX_REMEMBERED = 10_000;
/** Groups and units of one key that are remembered. */
const MAX_NEAR = 16;
/** Looking for the nearest name costs letters times tags: no more of it, and not for names that nobody types. */
const MAX_HINTS = 200;
const MAX_HINTED_NAME_LENGTH = 64;

const UNIT_CODE_PATTERN = /^[A-Za-z0-9._%/-]{1,128}$/;
const ADDRESS_FIELDS = ['asset', 'unit', 'group', 'key'] as const;

/**
 * From what a program writes to a series: `tag` and `key`, or `asset`, `unit`, `group` and `key`. Tag names are exact, keys and
 * groups are not (the platform lower-cases them). Lookups make no garbage.
 */
export class AddressBook {
  readonly #catalogue: SeriesCatalogue;
  #tags: ReadonlyMap<string, Tag> = new Map();
  /** Where VALUES_PATH names an instrumentation: it is bound with the rest of the address. */
  #instrumentations: Instrumentations | undefined;
  /** By tag, then by key as it was written. */
  #slots = new Map<string, Map<string, Slot>>();
  /** By asset, then by key as it was written: the few addresses that differ in group and unit. */
  #direct = new Map<number, Map<string, Slot[]>>();
  #remembered = 0;
  /** Series of tags.yaml that are open. */
  readonly #ofTags = new Set<number>();
  #maxSeries: number;
  #hints = new Map<string, string>();

  /**
   * `maxSeries`: how many series programs may open by `asset`. Each costs memory for as long as it is known, and a
   * program that puts a serial number into its key would open one a value.
   */
  constructor(
    catalogue: SeriesCatalogue,
    tags: ReadonlyMap<string, Tag>,
    byInstrumentation: boolean,
    maxSeries: number = Number.POSITIVE_INFINITY,
  ) {
    this.#catalogue = catalogue;
    this.#maxSeries = maxSeries;
    this.replaceTags(tags, byInstrumentation);
  }

  /** After a reload. What is open stays open. */
  setMaxSeries(maxSeries: number): void {
    this.#maxSeries = maxSeries;
  }

  /** Counts the forgettings: a number that was learned before one may stand for another series. */
  get forgettings(): number {
    return this.#catalogue.forgettings;
  }

  /** Whether a series' number stands for what it did when `forgettings` was so many. */
  isCurrent(series: number, forgettings: number): boolean {
    return this.#catalogue.isCurrent(series, forgettings);
  }

  /** Whether tags.yaml names the series: it is kept, whatever stands of it. */
  isOfTag(series: number): boolean {
    return this.#ofTags.has(series);
  }

  /** After a reload. Values accepted before keep their series. */
  replaceTags(tags: ReadonlyMap<string, Tag>, byInstrumentation = this.isByInstrumentation): void {
    this.#tags = tags;
    this.#ofTags.clear();
    this.#instrumentations = byInstrumentation ? new Instrumentations(tags.values()) : undefined;
    this.#slots = new Map();
    this.#direct = new Map();
    this.#hints = new Map();
    for (const [name, tag] of tags) {
      const slots = new Map<string, Slot>();
      for (const [key, { group, unit }] of tag.values) {
        const instrumentation = this.bound(tag);
        const slot = slotOf({ asset: tag.asset, key, group, unit, instrumentation }, true);
        this.#learn(slot);
        slots.set(key.toLowerCase(), slot);
      }
      this.#slots.set(name, slots);
    }
  }

  get isByInstrumentation(): boolean {
    return this.#instrumentations !== undefined;
  }

  /** What of a tag's instrumentation is part of its series. */
  bound(tag: Tag): number | undefined {
    return this.isByInstrumentation ? tag.instrumentation : undefined;
  }

  /** `undefined` where the tag or its key is not known: `explain` says which. */
  find(tag: string, key: string): Slot | undefined {
    const slots = this.#slots.get(tag);
    if (slots === undefined) return undefined;
    const found = slots.get(key);
    if (found !== undefined) return found;
    const lower = slots.get(key.toLowerCase());
    if (lower !== undefined && this.#remember()) slots.set(key, lower);
    return lower;
  }

  /** Why `find` found nothing. */
  explain(tag: string, key: string): Omit<Problem, 'index'> {
    const known = this.#tags.get(tag);
    if (known === undefined) {
      const hint = this.#hint(`tag ${tag}`, tag, this.#tags.keys());
      return { field: 'tag', problem: `tags.yaml has no tag ${quote(tag)}${hint}` };
    }
    const hint = this.#hint(`key ${tag} ${key}`, key, known.values.keys());
    return { field: 'key', problem: `the tag ${quote(tag)} has no key ${quote(key)}${hint}` };
  }

  /** The slot of a valid address, or what is wrong with it. */
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
      return { field: 'asset', problem: 'has no instrumentation in tags.yaml, which VALUES_PATH needs: write a tag' };
    }
    const unit = unitOf(address.unit);
    const slot = slotOf({ asset: asset as number, key: key as string, group, unit, instrumentation }, false);
    if (this.#remember()) this.#rememberDirect(slot);
    return slot;
  }

  /** The series of a slot where it is open and has not been forgotten since it was learned; 0 otherwise. */
  seriesOf(slot: Slot): number {
    if (slot.series === 0 || slot.learned === this.#catalogue.forgettings) return slot.series;
    if (this.#catalogue.isCurrent(slot.series, slot.learned)) slot.learned = this.#catalogue.forgettings;
    else slot.series = 0;
    return slot.series;
  }

  /** The series of a slot, opened in the catalogue where it is new; `undefined` where there are too many already. */
  open(slot: Slot): number | undefined {
    if (this.seriesOf(slot) === 0 && !this.#learn(slot)) {
      if (!slot.ofTag && this.#catalogue.size - this.#ofTags.size >= this.#maxSeries) return undefined;
      this.#catalogue.idOf(slot.asset, slot.key, slot.group, slot.unit, slot.instrumentation);
      this.#learn(slot);
    }
    return slot.series;
  }

  /** The series of a value that tags.yaml names, of a tag that need not be in force yet. */
  openOfTag(tag: Tag, { key, group, unit }: TagValue): number {
    const series = this.#catalogue.idOf(tag.asset, key, group, unit, this.bound(tag));
    this.#ofTags.add(series);
    return series;
  }

  /** The series of a value that tags.yaml names; `undefined` where nothing was accepted for it yet. */
  seriesIfOpen(tag: Tag, { key, group, unit }: TagValue): number | undefined {
    return this.#catalogue.find(tag.asset, key, group, unit, this.bound(tag));
  }

  /** Looks the slot's series up; `false` where it is not open. */
  #learn(slot: Slot): boolean {
    const series = this.#catalogue.find(slot.asset, slot.key, slot.group, slot.unit, slot.instrumentation);
    if (series === undefined) return false;
    slot.series = series;
    slot.learned = this.#catalogue.forgettings;
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
    // A hostile writer may give one key ten thousand groups: a list is looked through from its start.
    if (near && near.length < MAX_NEAR) near.push(slot);
    else if (!near) keys.set(slot.key, [slot]);
  }

  #hint(question: string, name: string, candidates: Iterable<string>): string {
    if (name.length > MAX_HINTED_NAME_LENGTH) return '';
    const before = this.#hints.get(question);
    if (before !== undefined) return before;
    if (this.#hints.size >= MAX_HINTS) return '';
    const nearest = nearestName(name, candidates);
    const hint = nearest?.likely ? `: is ${quote(nearest.name)} meant?` : '';
    this.#hints.set(question, hint);
    return hint;
  }
}

type Address = Pick<Slot, 'asset' | 'key' | 'group' | 'unit' | 'instrumentation'>;

/** All slots have one shape, their members in one order. */
function slotOf({ asset, key, group, unit, instrumentation }: Address, ofTag: boolean): Slot {
  return {
    asset,
    key,
    group,
    unit,
    instrumentation,
    series: 0,
    learned: 0,
    ofTag,
  };
}

/** Text from outside in an answer: on one line and short. */
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
  if (field === 'asset') return isId(value) ? undefined : 'must be the number of an asset';
  if (field === 'unit') {
    if (value === undefined || isId(value)) return undefined;
    const unit = value as { id?: unknown; code?: unknown } | null;
    if (typeof unit === 'object' && unit !== null) {
      if (isId(unit.id) && unit.code === undefined) return undefined;
      const isCode = typeof unit.code === 'string' && UNIT_CODE_PATTERN.test(unit.code);
      if (isCode && unit.id === undefined) return undefined;
    }
    return 'must be the number of a unit, or {"code": "…"}';
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

/** `written` is what a program wrote: a number, `{ id }`, `{ code }`, or nothing. */
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
