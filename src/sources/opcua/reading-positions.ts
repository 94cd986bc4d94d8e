/**
 * Time up to which the values of each item are stored, and the gaps before it that the history of the server fills. The
 * positions of items with history are notes written with the values. After a kill -9, gaps are therefore filled
 * completely and without duplicates.
 *
 *   last ──── subscription lost ──── first value of the next one ──► gap (last, first) ──► filled page by page
 *
 * The items are stored in groups, because a note per item would multiply the rows of a commit.
 */
import type { Note } from '../../buffer/client/notes.ts';
import type { Point } from '../points.ts';
import type { OpcuaValue } from './reader-program.ts';

/** Values between the two times, both exclusive, are missing. */
export interface Gap {
  readonly item: number;
  fromMs: number;
  readonly untilMs: number;
}

const GROUP = 64;
/** Maximum number of unfilled gaps per item. */
const MAX_GAPS = 8;
const ITEMS = 'items';
const GROUPS = 'positions/';

/** Milliseconds before the first number of the group: the last value, then both ends of each gap. `null`: unknown. */
type StoredItem = readonly number[] | null;

export class ReadingPositions {
  readonly #prefix: string;
  #keys: readonly string[];
  /** 0 means that no value is known. */
  readonly #last: Float64Array;
  readonly #gaps = new Map<number, Gap[]>();
  /** Items whose next value ends a gap. */
  readonly #expected = new Set<number>();
  readonly #hasHistory: Uint8Array;
  readonly #changed = new Set<number>();
  #areItemsStored: boolean;
  /** Notes of items that are no longer configured. */
  readonly #obsolete: string[];

  /** `keys`: names of the items that are stable across restarts. `notes`: without `prefix`. */
  constructor(prefix: string, keys: readonly string[], notes: ReadonlyMap<string, string>) {
    this.#prefix = prefix;
    this.#keys = keys;
    this.#last = new Float64Array(keys.length);
    this.#hasHistory = new Uint8Array(keys.length);
    const text = notes.get(ITEMS);
    const stored = text === undefined ? [] : (JSON.parse(text) as string[]);
    this.#areItemsStored = text === JSON.stringify(keys);
    this.#obsolete = [...notes.keys()].filter(
      (name) => name.startsWith(GROUPS) && groupOf(name) * GROUP >= keys.length,
    );
    this.#restore(new Map(keys.map((key, item) => [key, item])), stored, notes);
    if (text !== undefined && !this.#areItemsStored) this.#changeAll();
  }

