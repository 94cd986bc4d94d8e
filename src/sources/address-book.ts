import type { SeriesCatalogue } from '../buffer/series.ts';
import { nearestName } from '../config/nearest.ts';
import type { Tag } from '../config/tags.ts';
import { KEY_PATTERN, type UnitReference } from '../contract/values.ts';
import type { Problem } from './problem-list.ts';

/**
 * Where a value goes: one series. `series` is 0 until the first value of it is accepted, so that a request that is
 * refused leaves nothing behind in the catalogue.
 */
export interface Slot {
  readonly asset: number;
  readonly key: string;
  readonly group: string | undefined;
  readonly unit: UnitReference | undefined;
  series: number;
  /** The address as a program last wrote it in JSON, from the brace on: for who reads many values of one writer. */
  written: Uint8Array;
  /** The slot that came behind this one last time: who sends the same tags every second sends them in the same order. */
  next: Slot | undefined;
}

/** An address as a program writes it, in place of a tag; nothing of it is checked yet. */
export interface DirectAddress {
  asset: unknown;
  unit: unknown;
  group: unknown;
  key: unknown;
}

/**
 * Series that programs may open by `asset`: each costs memory for as long as the agent runs, and a program that puts a
 * serial number into its key would open one a value.
 */
const MOST_SERIES = 200_000;
/** Spellings remembered; forgotten together when there are more. */
const MOST_REMEMBERED = 100_000;
/** Looking for the nearest name costs letters times tags: no more of it, and not for names that nobody types. */
const MOST_HINTS = 200;
const LONGEST_NAME_WITH_HINT = 64;

const UNIT_CODE_PATTERN = /^[A-Za-z0-9._%/-]{1,128}$/;
const ADDRESS_FIELDS = ['asset', 'unit', 'group', 'key'] as const;

/**
 * From what a program writes to a series: `tag` and `key`, or `asset`, `unit`, `group` and `key`. Tag names are exact, keys and
 * groups are not (the platform lower-cases them). Lookups make no garbage.
 */
export class AddressBook {
  readonly #catalogue: SeriesCatalogue;
  #tags: ReadonlyMap<string, Tag> = new Map();
  /** By tag, then by key as it was written. */
  #slots = new Map<string, Map<string, Slot>>();
  /** By asset, then by key as it was written: the few addresses that differ in group and unit. */
  #direct = new Map<number, Map<string, Slot[]>>();
  #remembered = 0;
  #hints = new Map<string, string>();

  constructor(catalogue: SeriesCatalogue, tags: ReadonlyMap<string, Tag>) {
    this.#catalogue = catalogue;
    this.replaceTags(tags);
  }

  /** After a reload. Values accepted before keep their series. */
  replaceTags(tags: ReadonlyMap<string, Tag>): void {
    this.#tags = tags;
    this.#slots = new Map();
    // Slots name those that came behind them, of whatever kind: none of the old ones may be left.
    this.#direct = new Map();
    this.#hints = new Map();
    for (const [name, tag] of tags) {
      const slots = new Map<string, Slot>();
      for (const [key, { group, unit }] of tag.values) {
        slots.set(key.toLowerCase(), slotOf({ asset: tag.asset, key, group, unit }));
      }
      this.#slots.set(name, slots);
    }
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
    const slot = slotOf({
      asset: asset as number,
      key: key as string,
      group: address.group as string | undefined,
      unit: unitOf(address.unit),
    });
    if (this.#remember()) this.#rememberDirect(slot);
    return slot;
  }

  /** The series of a slot, opened in the catalogue where it is new; `undefined` where there are too many already. */
  open(slot: Slot): number | undefined {
    if (slot.series === 0) {
      if (this.#catalogue.size >= MOST_SERIES && !this.#isKnown(slot)) return undefined;
      slot.series = this.#catalogue.idOf(slot.asset, slot.key, slot.group, slot.unit);
    }
    return slot.series;
  }

  #isKnown(slot: Slot): boolean {
    const { asset, unit } = slot;
    const key = slot.key.toLowerCase();
    const group = slot.group?.toLowerCase();
    const known = this.#catalogue.ofAsset(asset);
    return known.some((each) => each.key === key && each.group === group && sameUnit(each.unit, unit));
  }

  #remember(): boolean {
    if (++this.#remembered <= MOST_REMEMBERED) return true;
    this.#remembered = 0;
    this.replaceTags(this.#tags);
    return false;
  }

  #rememberDirect(slot: Slot): void {
    const keys = this.#direct.get(slot.asset) ?? new Map<string, Slot[]>();
    this.#direct.set(slot.asset, keys);
    const near = keys.get(slot.key);
    if (near) near.push(slot);
    else keys.set(slot.key, [slot]);
  }

  #hint(question: string, name: string, candidates: Iterable<string>): string {
    if (name.length > LONGEST_NAME_WITH_HINT) return '';
    const before = this.#hints.get(question);
    if (before !== undefined) return before;
    if (this.#hints.size >= MOST_HINTS) return '';
    const nearest = nearestName(name, candidates);
    const hint = nearest?.likely ? `: is ${quote(nearest.name)} meant?` : '';
    this.#hints.set(question, hint);
    return hint;
  }
}

type Address = Pick<Slot, 'asset' | 'key' | 'group' | 'unit'>;

const NOTHING_WRITTEN = new Uint8Array(0);

/** All slots have one shape, their members in one order. */
function slotOf({ asset, key, group, unit }: Address): Slot {
  return { asset, key, group, unit, series: 0, written: NOTHING_WRITTEN, next: undefined };
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
