import { StoreError } from '../../../src/base/errors.ts';
import { type Logger, silentLogger } from '../../../src/base/logger.ts';
import type { Supply } from '../../../src/buffer/client/committer.ts';
import type { Note } from '../../../src/buffer/client/notes.ts';
import { STAMPED_HERE, STATUS_MASK, type ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../../src/buffer/series.ts';
import { type Shaping, type Tag, type TagValue, UNSHAPED, type ValueOrigin } from '../../../src/config/tags.ts';
import { Gate, type ValueWatch } from '../../../src/sources/intake/gate.ts';
import { Intake } from '../../../src/sources/intake/intake.ts';
import { Stamps } from '../../../src/sources/intake/stamps.ts';
import { ValueTimes } from '../../../src/sources/intake/times.ts';
import { SourceStatus, type SourceStatusOptions } from '../../../src/sources/status.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

interface StoredValue {
  address: string;
  timeMs: number;
  value: number;
  status: number;
  stampedHere: boolean;
}

const RETRY_MS = 1_000;

/** Committer with a store in memory. Commits at once, fails, or waits until the test commits. */
class MemorySink {
  readonly isClosed = false;
  readonly stored: StoredValue[] = [];
  hurries = 0;
  /** Latest note of each name. */
  readonly notes = new Map<string, string>();
  /** Number of attempts to commit. */
  commits = 0;
  fault: StoreError | undefined;
  /** Whether values are waiting for `commit`. */
  holds = false;
  readonly #catalogue: SeriesCatalogue;
  readonly #clock: ManualClock;
  readonly #supplies = new Set<Supply>();
  #isDue = false;

  constructor(catalogue: SeriesCatalogue, clock: ManualClock) {
    this.#catalogue = catalogue;
    this.#clock = clock;
  }

  /** Number of times that a source announced values: all of them, and those that are not committed yet. */
  appends = 0;
  waiting = 0;

  isFullFor(): boolean {
    return false;
  }

  offer(supply: Supply): void {
    this.appends++;
    this.waiting++;
    this.#supplies.add(supply);
    if (this.holds || this.#isDue) return;
    this.#isDue = true;
    queueMicrotask(() => this.commit());
  }

  commit(): void {
    this.#isDue = false;
    this.commits++;
    this.waiting = 0;
    const batches = [...this.#supplies].flatMap((supply) => supply.pull() ?? []);
    this.#supplies.clear();
    const { fault } = this;
    if (fault === undefined) {
      for (const { columns, notes, stored } of batches) {
        this.#keep(columns, notes);
        stored();
      }
      return;
    }
    // Batches that are offered again are retried later.
    this.#isDue = true;
    for (const { failed } of batches) failed(fault);
    if (this.#supplies.size === 0) this.#isDue = false;
    else this.#clock.after(RETRY_MS, () => this.commit());
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

export function storeFault(code: string): StoreError {
  return new StoreError('the buffer takes nothing now', { code, retryable: true });
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
  /** Without EARLIEST_TIME, so that tests can use early timestamps. */
  times: ValueTimes;
  /** Clock of the platform. Default: the wall clock. */
  platform: { nowMs(): number | undefined };
  /** Returns a gate of a source with the same store. */
  gateOf(source: string, timeFrom?: 'arrival' | 'source', log?: Logger): Gate;
  clock: ManualClock;
  counted: Map<string, number>;
}

/** Returns an intake of the given tags with a store in memory. */
export function makeIntakeBench(tags: ReadonlyMap<string, Tag> = PLANT, watch?: ValueWatch): IntakeBench {
  const catalogue = new SeriesCatalogue();
  const clock = new ManualClock();
  const sink = new MemorySink(catalogue, clock);
  const counted = new Map<string, number>();
  const countInto = (counts: Map<string, number>) => (source: string, values: number) => {
    counts.set(source, (counts.get(source) ?? 0) + values);
  };
  const countIngested = countInto(counted);
  const stamps = new Stamps();
  const platform = { nowMs: (): number | undefined => clock.wallMs() };
  const times = new ValueTimes(0, () => platform.nowMs());
  const intake = new Intake({
    watch,
    catalogue,
    tags,
    committer: sink,
    stamps,
    times,
    clock,
    log: silentLogger(),
    countIngested,
  });
  const gateOf = (source: string, timeFrom: 'arrival' | 'source' = 'source', log = silentLogger()) =>
    new Gate({
      watch,
      status: statusOf(source, { clock, log }),
      timeFrom,
      committer: sink,
      stamps,
      times,
      clock,
      log: silentLogger(),
      countIngested,
    });
  return { catalogue, sink, clock, counted, stamps, times, platform, intake, gateOf };
}

/** Returns the status of a source without points. */
export function statusOf(name: string, options: Partial<SourceStatusOptions> = {}): SourceStatus {
  const defaults = { kind: 'modbus', points: [], isPolled: true, clock: new ManualClock(), log: silentLogger() };
  return new SourceStatus({ ...defaults, name, ...options });
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
