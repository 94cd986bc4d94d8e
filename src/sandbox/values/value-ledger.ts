import type { ValueStatus } from '../../contract/values.ts';
import type { PostedSeries } from './values-body.ts';

export interface StoredValue {
  timestampMs: number;
  value: number;
  status: ValueStatus | undefined;
  /** As they were posted (platform 10.2). */
  simulated?: boolean | undefined;
  hold?: boolean | undefined;
  group: string | undefined;
  unit: string | undefined;
  /** How often this (asset, key, timestamp) came: 1 unless it was sent again. */
  times: number;
}

export interface ValueCounts {
  /** Distinct (asset, key, timestamp) kept; in `count` mode all that came. */
  stored: number;
  /** All values that were posted and taken. */
  received: number;
  /** How often one came whose (asset, key, timestamp) was there already. */
  duplicates: number;
  /** Those of the duplicates that changed the value. */
  replaced: number;
  /** Posts that were answered 204. */
  posts: number;
}

/** What a sender says it sent, held against what is here. */
export interface Comparison {
  missing: number[];
  invented: number[];
  different: number[];
}

export interface LedgerSnapshot {
  keep: 'all' | 'count';
  counts: ValueCounts;
  series: { asset: number; key: string; received: number; last: StoredValue | undefined; stored: StoredValue[] }[];
}

/** More than this is no state for one JSON file. */
const MAX_SAVED = 200_000;

interface SeriesPage {
  key: string;
  stored: Map<number, StoredValue>;
  received: number;
  last: StoredValue | undefined;
}

/**
 * The values that the service took. An (asset, key, timestamp) is one value: sent again it replaces (platform 10.2,
 * "likely"), and is counted as a duplicate. `all` keeps every value up to `maxValues`, then only counts, so that a
 * sandbox that runs for weeks does not grow; `count` keeps only counts and the last value of each series.
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

  /** `false` once only counts are kept: lists and duplicates are then incomplete. */
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

  /** Calls with what comes, once it is kept; returns what ends it. */
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

  /** All values of a key in the order of their timestamps. */
  list(asset: number, key: string): StoredValue[] {
    const page = this.#assets.get(asset)?.get(key.toLowerCase());
    return [...(page?.stored.values() ?? [])].sort((a, b) => a.timestampMs - b.timestampMs);
  }

  /** The value that came last, whatever its timestamp. */
  last(asset: number, key: string): StoredValue | undefined {
    return this.#assets.get(asset)?.get(key.toLowerCase())?.last;
  }

  /** Every (asset, key) that has values. */
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

  /** Timestamps that were sent and are not here, that are here and were never sent, and whose value is another. */
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

  /** For the state file; without the lists where they are too long for one. */
  snapshot(): LedgerSnapshot {
    const withLists = this.#keep === 'all' && this.#stored <= MAX_SAVED;
    return {
      keep: withLists ? 'all' : 'count',
      counts: this.counts(),
      series: [...this.#assets].flatMap(([asset, pages]) =>
        [...pages.values()].map(({ key, received, last, stored }) => ({
          asset,
          key,
          received,
          last,
          stored: withLists ? [...stored.values()] : [],
        })),
      ),
    };
  }

  restore(snapshot: LedgerSnapshot): void {
    this.clear();
    if (snapshot.keep === 'count') this.#keep = 'count';
    this.#received = snapshot.counts.received;
    this.#stored = snapshot.counts.stored;
    this.#duplicates = snapshot.counts.duplicates;
    this.#replaced = snapshot.counts.replaced;
    this.#posts = snapshot.counts.posts;
    for (const { asset, key, received, last, stored } of snapshot.series) {
      const pages = entryOf(this.#assets, asset, () => new Map<string, SeriesPage>());
      pages.set(key, { key, received, last, stored: new Map(stored.map((one) => [one.timestampMs, one])) });
    }
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

  /** Keeps the counts as they are and lets go of the lists. */
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
