import type { UnitReference } from '../contract/values.ts';

/** A series is (asset, group, key, unit), lower-cased, bound when a value is accepted: a reload never moves accepted values. */
export interface Series {
  id: number;
  asset: number;
  key: string;
  group: string | undefined;
  unit: UnitReference | undefined;
}

/**
 * The series that this agent knows, in the main thread: from a value's address to the number that stands for it in
 * the store. A series that is new here is written with the commit that carries its first value (`takeNew`).
 */
export class SeriesCatalogue {
  readonly #byAddress = new Map<string, Series>();
  readonly #byId = new Map<number, Series>();
  #nextId = 1;
  #unsaved: Series[] = [];

  /** `known` is what the store gave at its opening. */
  constructor(known: Iterable<Series> = []) {
    for (const series of known) {
      this.#byAddress.set(addressOf(series), series);
      this.#byId.set(series.id, series);
      this.#nextId = Math.max(this.#nextId, series.id + 1);
    }
  }

  /** The series' number; makes one for a series that is new. `key` and `group` may come in any case. */
  idOf(asset: number, key: string, group: string | undefined, unit: UnitReference | undefined): number {
    const wanted = { id: 0, asset, key: key.toLowerCase(), group: group?.toLowerCase(), unit };
    const address = addressOf(wanted);
    const found = this.#byAddress.get(address);
    if (found) return found.id;
    const series: Series = { ...wanted, id: this.#nextId++ };
    this.#byAddress.set(address, series);
    this.#byId.set(series.id, series);
    this.#unsaved.push(series);
    return series.id;
  }

  get(id: number): Series | undefined {
    return this.#byId.get(id);
  }

  /** Every series of an asset. */
  ofAsset(asset: number): Series[] {
    return [...this.#byId.values()].filter((series) => series.asset === asset);
  }

  /** Every series that is known, by number. */
  all(): Iterable<Series> {
    return this.#byId.values();
  }

  get size(): number {
    return this.#byId.size;
  }

  /** What the store does not have yet; the caller gives it back by `returnNew` when the commit failed. */
  takeNew(): Series[] {
    const series = this.#unsaved;
    this.#unsaved = [];
    return series;
  }

  returnNew(series: Series[]): void {
    this.#unsaved.unshift(...series);
  }
}

function addressOf(series: Series): string {
  const unit = series.unit === undefined ? '' : 'id' in series.unit ? `#${series.unit.id}` : `=${series.unit.code}`;
  return `${series.asset}|${series.key}|${series.group ?? ''}|${unit}`;
}
