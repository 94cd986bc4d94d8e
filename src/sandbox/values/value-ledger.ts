import type { ValueStatus } from '../../contract/values.ts';
import type { PostedSeries } from './values-body.ts';

export interface StoredValue {
  timestampMs: number;
  value: number;
  status: ValueStatus | undefined;
  /** As posted (platform 10.2). */
  simulated?: boolean | undefined;
  hold?: boolean | undefined;
  group: string | undefined;
  unit: string | undefined;
  /** Number of times that this asset, key and timestamp have arrived. */
  times: number;
}

export interface ValueCounts {
  /** Number of values with different assets, keys or timestamps; in `count` mode, number of all values. */
  stored: number;
  /** Number of all accepted values. */
  received: number;
  /** Number of values whose asset, key and timestamp already existed. */
  duplicates: number;
  /** Number of duplicates with a different value. */
  replaced: number;
  /** Number of posts with the response 204. */
  posts: number;
}

/** Result of comparing a sender's values with the stored values, as timestamps. */
export interface Comparison {
  missing: number[];
  invented: number[];
  different: number[];
}

interface SeriesPage {
  key: string;
  stored: Map<number, StoredValue>;
  received: number;
  last: StoredValue | undefined;
}

/**
 * Stores values that the service accepted. A value with the same asset, key and timestamp replaces the previous value
 * (platform 10.2, "likely") and is counted as a duplicate. `all` stores every value up to `maxValues`, and then only
 * counts; `count` stores counts and the latest value of each series.
 */
export class ValueLedger {
  readonly #assets = new Map<number, Map<string, SeriesPage>>();
  #keep: 'all' | 'count';
  readonly #maxValues: number;
  #received = 0;
  #stored = 0;
  #duplicates = 0;
  #replaced = 0;
  #posts = 0;
  readonly #listeners = new Set<(asset: number, posted: readonly PostedSeries[]) => void>();

  constructor(keep: 'all' | 'count' = 'all', maxValues = 2_000_000) {
    this.#keep = keep;
    this.#maxValues = maxValues;
  }

  /** Whether all values are stored. If only counts are stored, lists and duplicates are incomplete. */
  get complete(): boolean {
    return this.#keep === 'all';
  }

  record(asset: number, posted: readonly PostedSeries[]): void {
    this.#posts++;
    const pages = entryOf(this.#assets, asset, () => new Map<string, SeriesPage>());
    for (const { key, group, unit, points } of posted) {
      const page = entryOf(pages, key, () => ({ key, stored: new Map(), received: 0, last: undefined }));
      for (const { timestampMs, value, status, simulated, hold } of points) {
        this.#put(page, { timestampMs, value, status, simulated, hold, group, unit: unit?.code, times: 1 });
      }
    }
    for (const listener of this.#listeners) listener(asset, posted);
  }

  /** Calls the listener for each post of accepted values. Returns a function that removes the listener. */
  onRecord(listener: (asset: number, posted: readonly PostedSeries[]) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  counts(asset?: number, key?: string): ValueCounts {
    if (asset === undefined) {
      return {
        stored: this.#stored,
        received: this.#received,
        duplicates: this.#duplicates,
        replaced: this.#replaced,
        posts: this.#posts,
      };
    }
    const counts: ValueCounts = { stored: 0, received: 0, duplicates: 0, replaced: 0, posts: 0 };
    for (const page of this.#assets.get(asset)?.values() ?? []) {
      if (key !== undefined && page.key !== key.toLowerCase()) continue;
      counts.received += page.received;
      counts.stored += this.#keep === 'all' ? page.stored.size : page.received;
    }
    counts.duplicates = counts.received - counts.stored;
    return counts;
  }

  /** Returns all values of a key by timestamp. */
  list(asset: number, key: string): StoredValue[] {
    const page = this.#assets.get(asset)?.get(key.toLowerCase());
    return [...(page?.stored.values() ?? [])].sort((a, b) => a.timestampMs - b.timestampMs);
  }

  /** Returns the latest value by arrival. */
  last(asset: number, key: string): StoredValue | undefined {
    return this.#assets.get(asset)?.get(key.toLowerCase())?.last;
  }

  /** Returns all series. */
  series(): { asset: number; key: string; stored: number; received: number }[] {
    return [...this.#assets].flatMap(([asset, pages]) =>
      [...pages.values()].map((page) => ({
        asset,
        key: page.key,
        stored: this.#keep === 'all' ? page.stored.size : page.received,
        received: page.received,
      })),
    );
  }

  /** Compares sent and stored values. Returns the timestamps of values that are missing, were never sent, or differ. */
  compare(asset: number, key: string, sent: Iterable<{ timestampMs: number; value?: number }>): Comparison {
    const stored = this.#assets.get(asset)?.get(key.toLowerCase())?.stored ?? new Map<number, StoredValue>();
    const expected = new Map<number, number | undefined>();
    for (const one of sent) expected.set(one.timestampMs, one.value);
    const missing = [...expected.keys()].filter((at) => !stored.has(at));
    const invented = [...stored.keys()].filter((at) => !expected.has(at));
    const different = [...expected].filter(([at, value]) => {
      const here = stored.get(at);
      return value !== undefined && here !== undefined && !Object.is(here.value, value);
    });
    return { missing, invented, different: different.map(([at]) => at) };
  }

  clear(): void {
    this.#assets.clear();
    this.#received = this.#stored = this.#duplicates = this.#replaced = this.#posts = 0;
  }

  #put(page: SeriesPage, value: StoredValue): void {
    this.#received++;
    page.received++;
    page.last = value;
    if (this.#keep === 'count') {
      this.#stored++;
      return;
    }
    const here = page.stored.get(value.timestampMs);
    if (here) {
      this.#duplicates++;
      if (!Object.is(here.value, value.value)) this.#replaced++;
      value.times = here.times + 1;
    } else {
      this.#stored++;
    }
    page.stored.set(value.timestampMs, value);
    if (this.#stored >= this.#maxValues) this.#giveUpLists();
  }

  /** Removes the stored values and retains the counts. */
  #giveUpLists(): void {
    this.#keep = 'count';
    for (const pages of this.#assets.values()) for (const page of pages.values()) page.stored.clear();
  }
}

function entryOf<Key, Value>(map: Map<Key, Value>, key: Key, make: () => Value): Value {
  const found = map.get(key);
  if (found !== undefined) return found;
  const made = make();
  map.set(key, made);
  return made;
}
