/**
 * Series without values: they may be forgotten, so that memory holds what the backlog needs and not every key that a
 * program ever wrote. Their rows stay on disk until the number serves another series.
 */
import { StoreError } from '../base/errors.ts';
import type { Columns } from './format/value-columns.ts';
import type { Pending } from './pending.ts';
import type { Series } from './series.ts';
import { NO_QUEUE } from './series-queue.ts';
import type { AssetState, SeriesState, StoreState } from './state.ts';
import type { Statements } from './tables.ts';

/**
 * Series of which nothing stands anywhere that could name them: neither in a queue nor in a segment or its directory, nor in
 * a row of the log that is on disk still, nor in a batch, nor on its way to another place. A held one is none: it is known
 * for its hold.
 */
export function idleSeries(state: StoreState, pending: Pending, statements: Statements): number[] {
  if (pending.moved.length > 0 || pending.newSeries.size > 0 || state.notLoaded > 0) return [];
  const named = new Set(statements.quarantineBySeries.all().map(({ series }) => series));
  for (const { series } of pending.quarantine) named.add(series);
  const inBatches = new Set<SeriesState>();
  for (const batch of state.batches.values()) for (const slice of batch.slices) inBatches.add(slice.series);
  const firstSeq = state.rows[0]?.firstSeq ?? state.nextSeq;
  const idle: number[] = [];
  for (const one of state.series) {
    if (!one || one.held || one.queue !== NO_QUEUE || one.entries > 0 || one.lastSeq >= firstSeq) continue;
    if (!inBatches.has(one) && !named.has(one.series.id)) idle.push(one.series.id);
  }
  return idle;
}

/** Takes idle series out of memory. */
export function forgetSeries(state: StoreState, ids: readonly number[]): void {
  const assets = new Set<AssetState>();
  for (const id of ids) {
    const one = state.series[id];
    if (!one) continue;
    assets.add(one.asset);
    state.series[id] = undefined;
  }
  for (const asset of assets) {
    asset.series = asset.series.filter((one) => state.series[one.series.id] === one);
    // What was told of it last is that nothing waits.
    if (asset.series.length === 0 && asset.places.length === 0) state.assets.delete(asset.asset);
  }
}

/** Every series in memory, but those whose name is lost. */
export function knownSeries(state: StoreState): Series[] {
  return state.series.flatMap((one) => (one && one.series.asset > 0 ? [one.series] : []));
}

/** A value of a series that nobody knows could never leave: throws `store.no_series` before any is written. */
export function checkSeries(
  state: StoreState,
  { series, length }: Columns,
  newSeries: readonly Series[],
  pending: Pending,
): void {
  let coming: Set<number> | undefined;
  for (let i = 0; i < length; i++) {
    const id = series[i]!;
    if (state.series[id] !== undefined) continue;
    coming ??= new Set([...newSeries.map((one) => one.id), ...pending.newSeries.keys()]);
    if (!coming.has(id)) throw new StoreError(`series ${id} is not known to the store`, { code: 'store.no_series' });
  }
}
