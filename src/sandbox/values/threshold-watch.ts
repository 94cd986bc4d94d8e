import type { EventContents } from '../../contract/events.ts';
import type { Instrumentation, Threshold, Unit } from '../site/records.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { PostedPoint, PostedSeries } from './values-body.ts';

export interface ThresholdReached {
  asset: number;
  content: EventContents['threshold_reached'];
}

/** A new threshold. Omitted members have defaults. */
export type NewThreshold = Partial<Threshold> &
  Pick<Threshold, 'type' | 'value'> & {
    /** Alternative to `thresholdable_type` and `thresholdable_id`. */
    instrumentation?: number;
  };

type NamedThreshold = Threshold & { name: string };

/** Returns a threshold with defaults for omitted members. */
export function wholeThreshold({ instrumentation, ...rest }: NewThreshold, newId: () => number): NamedThreshold {
  return {
    id: rest.id ?? newId(),
    name: `${rest.type} limit`,
    thresholdable_type: 'Instrumentation',
    ...rest,
    thresholdable_id: instrumentation ?? rest.thresholdable_id ?? 0,
  };
}

/**
 * Finds posted values that reach a threshold (platform 6.3). Only the first value beyond the threshold counts; further
 * values count only after a value has returned within the threshold.
 */
export class ThresholdWatch {
  readonly #site: SiteModel;
  readonly #beyond = new Set<string>();

  constructor(site: SiteModel) {
    this.#site = site;
  }

  /** Returns the thresholds reached by posted values, in timestamp order for each series. */
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
          if (!isBeyond || wasBeyond) continue;
          found.push({ asset, content: this.#content(asset, instrumentation, threshold, series, point, inUnit) });
        }
      }
    }
    return found;
  }

  /** Sets a threshold and returns its ID. Replaces and resets a threshold with the same ID. */
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

  #forget(threshold: number): void {
    for (const place of this.#beyond) if (place.startsWith(`${threshold} `)) this.#beyond.delete(place);
  }

  /**
   * Returns the instrumentation for the event content, null if the asset has no instrumentation, or undefined if the
   * threshold does not apply to this asset.
   */
  #instrumentationFor(threshold: Threshold, asset: number): Instrumentation | null | undefined {
    if (threshold.thresholdable_type === 'Instrumentation') {
      const instrumentation = this.#site.get('instrumentations', threshold.thresholdable_id);
      return instrumentation?.assets.includes(asset) ? instrumentation : undefined;
    }
    if (!threshold.assets?.includes(asset)) return undefined;
    return this.#site.holdersOf('instrumentations', asset)[0] ?? null;
  }

  /**
   * Converts a value to the threshold's unit. Returns undefined if the value or the threshold has no unit; in this
   * case, the numbers are compared unchanged.
   */
  #inThresholdUnit(value: number, unit: Unit | undefined, threshold: Threshold): number | undefined | 'incomparable' {
    const target = this.#unitOf(threshold);
    if (!unit || !target) return undefined;
    if (unit.id === target.id) return value;
    if (unit.quantity === undefined || unit.quantity !== target.quantity) return 'incomparable';
    const base = value * (unit.factor ?? 1) + (unit.offset ?? 0);
    return (base - (target.offset ?? 0)) / (target.factor ?? 1);
  }

  #unitOf({ unit }: Threshold): Unit | undefined {
    return unit === undefined ? undefined : this.#site.unitByCode(unit);
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
      // A threshold of a System or Recipe can apply to an asset without an instrumentation.
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
        name: threshold.name ?? '',
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
