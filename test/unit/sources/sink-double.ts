import { StoreError } from '../../../src/base/errors.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import type { Note } from '../../../src/buffer/client/notes.ts';
import { STAMPED_HERE, STATUS_MASK, type ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../../src/buffer/series.ts';
import { type Shaping, type Tag, type TagValue, UNSHAPED, type ValueOrigin } from '../../../src/config/tags.ts';
import { Gate } from '../../../src/sources/intake/gate.ts';
import { Intake } from '../../../src/sources/intake/intake.ts';
import { Stamps } from '../../../src/sources/intake/stamps.ts';
import type { ValueWatch } from '../../../src/sources/intake/value-watch.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

interface StoredValue {
  address: string;
  timeMs: number;
  value: number;
  status: number;
  stampedHere: boolean;
}

/** Store in memory. Accepts values, rejects them, or waits until the test commits. */
class MemorySink {
  readonly stored: StoredValue[] = [];
  appends = 0;
  hurries = 0;
  /** Latest note of each name. */
  readonly notes = new Map<string, string>();
  commits = 0;
  fault: Error | undefined;
  /** Whether values are waiting for `commit`. */
  holds = false;
  readonly #catalogue: SeriesCatalogue;
  #waiting: { columns: ValueColumns; notes: readonly Note[]; resolve: () => void; reject: (error: Error) => void }[] =
    [];

  constructor(catalogue: SeriesCatalogue) {
    this.#catalogue = catalogue;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  async append(columns: ValueColumns, notes: readonly Note[] = []): Promise<void> {
    this.appends++;
    if (this.fault) throw this.fault;
    if (!this.holds) {
      this.#keep(columns, notes);
      return;
    }
    await new Promise<void>((resolve, reject) => this.#waiting.push({ columns, notes, resolve, reject }));
  }

  commit(): void {
    this.commits++;
    for (const { columns, notes, resolve, reject } of this.#waiting.splice(0)) {
      if (this.fault) reject(this.fault);
      else {
        this.#keep(columns, notes);
        resolve();
      }
    }
  }

  commitSoon(): void {
    this.hurries++;
  }

  #keep(columns: ValueColumns, notes: readonly Note[]): void {
    for (const { name, text } of notes) {
      if (text === undefined) this.notes.delete(name);
      else this.notes.set(name, text);
    }
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

/** Returns the origin of a value, unscaled by default. */
export function originOf<Spec>(
  kind: string,
  source: string,
  spec: Spec,
  { everyMs = 1_000, ...shaping }: Partial<Shaping> & { everyMs?: number } = {},
): ValueOrigin<Spec> {
  return { kind, source, everyMs, shaping: { ...UNSHAPED, ...shaping }, spec };
}

export interface IntakeBench {
  catalogue: SeriesCatalogue;
  sink: MemorySink;
  intake: Intake;
  stamps: Stamps;
  /** Returns a gate of a source with the same store. */
  gateOf(source: string, timeFrom?: 'arrival' | 'source', inOrder?: boolean): Gate;
  clock: ManualClock;
  counted: Map<string, number>;
  ahead: Map<string, number>;
}

/** Returns an intake of the given tags with a store in memory. */
export function makeIntakeBench(tags: ReadonlyMap<string, Tag> = PLANT, watch?: ValueWatch): IntakeBench {
  const catalogue = new SeriesCatalogue();
  const sink = new MemorySink(catalogue);
  const clock = new ManualClock();
  const counted = new Map<string, number>();
  const ahead = new Map<string, number>();
  const countInto = (counts: Map<string, number>) => (source: string, values: number) => {
    counts.set(source, (counts.get(source) ?? 0) + values);
  };
  const countIngested = countInto(counted);
  const stamps = new Stamps();
  const intake = new Intake({
    watch,
    catalogue,
    tags,
    sink,
    stamps,
    clock,
    countIngested,
    countAhead: countInto(ahead),
  });
  const gateOf = (source: string, timeFrom: 'arrival' | 'source' = 'source', inOrder = false) =>
    new Gate({
      watch,
      source,
      timeFrom,
      sink,
      stamps,
      clock,
      log: silentLogger(),
      countIngested,
      countAhead: countInto(ahead),
      inOrder,
    });
  return { catalogue, sink, clock, counted, ahead, stamps, intake, gateOf };
}

/** Waits until the condition is true. */
export async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 2));
}

/** Returns a reproducible random number generator (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