  #restore(items: ReadonlyMap<string, number>, stored: readonly string[], notes: ReadonlyMap<string, string>): void {
    for (const [name, text] of notes) {
      if (!name.startsWith(GROUPS)) continue;
      const [baseMs, ...entries] = JSON.parse(text) as [number, ...StoredItem[]];
      for (const [at, entry] of entries.entries()) {
        const item = items.get(stored[groupOf(name) * GROUP + at] ?? '');
        if (item === undefined || entry === null) continue;
        const [lastMs, ...ends] = entry.map((beforeMs) => baseMs - beforeMs);
        this.#last[item] = lastMs!;
        this.#hasHistory[item] = 1;
        for (let end = 0; end + 1 < ends.length; end += 2) this.#open(item, ends[end]!, ends[end + 1]!);
      }
    }
  }

  /** Other names of the same items after a reload. */
  rename(keys: readonly string[]): void {
    this.#keys = keys;
    this.#areItemsStored = false;
  }

  hasHistory(item: number): boolean {
    return this.#hasHistory[item] === 1;
  }

  /** Sets the items whose history can be read. Only their positions are stored. */
  setHistory(items: readonly number[]): void {
    const before = this.#hasHistory.slice();
    this.#hasHistory.fill(0);
    for (const item of items) this.#hasHistory[item] = 1;
    for (const [item, had] of before.entries()) {
      if (had !== this.#hasHistory[item]) this.#changed.add(Math.floor(item / GROUP));
    }
  }

  /** Values of all items may be missing: the next value of each item ends a gap. */
  expectGaps(): void {
    for (const item of this.#keys.keys()) if (this.#last[item]! > 0) this.#expected.add(item);
  }

  /**
   * Records the time of a value that is stored with the next notes. `isAfterGap`: the server discarded values before it.
   * Returns whether a gap was opened.
   */
  record(item: number, timeMs: number, isAfterGap: boolean): boolean {
    const lastMs = this.#last[item]!;
    const isExpected = this.#expected.size > 0 && this.#expected.delete(item);
    if (timeMs <= lastMs) return false;
    this.#last[item] = timeMs;
    if (this.#hasHistory[item] === 1) this.#changed.add(Math.floor(item / GROUP));
    return (isExpected || isAfterGap) && lastMs > 0 && this.#open(item, lastMs, timeMs);
  }

  #open(item: number, fromMs: number, untilMs: number): boolean {
    const gaps = this.#gaps.get(item) ?? [];
    if (gaps.length >= MAX_GAPS || untilMs - fromMs <= 1) return false;
    gaps.push({ item, fromMs, untilMs });
    this.#gaps.set(item, gaps);
    return true;
  }

  /** Returns the gap to be filled next. */
  nextGap(): Gap | undefined {
    return this.#gaps.values().next().value?.[0];
  }

  /** The beginning of a gap is filled. */
  narrow(gap: Gap, filledUntilMs: number): void {
    gap.fromMs = filledUntilMs;
    this.#changed.add(Math.floor(gap.item / GROUP));
  }

  close(gap: Gap): void {
    const left = (this.#gaps.get(gap.item) ?? []).filter((other) => other !== gap);
    if (left.length === 0) this.#gaps.delete(gap.item);
    else this.#gaps.set(gap.item, left);
    this.#changed.add(Math.floor(gap.item / GROUP));
  }

  /** Returns the changed notes. They are stored with the values recorded so far. */
  takeNotes(): Note[] {
    if (this.#changed.size === 0) return [];
    const notes: Note[] = [];
    if (!this.#areItemsStored) {
      this.#areItemsStored = true;
      notes.push({ name: `${this.#prefix}${ITEMS}`, text: JSON.stringify(this.#keys) });
      notes.push(...this.#obsolete.splice(0).map((name) => ({ name: `${this.#prefix}${name}`, text: undefined })));
    }
    for (const group of this.#changed)
      notes.push({ name: `${this.#prefix}${GROUPS}${group}`, text: this.#textOf(group) });
    this.#changed.clear();
    return notes;
  }

  /** Returns the notes that remove everything stored. */
  removal(): Note[] {
    const groups = Array.from({ length: Math.ceil(this.#keys.length / GROUP) }, (_, group) => `${GROUPS}${group}`);
    return [ITEMS, ...groups, ...this.#obsolete].map((name) => ({ name: `${this.#prefix}${name}`, text: undefined }));
  }

  #textOf(group: number): string {
    const [first, end] = [group * GROUP, Math.min((group + 1) * GROUP, this.#keys.length)];
    let baseMs = 0;
    for (let item = first; item < end; item++) baseMs = Math.max(baseMs, this.#last[item]!);
    const entries: StoredItem[] = [];
    for (let item = first; item < end; item++) {
      const lastMs = this.#last[item]!;
      const ends = (this.#gaps.get(item) ?? []).flatMap(({ fromMs, untilMs }) => [baseMs - fromMs, baseMs - untilMs]);
      entries.push(this.#hasHistory[item] === 1 && lastMs > 0 ? [baseMs - lastMs, ...ends] : null);
    }
    return JSON.stringify([baseMs, ...entries]);
  }

  #changeAll(): void {
    for (let group = 0; group * GROUP < this.#keys.length; group++) this.#changed.add(group);
  }
}

const groupOf = (name: string): number => Number(name.slice(GROUPS.length));

/** Identifies an item and its series across restarts. */
export const positionKeyOf = ({ name, spec: { node, index, member } }: Point<OpcuaValue>): string =>
  [name, node, index ?? '', member ?? ''].join(' ');
