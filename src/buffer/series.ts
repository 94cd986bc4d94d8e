import type { UnitReference } from '../contract/values.ts';
import { AddressIndex } from './address-index.ts';

/**
 * A series is (asset, group, key, unit), lower-cased, bound when a value is accepted: a reload never moves accepted values.
 * Where VALUES_PATH names an instrumentation it is part of the series too, since it decides where a value goes.
 */
export interface Series {
  id: number;
  asset: number;
  key: string;
  group: string | undefined;
  unit: UnitReference | undefined;
  instrumentation: number | undefined;
  /** Of several series that had its number one after the other, the largest is the last. The store gives it. */
  since?: number;
}

/**
 * The series that have values in the buffer or were written to lately, in the main thread: from a value's address to the
 * number that stands for it in the store. A series that is new here is written with the commit that carries its first
 * value (`takeNew`). One without values may be forgotten, and its number is given to another: so numbers stay as small
 * as the series are many.
 *
 * It costs memory for as long as the agent runs, some 100 bytes a series: the address as one text is all there is of it.
 */
export class SeriesCatalogue {
  /** By number. */
  readonly #addresses: (string | undefined)[] = [undefined];
  readonly #byAddress = new AddressIndex(this.#addresses);
  /** Numbers that stand for nothing, taken from the front: the one that was forgotten first serves again first. */
  #free: number[] = [];
  /** Made when somebody first asks by asset. */
  #byAsset: Map<number, number[]> | undefined;
  /** By number: the last forgetting that it was part of. */
  readonly #forgottenIn: number[] = [];
  #unsaved: Series[] = [];
  #changes = 0;
  #forgettings = 0;

  /** `known` is what the store gave at its opening. */
  constructor(known: Iterable<Series> = []) {
    for (const series of known) this.#put(series.id, addressOf(series));
    for (let id = 1; id < this.#addresses.length; id++) if (this.#addresses[id] === undefined) this.#free.push(id);
  }

  #put(id: number, address: string): void {
    while (this.#addresses.length < id) this.#addresses.push(undefined);
    this.#addresses[id] = address;
    this.#byAddress.add(address, id);
  }

  /** The series' number; makes one for a series that is new. `key` and `group` may come in any case. */
  idOf(
    asset: number,
    key: string,
    group: string | undefined,
    unit: UnitReference | undefined,
    instrumentation?: number | undefined,
  ): number {
    const wanted = { asset, key: key.toLowerCase(), group: group?.toLowerCase(), unit, instrumentation };
    const address = addressOf(wanted);
    const found = this.#byAddress.find(address);
    if (found !== undefined) return found;
    const id = this.#free.shift() ?? this.#addresses.length;
    this.#put(id, address);
    this.#byAsset?.get(asset)?.push(id) ?? this.#byAsset?.set(asset, [id]);
    this.#unsaved.push({ id, ...wanted });
    this.#changes++;
    return id;
  }

  /** The number of a series that is known, at the price of one look: who may open no more asks before. */
  find(
    asset: number,
    key: string,
    group: string | undefined,
    unit: UnitReference | undefined,
    instrumentation?: number | undefined,
  ): number | undefined {
    const wanted = { asset, key: key.toLowerCase(), group: group?.toLowerCase(), unit, instrumentation };
    return this.#byAddress.find(addressOf(wanted));
  }

  get(id: number): Series | undefined {
    const address = this.#addresses[id];
    return address === undefined ? undefined : seriesOfAddress(id, address);
  }

  /** Every series of an asset. */
  ofAsset(asset: number): Series[] {
    if (!this.#byAsset) {
      this.#byAsset = new Map();
      for (const series of this.all()) {
        const ids = this.#byAsset.get(series.asset);
        if (ids) ids.push(series.id);
        else this.#byAsset.set(series.asset, [series.id]);
      }
    }
    return (this.#byAsset.get(asset) ?? []).map((id) => this.get(id)!);
  }

  /** Every series that was bound to an instrumentation. */
  ofInstrumentation(instrumentation: number): Series[] {
    const text = `|${instrumentation}|`;
    const found: Series[] = [];
    for (const [id, address] of this.#addresses.entries()) {
      // Cheap first: tens of thousands are looked at.
      const series = address?.includes(text) ? seriesOfAddress(id, address) : undefined;
      if (series?.instrumentation === instrumentation) found.push(series);
    }
    return found;
  }

  /** Every series that is known, by number. */
  *all(): Iterable<Series> {
    for (const [id, address] of this.#addresses.entries()) {
      if (address !== undefined) yield seriesOfAddress(id, address);
    }
  }

  get size(): number {
    return this.#byAddress.size;
  }

  /** Counts the series that came and went: what was looked up in it holds until it moves. */
  get changes(): number {
    return this.#changes;
  }

  /** How often series were forgotten: a number that was learned before may stand for another series now. */
  get forgettings(): number {
    return this.#forgettings;
  }

  /** Whether a number that was learned when `forgettings` was so many stands for what it did then. */
  isCurrent(id: number, forgettings: number): boolean {
    return (this.#forgottenIn[id] ?? 0) <= forgettings;
  }

  /** Forgets series of which the store has no value. */
  forget(ids: Iterable<number>): void {
    const unsaved = new Set(this.#unsaved.map(({ id }) => id));
    this.#forgettings++;
    for (const id of ids) {
      const address = this.#addresses[id];
      if (address === undefined || unsaved.has(id)) continue;
      this.#addresses[id] = undefined;
      this.#free.push(id);
      while (this.#forgottenIn.length < id) this.#forgottenIn.push(0);
      this.#forgottenIn[id] = this.#forgettings;
      this.#changes++;
    }
    this.#byAddress.rebuild();
    this.#byAsset = undefined;
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

type Address = Omit<Series, 'id' | 'since'>;

/** No key, group or code holds the bar: their patterns allow letters, digits and a few signs. */
function addressOf({ asset, key, group, unit, instrumentation }: Address): string {
  const unitText = unit === undefined ? '' : 'id' in unit ? `#${unit.id}` : `=${unit.code}`;
  // Joined, not written as a template: that would keep its parts beside each other, at twice the memory.
  return [asset, group ?? '', unitText, instrumentation ?? '', key].join('|');
}

function seriesOfAddress(id: number, address: string): Series {
  const [asset, group, unit, instrumentation, ...key] = address.split('|') as [string, string, string, string, string];
  return {
    id,
    asset: Number(asset),
    key: key.join('|'),
    group: group === '' ? undefined : group,
    unit: unit === '' ? undefined : unit[0] === '#' ? { id: Number(unit.slice(1)) } : { code: unit.slice(1) },
    instrumentation: instrumentation === '' ? undefined : Number(instrumentation),
  };
}
