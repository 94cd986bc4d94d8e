import type { UnitReference } from '../contract/values.ts';
import { AddressIndex } from './address-index.ts';

/**
 * A series is identified by asset, group, key and unit, in lower case. A value is bound to its series when it is
 * accepted. A reload never moves accepted values. If VALUES_PATH contains an instrumentation, it is part of the series,
 * because it determines where values are posted.
 */
export interface Series {
  id: number;
  asset: number;
  key: string;
  group: string | undefined;
  unit: UnitReference | undefined;
  instrumentation: number | undefined;
  /**
   * Generation, assigned by the store. If several series have had the same number, the series with the highest
   * generation is current.
   */
  since?: number;
}

/**
 * Maps addresses of values to series numbers, in the main thread. Contains the series with stored values at startup and
 * all series created since. A new series is stored with the commit of its first value (`takeUnsaved`) and gets the
 * lowest unused number, so numbers stay small.
 *
 * Each series is stored as one string, which limits its memory to about 100 bytes in this thread.
 */
export class SeriesCatalogue {
  /** By number. */
  readonly #addresses: (string | undefined)[] = [undefined];
  readonly #byAddress = new AddressIndex(this.#addresses);
  /** Next number to check for reuse. */
  #next = 1;
  /** Numbers of the series of an object. Each map is created on its first lookup. */
  readonly #numbers: { asset?: SeriesNumbers; instrumentation?: SeriesNumbers } = {};
  #unsaved: Series[] = [];

  /** `known` contains the series that the store returned when it opened. */
  constructor(known: Iterable<Series> = []) {
    for (const series of known) this.#put(series.id, addressOf(series));
  }

  #put(id: number, address: string): void {
    while (this.#addresses.length < id) this.#addresses.push(undefined);
    this.#addresses[id] = address;
    this.#byAddress.add(address, id);
  }

  /** Returns the number of a series, and creates it if it is new. The case of `key` and `group` is ignored. */
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
    while (this.#addresses[this.#next] !== undefined) this.#next++;
    const id = this.#next;
    this.#put(id, address);
    addNumber(this.#numbers.asset, asset, id);
    addNumber(this.#numbers.instrumentation, instrumentation, id);
    this.#unsaved.push({ id, ...wanted });
    return id;
  }

  /** Returns the number of a known series. */
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

  /** Returns the series of an asset. */
  ofAsset(asset: number): Series[] {
    return this.#seriesOf('asset', asset);
  }

  /** Returns the series bound to an instrumentation. */
  ofInstrumentation(instrumentation: number): Series[] {
    return this.#seriesOf('instrumentation', instrumentation);
  }

  #seriesOf(kind: 'asset' | 'instrumentation', object: number): Series[] {
    let numbers = this.#numbers[kind];
    if (numbers === undefined) {
      numbers = new Map();
      this.#numbers[kind] = numbers;
      for (const series of this.all()) addNumber(numbers, series[kind], series.id);
    }
    return (numbers.get(object) ?? []).map((id) => this.get(id)!);
  }

  /** Yields all known series by number. */
  *all(): Iterable<Series> {
    for (const [id, address] of this.#addresses.entries()) {
      if (address !== undefined) yield seriesOfAddress(id, address);
    }
  }

  /** Number of series, which never decreases. */
  get size(): number {
    return this.#byAddress.size;
  }

  /** Returns the series that are not stored yet. The caller passes them to `returnUnsaved` if the commit fails. */
  takeUnsaved(): Series[] {
    const series = this.#unsaved;
    this.#unsaved = [];
    return series;
  }

  returnUnsaved(series: Series[]): void {
    this.#unsaved.unshift(...series);
  }
}

type Address = Omit<Series, 'id' | 'since'>;

type SeriesNumbers = Map<number, number[]>;

function addNumber(numbers: SeriesNumbers | undefined, object: number | undefined, id: number): void {
  if (numbers === undefined || object === undefined) return;
  const known = numbers.get(object);
  if (known) known.push(id);
  else numbers.set(object, [id]);
}

/** Keys, groups and codes cannot contain a vertical bar. */
function addressOf({ asset, key, group, unit, instrumentation }: Address): string {
  const unitText = unit === undefined ? '' : 'id' in unit ? `#${unit.id}` : `=${unit.code}`;
  // `join` creates a flat string; a template literal would keep its parts, which requires twice the memory.
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
