import type { UnitReference } from '../contract/values.ts';
import type { Series } from './series.ts';

/** Hostile programs may write another unit with each value: what is shared is bounded. */
const MAX_SHARED = 1_000;

/** Copies of series that share what many of them have in common, made in one shape: half as large as what crosses from thread to thread. */
export class CompactSeries {
  readonly #groups = new Map<string, string>();
  readonly #units = new Map<string, UnitReference>();

  copy({ id, asset, key, group, unit, instrumentation, since }: Series): Series {
    const sharedGroup = group === undefined ? undefined : shared(this.#groups, group, group);
    const sharedUnit = unit && shared(this.#units, 'id' in unit ? `#${unit.id}` : unit.code, unit);
    return { id, asset, key, group: sharedGroup, unit: sharedUnit, instrumentation, since: since ?? 0 };
  }
}

function shared<Value>(known: Map<string, Value>, name: string, value: Value): Value {
  const found = known.get(name);
  if (found !== undefined) return found;
  if (known.size < MAX_SHARED) known.set(name, value);
  return value;
}
