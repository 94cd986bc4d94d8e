import type {
  AssetLanes,
  Batch,
  OutgoingBuffer,
  Refusal,
  TakenBatch,
  TakeRequest,
} from '../../../src/buffer/client/lanes.ts';

export interface MemoryValue {
  /** Value that tests count at the platform. */
  number: number;
  asset: number;
  series: number;
  timeMs: number;
  acceptedMs: number;
  place: number;
  /** Serialized form, cached because rejected values are sent repeatedly. */
  point?: string;
}

interface Waiting {
  live: MemoryValue[];
  backlog: MemoryValue[];
  /** Values to flush: their time is not later than that of the backlog in their series. */
  late: MemoryValue[];
  /** Counts of `live` and `backlog`, or undefined after a change. */
  lanes: AssetLanes | undefined;
}

interface BatchInProgress {
  batch: Batch;
  lane: 'live' | 'backlog';
  /** Whether the batch had backlog values when it was taken. A flush moves the live values of the batch to the backlog. */
  hasBacklog: boolean;
  live: MemoryValue[];
  backlog: MemoryValue[];
}

/** In-memory buffer with the behaviour of lanes.ts, for tests of the planner and the sender. */
export class MemoryBuffer implements OutgoingBuffer {
  readonly #assets = new Map<number, Waiting>();
  readonly inProgress = new Map<number, BatchInProgress>();
  readonly #listeners = new Set<() => void>();
  readonly held = new Set<number>();
  readonly quarantined: { value: MemoryValue; refusal: Refusal }[] = [];
  settled = 0;
  isReady(): boolean {
    return true;
  }
  #nextBatch = 1;
  #nextPlace = 1;

  accept(values: readonly Omit<MemoryValue, 'place'>[]): void {
    for (const value of values) {
      const waiting = this.#of(value.asset);
      const isLate = value.timeMs <= (this.#newestOld(waiting, value.series).get(value.series) ?? -1);
      (isLate ? waiting.late : waiting.live).push({ ...value, place: 0 });
      waiting.lanes = undefined;
    }
    this.#changed();
  }

  /**
   * Newest backlog time of a series, or of all series. Includes values in progress and values waiting for a flush.
   * Later arrivals up to that time belong to the backlog.
   */
  #newestOld({ backlog, late }: Waiting, only?: number): Map<number, number> {
    const newest = new Map<number, number>();
    const note = (old: MemoryValue) => {
      if (only !== undefined && old.series !== only) return;
      if (old.timeMs > (newest.get(old.series) ?? -1)) newest.set(old.series, old.timeMs);
    };
    for (const one of this.inProgress.values()) one.backlog.forEach(note);
    backlog.forEach(note);
    late.forEach(note);
    return newest;
  }

  /**
   * Moves accepted values to the backlog, as a flush of the store does. Values in flight move as well, so that later
   * values of their series cannot overtake them.
   */
  flush(acceptedBeforeMs: number): void {
    const place = this.#nextPlace++;
    const isOld = (value: MemoryValue) => value.acceptedMs < acceptedBeforeMs;
    for (const one of this.inProgress.values()) {
      one.backlog.push(...one.live.filter(isOld).map((value) => ({ ...value, place })));
      one.live = one.live.filter((value) => !isOld(value));
    }
    for (const waiting of this.#assets.values()) {
      const old = [...waiting.live, ...waiting.late].filter(isOld);
      waiting.live = waiting.live.filter((value) => !isOld(value));
      waiting.late = waiting.late.filter((value) => !isOld(value));
      for (const value of old) waiting.backlog.push({ ...value, place });
      // A value that returned from a failed post may precede values that were flushed before it.
      waiting.backlog.sort((a, b) => a.number - b.number);
      this.#sortOutLate(waiting);
      waiting.lanes = undefined;
    }
    this.#changed();
  }

