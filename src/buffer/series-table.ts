import type { UnitReference } from '../contract/values.ts';
import type { AssetState, SeriesState } from './records.ts';
import type { Series } from './series.ts';
import { NO_QUEUE } from './series-queue.ts';

/** Programs can write a new unit with every value, so the number of shared objects is limited. */
const MAX_SHARED = 1_000;

/** Series and assets known to the store, including which assets changed. */
export class SeriesTable {
  readonly series: (SeriesState | undefined)[] = [];
  readonly assets = new Map<number, AssetState>();
  readonly #groups = new Map<string, string>();
  readonly #units = new Map<string, UnitReference>();
  #changed = new Set<AssetState>();

  seriesOf(id: number): SeriesState {
    const found = this.series[id];
    if (!found) throw new Error(`unknown series ${id}`);
    return found;
  }

  addSeries(series: Series): SeriesState {
    const found = this.series[series.id];
    if (found) return found;
    let asset = this.assets.get(series.asset);
    if (!asset) {
      asset = {
        asset: series.asset,
        // Set to an array of exact length below: an array that grows from empty reserves 17 slots.
        series: [],
        places: [],
        backlog: 0,
        liveInFlight: 0,
        backlogInFlight: 0,
        nextSeries: 0,
        lastTarget: Number.NEGATIVE_INFINITY,
      };
      this.assets.set(series.asset, asset);
    }
    const state: SeriesState = {
      series: this.#compact(series),
      asset,
      queue: NO_QUEUE,
      flushedSeq: -1,
      segments: 0,
      backlogTimeMs: Number.NEGATIVE_INFINITY,
      held: false,
    };
    this.series[series.id] = state;
    if (asset.series.length === 0) asset.series = [state];
    else asset.series.push(state);
    return state;
  }

  /**
   * Copies a series with shared groups and units, which requires half as much memory as the message in which it
   * arrived.
   */
  #compact({ id, asset, key, group, unit, instrumentation, since }: Series): Series {
    const sharedGroup = group === undefined ? undefined : shared(this.#groups, group, group);
    const sharedUnit = unit && shared(this.#units, 'id' in unit ? `#${unit.id}` : unit.code, unit);
    return { id, asset, key, group: sharedGroup, unit: sharedUnit, instrumentation, since: since ?? 0 };
  }

  /** Returns all series except those whose name was lost. */
  namedSeries(): Series[] {
    return this.series.flatMap((one) => (one && one.series.asset > 0 ? [one.series] : []));
  }

  /** Records that the lanes of the asset changed. */
  markChanged(asset: AssetState): void {
    this.#changed.add(asset);
  }

  /** Returns the assets whose lanes changed since the previous call. */
  collectChanged(): ReadonlySet<AssetState> {
    const changed = this.#changed;
    this.#changed = new Set();
    return changed;
  }
}

function shared<Value>(known: Map<string, Value>, name: string, value: Value): Value {
  const found = known.get(name);
  if (found !== undefined) return found;
  if (known.size < MAX_SHARED) known.set(name, value);
  return value;
}
