import type { Announcement, Announcer } from '../events/announcer.ts';
import type { PermissionRegistry } from '../permissions/permission-registry.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { ThresholdWatch } from './threshold-watch.ts';
import type { ValueLedger } from './value-ledger.ts';
import type { PostedSeries } from './values-body.ts';

export interface ArrivalParts {
  site: SiteModel;
  permissions: PermissionRegistry;
  values: ValueLedger;
  thresholds: ThresholdWatch;
  announcer: Announcer;
  report(sentence: string): void;
}

/** Stores accepted values, announces them (platform 6.3), and compares them with thresholds. */
export class ValueArrival {
  readonly #parts: ArrivalParts;

  constructor(parts: ArrivalParts) {
    this.#parts = parts;
  }

  accept(asset: number, posted: readonly PostedSeries[]): void {
    const { site, permissions, values, thresholds, announcer } = this.#parts;
    values.record(asset, posted);
    this.#announceValues(asset, posted);
    for (const { content } of thresholds.reached(asset, posted)) {
      const { threshold, data, instrumentation } = content;
      const tag = instrumentation && site.get('instrumentations', instrumentation.id)?.tag;
      this.#parts.report(`${data.key} of ${tag ?? `asset ${asset}`} reached ${threshold.name}: ${data.value}`);
      announcer.announce({
        type: 'threshold_reached',
        audience: (user) => permissions.may(user, 'can_read', { type: 'Asset', id: asset }),
        content: () => ({ ...content }),
      });
    }
  }

  /**
   * Announces one event per value, one for the asset, and one per instrumentation. Events are created only for types to
   * which a webhook subscribes.
   */
  #announceValues(id: number, posted: readonly PostedSeries[]): void {
    const { site, announcer } = this.#parts;
    const readsAsset = this.#readerOf('Asset', id);
    const asset = () => site.reference('assets', id);
    if (announcer.hasListener('asset_value_created')) {
      for (const series of posted) {
        for (const { timestampMs, value } of series.points) {
          // In this event type, the value is a string; in the grouped types, it is a number.
          const one = { ...head(site, series), timestamp: new Date(timestampMs).toISOString(), value: String(value) };
          const content = () => ({ asset: asset(), value: one });
          announcer.announce({ type: 'asset_value_created', audience: readsAsset, content });
        }
      }
    }
    const grouped =
      (object: () => Record<string, unknown>): Announcement['content'] =>
      (names) => {
        const values = valuesOf(site, posted, names);
        return values.length === 0 ? undefined : { ...object(), values };
      };
    if (announcer.hasListener('asset_values_created')) {
      const content = grouped(() => ({ asset: asset() }));
      announcer.announce({ type: 'asset_values_created', audience: readsAsset, content });
    }
    if (!announcer.hasListener('instrumentation_values_created')) return;
    for (const { id: instrumentation } of site.holdersOf('instrumentations', id)) {
      const audience = this.#readerOf('Instrumentation', instrumentation);
      const content = grouped(() => ({ instrumentation: site.reference('instrumentations', instrumentation) }));
      announcer.announce({ type: 'instrumentation_values_created', audience, content });
    }
  }

  /** Returns a function that checks whether a user can read an object. The readers are determined on the first call. */
  #readerOf(type: 'Asset' | 'Instrumentation', id: number): (user: number) => boolean {
    let readers: ReadonlySet<number> | undefined;
    return (user) => {
      readers ??= this.#parts.permissions.usersWho('can_read', { type, id });
      return readers.has(user);
    };
  }
}

function head(site: SiteModel, series: PostedSeries) {
  return {
    key: series.key,
    group: series.group ?? null,
    unit: series.unit === undefined ? null : site.reference('units', series.unit.id),
  };
}

/** Returns the values grouped by key, group and unit (platform 6.3). Keys in a filter are compared in lower case. */
function valuesOf(site: SiteModel, posted: readonly PostedSeries[], names: readonly string[] | undefined) {
  const wanted = names?.map((name) => name.toLowerCase());
  const chosen = posted.filter(({ key }) => wanted === undefined || wanted.includes(key));
  const groups = Map.groupBy(chosen, ({ key, group, unit }) => JSON.stringify([key, group, unit?.id]));
  return [...groups.values()].map((all) => ({
    ...head(site, all[0]!),
    data: all.flatMap(({ points }) =>
      points.map(({ timestampMs, value }) => ({ timestamp: new Date(timestampMs).toISOString(), value })),
    ),
  }));
}