  #sortOutLate(waiting: Waiting): void {
    if (waiting.live.length === 0) return;
    const newest = this.#newestOld(waiting);
    const isLate = (value: MemoryValue) => value.timeMs <= (newest.get(value.series) ?? -1);
    waiting.late.push(...waiting.live.filter(isLate));
    waiting.live = waiting.live.filter((value) => !isLate(value));
  }

  get waiting(): number {
    let sum = 0;
    for (const { live, backlog, late } of this.#assets.values()) sum += live.length + backlog.length + late.length;
    for (const { live, backlog } of this.inProgress.values()) sum += live.length + backlog.length;
    return sum;
  }

  lanes(): ReadonlyMap<number, AssetLanes> {
    const lanes = new Map<number, AssetLanes>();
    for (const [asset, waiting] of this.#assets) {
      waiting.lanes ??= this.#lanesOf(asset, waiting);
      if (waiting.lanes.live > 0 || waiting.lanes.backlog > 0) lanes.set(asset, waiting.lanes);
    }
    return lanes;
  }

  #lanesOf(asset: number, waiting: Waiting): AssetLanes {
    const live = waiting.live.filter((value) => !this.held.has(value.series));
    const backlog = waiting.backlog.filter((value) => !this.held.has(value.series));
    return {
      asset,
      live: live.length,
      oldestLiveAtMs: Math.min(...live.map((value) => value.acceptedMs), Number.POSITIVE_INFINITY),
      backlog: backlog.length,
      oldestBacklogAt: Math.min(...backlog.map((value) => value.place), Number.POSITIVE_INFINITY),
    };
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async take(request: TakeRequest): Promise<TakenBatch | undefined> {
    await Promise.resolve();
    const { asset, lane, maxValues, alongValues = 0, onlySeries } = request;
    const waiting = this.#of(asset);
    const inProgress = [...this.inProgress.values()].filter((one) => one.batch.asset === asset);
    const busy = (which: 'live' | 'backlog') =>
      inProgress.some((one) => one.lane === which || (which === 'backlog' && one.hasBacklog));
    if (busy(lane)) return undefined;
    const wanted = (value: MemoryValue) =>
      onlySeries ? onlySeries.includes(value.series) : !this.held.has(value.series);
    const live = lane === 'live' ? waiting.live.filter(wanted).slice(0, maxValues) : [];
    if (lane === 'live' && live.length === 0) return undefined;
    const room = lane === 'backlog' ? maxValues : busy('backlog') ? 0 : Math.min(alongValues, maxValues - live.length);
    const blocked = new Set(inProgress.flatMap((one) => one.backlog.map(({ series }) => series)));
    const backlog = waiting.backlog.filter((value) => wanted(value) && !blocked.has(value.series)).slice(0, room);
    if (live.length + backlog.length === 0) return undefined;
    const taken = new Set([...live, ...backlog]);
    waiting.live = waiting.live.filter((value) => !taken.has(value));
    waiting.backlog = waiting.backlog.filter((value) => !taken.has(value));
    waiting.lanes = undefined;
    const batch = this.#send({ lane, hasBacklog: backlog.length > 0, live, backlog }, asset);
    this.#changed();
    return this.#taken(batch);
  }

  #taken(whole: Batch): TakenBatch {
    const open = new Set([whole.id]);
    return {
      whole,
      divide: async ({ id }) => {
        const parts = await this.divide(id);
        if (parts.length > 0) open.delete(id);
        for (const part of parts) open.add(part.id);
        return parts;
      },
      settle: async ({ id }) => {
        open.delete(id);
        await this.settle(id);
      },
      quarantine: async ({ id }, refusal) => {
        open.delete(id);
        await this.quarantine(id, refusal);
      },
      end: async () => {
        for (const id of open) await this.release(id);
      },
    };
  }

  #send(taken: Omit<BatchInProgress, 'batch'>, asset: number): Batch {
    const { live, backlog } = taken;
    const points = new Map<number, string[]>();
    for (const value of [...backlog, ...live]) {
      value.point ??= `{"timestamp":"${new Date(value.timeMs).toISOString()}","value":${value.number}}`;
      const ofSeries = points.get(value.series);
      if (ofSeries) ofSeries.push(value.point);
      else points.set(value.series, [value.point]);
    }
    const keys = [...points].map(([id, data]) => `{"key":"s${id}","data":[${data.join(',')}]}`);
    const batch: Batch = {
      id: this.#nextBatch++,
      asset,
      series: [...points.keys()],
      values: live.length + backlog.length,
      liveValues: live.length,
      backlogValues: backlog.length,
      body: new TextEncoder().encode(`{"values":[${keys.join(',')}]}`),
    };
    this.inProgress.set(batch.id, { ...taken, batch });
    return batch;
  }

  async settle(batch: number): Promise<void> {
    const { live, backlog } = this.#end(batch);
    this.settled += live.length + backlog.length;
    this.#changed();
  }

  async release(batch: number): Promise<void> {
    const { batch: ended, live, backlog } = this.#end(batch);
    const waiting = this.#of(ended.asset);
    const byAcceptance = (a: MemoryValue, b: MemoryValue) => a.number - b.number;
    waiting.live = [...live, ...waiting.live].sort(byAcceptance);
    waiting.backlog = [...backlog, ...waiting.backlog].sort(byAcceptance);
    this.#sortOutLate(waiting);
    waiting.lanes = undefined;
    this.#changed();
  }

  async divide(batch: number): Promise<Batch[]> {
    const whole = this.inProgress.get(batch);
    if (!whole) throw new Error(`batch ${batch} is not under way`);
    const values = [...whole.backlog, ...whole.live];
    if (values.length < 2) return [];
    const { series } = whole.batch;
    const first = new Set(series.slice(0, series.length >> 1));
    const inFirst =
      series.length > 1
        ? (value: MemoryValue) => first.has(value.series)
        : (value: MemoryValue) => values.indexOf(value) < values.length >> 1;
    this.inProgress.delete(batch);
    return [inFirst, (value: MemoryValue) => !inFirst(value)].map((isIn) =>
      this.#send({ ...whole, live: whole.live.filter(isIn), backlog: whole.backlog.filter(isIn) }, whole.batch.asset),
    );
  }

  async quarantine(batch: number, refusal: Refusal): Promise<void> {
    const { live, backlog } = this.#end(batch);
    for (const value of [...backlog, ...live]) this.quarantined.push({ value, refusal });
    this.#changed();
  }

  async holdSeries(series: readonly number[]): Promise<void> {
    this.held.clear();
    for (const one of series) this.held.add(one);
    for (const waiting of this.#assets.values()) waiting.lanes = undefined;
    this.#changed();
  }

  #end(batch: number): BatchInProgress {
    const ended = this.inProgress.get(batch);
    if (!ended) throw new Error(`batch ${batch} is not under way: it ended twice`);
    this.inProgress.delete(batch);
    return ended;
  }

  #of(asset: number): Waiting {
    let waiting = this.#assets.get(asset);
    if (!waiting) {
      waiting = { live: [], backlog: [], late: [], lanes: undefined };
      this.#assets.set(asset, waiting);
    }
    return waiting;
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
  }
}
