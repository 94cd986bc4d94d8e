import type { Series } from '../series.ts';
import type { StoreState } from '../state.ts';
import type { Damage, ValueStoreOptions } from '../store-facts.ts';

/** What a store hands on to the one that takes its place while the agent runs, because its file was found corrupt. */
export interface Handover {
  series: Series[];
  held: number[];
  nextBatch: number;
  damage: Damage[];
  /** As the last reload left them. */
  options: ValueStoreOptions;
}

export function handOver(state: StoreState, options: ValueStoreOptions): Omit<Handover, 'damage'> {
  const all = state.series.filter((one) => one !== undefined);
  const held = all.filter((one) => one.held).map((one) => one.series.id);
  return { series: all.map((one) => one.series), held, nextBatch: state.nextBatch, options };
}

/** Batches of the store before are unknown from here on: their values wait again. Every lane is told anew. */
export function takeOver(state: StoreState, { series, held, nextBatch }: Omit<Handover, 'options'>): void {
  for (const one of series) state.addSeries(one);
  state.nextBatch = nextBatch;
  state.holdSeries(held);
  for (const asset of state.assets.values()) state.touched.add(asset);
}
