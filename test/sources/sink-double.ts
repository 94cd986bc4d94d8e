import { SeriesCatalogue } from '../../src/buffer/series.ts';
import { STAMPED_HERE, STATUS_MASK, type ValueColumns } from '../../src/buffer/value-columns.ts';
import type { Tag, TagValue } from '../../src/config/tags.ts';
import { StoreError } from '../../src/errors.ts';
import { Intake } from '../../src/sources/intake.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

export interface StoredValue {
  address: string;
  timeMs: number;
  value: number;
  status: number;
  stampedHere: boolean;
}

/** A store in memory: keeps, refuses, or lets everyone wait until the test commits. */
export class MemorySink {
  readonly stored: StoredValue[] = [];
  appends = 0;
  commits = 0;
  fault: Error | undefined;
  /** Appends wait for `commit`, as they do for the store's next commit. */
  holds = false;
  readonly #catalogue: SeriesCatalogue;
  #waiting: { columns: ValueColumns; resolve: () => void; reject: (error: Error) => void }[] = [];

  constructor(catalogue: SeriesCatalogue) {
    this.#catalogue = catalogue;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  async append(columns: ValueColumns): Promise<void> {
    this.appends++;
    if (this.fault) throw this.fault;
    if (!this.holds) {
      this.#keep(columns);
      return;
    }
    await new Promise<void>((resolve, reject) => this.#waiting.push({ columns, resolve, reject }));
  }

  commit(): void {
    this.commits++;
    for (const { columns, resolve, reject } of this.#waiting.splice(0)) {
      if (this.fault) reject(this.fault);
      else {
        this.#keep(columns);
        resolve();
      }
    }
  }

  #keep(columns: ValueColumns): void {
    for (let at = 0; at < columns.length; at++) {
      const series = this.#catalogue.get(columns.series[at]!);
      if (!series) throw new Error(`series ${columns.series[at]} is not in the catalogue`);
      const { unit } = series;
      const unitText = unit === undefined ? '' : 'id' in unit ? `#${unit.id}` : unit.code;
      const flags = columns.flags[at]!;
      this.stored.push({
        address: `${series.asset}/${series.group ?? ''}/${series.key}/${unitText}`,
        timeMs: columns.timeMs[at]!,
        value: columns.value[at]!,
        status: flags & STATUS_MASK,
        stampedHere: (flags & STAMPED_HERE) !== 0,
      });
    }
  }
}

export function storeFault(code: string, retryAfterMs?: number): StoreError {
  return Object.assign(new StoreError('the buffer takes nothing now', { code, retryable: true }), { retryAfterMs });
}

export function tagOf(name: string, asset: number, values: TagValue[]): Tag {
  return { name, asset, values: new Map(values.map((value) => [value.key, value])) };
}

export const PLANT = new Map<string, Tag>([
  [
    'FT-101',
    tagOf('FT-101', 881, [
      { key: 'flow', group: 'process', unit: { id: 12 } },
      { key: 'temperature', unit: { code: 'degree_celsius' } },
    ]),
  ],
  ['GW-01', tagOf('GW-01', 900, [{ key: 'load' }])],
]);

export interface Door {
  catalogue: SeriesCatalogue;
  sink: MemorySink;
  intake: Intake;
  clock: ManualClock;
  counted: Map<string, number>;
}

/** An intake over the plant's tags and a store in memory. */
export function makeDoor(tags: ReadonlyMap<string, Tag> = PLANT): Door {
  const catalogue = new SeriesCatalogue();
  const sink = new MemorySink(catalogue);
  const clock = new ManualClock();
  const counted = new Map<string, number>();
  const countIngested = (source: string, values: number) => {
    counted.set(source, (counted.get(source) ?? 0) + values);
  };
  return { catalogue, sink, clock, counted, intake: new Intake({ catalogue, tags, sink, clock, countIngested }) };
}

/** Waits until something holds, as long as the test runs. */
export async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 2));
}

/** Chance that can be run again (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
