import type { AssetLanes } from './client/lanes.ts';
import type { AssetState, StoreState } from './state.ts';

/** What waits of an asset, lane by lane. */
export function lanesOf(state: StoreState, asset: AssetState): AssetLanes {
  let live = 0;
  let oldestSeq = Number.POSITIVE_INFINITY;
  for (const one of asset.series) {
    const { queue } = one;
    const { arrived } = queue;
    if (one.held || queue.waiting + arrived === 0) continue;
    live += queue.waiting + arrived;
    oldestSeq = Math.min(oldestSeq, queue.waiting > 0 ? queue.seqAt(queue.firstWaiting()) : queue.arrivedSeq);
  }
  const oldest = state.rowOf(oldestSeq);
  const oldestAtMs = oldest ? state.times.acceptedMs(oldest.run, oldest.monotonicMs) : 0;
  return {
    asset: asset.asset,
    live,
    oldestLiveAtMs: live === 0 ? Number.POSITIVE_INFINITY : oldestAtMs,
    backlog: asset.backlog,
    oldestBacklogAt: oldestPlace(asset, state),
  };
}

/** Where the oldest segment stands that could be taken. Places at the front that hold nothing any more fall away. */
function oldestPlace(asset: AssetState, state: StoreState): number {
  if (asset.backlog === 0) return Number.POSITIVE_INFINITY;
  let exhausted = 0;
  for (const { span, from, to } of asset.places) {
    let alive = false;
    for (let entry = from; entry < to; entry++) {
      if (span.gone[entry]) continue;
      alive = true;
      if (span.underWay.has(entry) || state.seriesOf(span.series[entry]!).held) continue;
      asset.places.splice(0, exhausted);
      return span.place;
    }
    if (!alive && asset.places[exhausted]!.span === span) exhausted++;
  }
  return Number.POSITIVE_INFINITY;
}
