import type { EventContents } from '../../contract/events.ts';
import type { Instrumentation, Threshold, Unit } from '../site/records.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { PostedPoint, PostedSeries } from './values-body.ts';

export interface ThresholdReached {
  asset: number;
  content: EventContents['threshold_reached'];
}

/** What a threshold needs: the rest has a default. */
export type NewThreshold = Partial<Threshold> &
  Pick<Threshold, 'type' | 'value'> & {
    /** In place of `thresholdable_type` and `thresholdable_id`. */
    instrumentation?: number;
  };

/** `value * scale + shift`. */
export interface Scaling {
  scale: number;
  shift: number;
}

/** A threshold with the defaults of what was left out. */
export function wholeThreshold({ instrumentation, ...rest }: NewThreshold, newId: () => number): Threshold {
  return {
    id: rest.id ?? newId(),
    name: `${rest.type} limit`,
    thresholdable_type: 'Instrumentation',
    ...rest,
    thresholdable_id: instrumentation ?? rest.thresholdable_id ?? 0,
  };
}

/**
 * Looks at posted values for those that reach a threshold (platform 6.3). "Is reached" is read as a crossing: the first
 * value beyond, and again only after one came back within; `everyValue` tells each one beyond instead.
 */
export class ThresholdWatch {
  readonly #site: SiteModel;
  readonly #everyValue: boolean;
  readonly #beyond = new Set<string>();

  constructor(site: SiteModel, everyValue = false) {
    this.#site = site;
    this.#everyValue = everyValue;
  }

  /** What a post reached, in the order of the values' timestamps. */
  reached(asset: number, posted: readonly PostedSeries[]): ThresholdReached[] {
    const found: ThresholdReached[] = [];
    for (const threshold of this.#site.all('thresholds')) {
      const instrumentation = this.#instrumentationFor(threshold, asset);
      if (instrumentation === undefined) continue;
      for (const series of posted) {
        if (threshold.key !== undefined && threshold.key.toLowerCase() !== series.key) continue;
        const place = `${threshold.id} ${asset} ${series.key}`;
        for (const point of [...series.points].sort((a, b) => a.timestampMs - b.timestampMs)) {
          const inUnit = this.#inThresholdUnit(point.value, series.unit, threshold);
          if (inUnit === 'incomparable') continue;
          const isBeyond = beyond(threshold, inUnit ?? point.value);
          const wasBeyond = this.#beyond.has(place);
          if (isBeyond) this.#beyond.add(place);
          else this.#beyond.delete(place);
          if (!isBeyond || (wasBeyond && !this.#everyValue)) continue;
          found.push({ asset, content: this.#content(asset, instrumentation, threshold, series, point, inUnit) });
        }
      }
    }
    return found;
  }

  /** The thresholds that look at a series, and how a value in `unit` becomes one in theirs: `undefined` where it cannot. */
  on(asset: number, key: string, unit: string | undefined): { threshold: Threshold; scaling: Scaling | undefined }[] {
    const from = unit === undefined ? undefined : this.#site.all('units').find((one) => one.code === unit);
    return this.#site.all('thresholds').flatMap((threshold) => {
      if (this.#instrumentationFor(threshold, asset) === undefined) return [];
      if (threshold.key !== undefined && threshold.key.toLowerCase() !== key) return [];
      // Units differ by a factor and an offset: two values say which.
      const [zero, one] = [0, 1].map((value) => {
        const inUnit = this.#inThresholdUnit(value, from, threshold);
        return inUnit === 'incomparable' ? Number.NaN : (inUnit ?? value);
      }) as [number, number];
      return [{ threshold, scaling: Number.isNaN(zero) ? undefined : { scale: one - zero, shift: zero } }];
    });
  }

  /** Puts a threshold in and gives its id; one of the same id is replaced and starts anew. */
  set(wanted: NewThreshold): number {
    const threshold = wholeThreshold(wanted, () => this.#site.newId());
    this.#forget(threshold.id);
    this.#site.put('thresholds', threshold);
    return threshold.id;
  }

  remove(id: number): boolean {
    this.#forget(id);
    return this.#site.delete('thresholds', id);
  }

  /** Which series are beyond which threshold, for the state file. */
  snapshot(): string[] {
    return [...this.#beyond];
  }

  restore(beyond: readonly string[]): void {
    for (const place of beyond) this.#beyond.add(place);
  }

  #forget(threshold: number): void {
    for (const place of this.#beyond) if (place.startsWith(`${threshold} `)) this.#beyond.delete(place);
  }

  /** The instrumentation that the content names, null where the asset has none; `undefined` where the threshold does not look at this asset. */
  #instrumentationFor(threshold: Threshold, asset: number): Instrumentation | null | undefined {
    if (threshold.thresholdable_type === 'Instrumentation') {
      const instrumentation = this.#site.get('instrumentations', threshold.thresholdable_id);
      return instrumentation?.assets.includes(asset) ? instrumentation : undefined;
    }
    if (!threshold.assets?.includes(asset)) return undefined;
    return this.#site.holdersOf('instrumentations', asset)[0] ?? null;
  }

  /** The value in the threshold's unit; `undefined` where either has none: then the bare numbers are compared. */
  #inThresholdUnit(value: number, unit: Unit | undefined, threshold: Threshold): number | undefined | 'incomparable' {
    const target = this.#unitOf(threshold);
    if (!unit || !target) return undefined;
    if (unit.id === target.id) return value;
    if (unit.quantity === undefined || unit.quantity !== target.quantity) return 'incomparable';
    const base = value * (unit.factor ?? 1) + (unit.offset ?? 0);
    return (base - (target.offset ?? 0)) / (target.factor ?? 1);
  }

  #unitOf({ unit }: Threshold): Unit | undefined {
    return unit === undefined ? undefined : this.#site.all('units').find((one) => one.code === unit);
  }

  #content(
    asset: number,
    instrumentation: Instrumentation | null,
    threshold: Threshold,
    series: PostedSeries,
    point: PostedPoint,
    inUnit: number | undefined,
  ): EventContents['threshold_reached'] {
    const target = this.#unitOf(threshold);
    return {
      asset: this.#site.reference('assets', asset),
      // A threshold of a System or Recipe may look at an asset that has none: then the member is left out.
      ...(instrumentation === null
        ? {}
        : { instrumentation: this.#site.reference('instrumentations', instrumentation.id) }),
      data: {
        value: point.value,
        key: series.key,
        timestamp: new Date(point.timestampMs).toISOString(),
        unit: { code: series.unit?.code ?? '', symbol: series.unit?.symbol ?? '' },
      },
      threshold: {
        type: threshold.type,
        name: threshold.name,
        value: threshold.value,
        unit: { code: target?.code ?? '', symbol: target?.symbol ?? '' },
        thresholdable_type: threshold.thresholdable_type,
        value_in_threshold_unit: inUnit ?? null,
      },
    };
  }
}

function beyond(threshold: Threshold, value: number): boolean {
  if (threshold.type === 'high') return value >= threshold.value;
  if (threshold.type === 'low') return value <= threshold.value;
  return Math.abs(value - threshold.value) >= (threshold.tolerance ?? 0);
}
