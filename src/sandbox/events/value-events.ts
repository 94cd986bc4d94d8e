import type { EventType } from '../../contract/events.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { PostedSeries } from '../values/values-body.ts';
import type { Happening } from './announcer.ts';

type Readers = (type: 'Asset' | 'Instrumentation', id: number) => ReadonlySet<number>;

/** Platform 6.3: what a post of values tells. One call a value, one for the asset, one for each of its instrumentations. */
export function valueHappenings(
  site: SiteModel,
  asset: number,
  posted: readonly PostedSeries[],
  readers: Readers,
  isWanted: (type: EventType) => boolean,
): Happening[] {
  const assetReaders = readers('Asset', asset);
  const readAsset = (user: number) => assetReaders.has(user);
  const happenings: Happening[] = [];
  // Built only where somebody listens: a post of 5,000 values would make 5,000 happenings.
  for (const series of isWanted('asset_value_created') ? posted : []) {
    for (const point of series.points) {
      happenings.push({
        type: 'asset_value_created',
        audience: readAsset,
        content: () => ({
          asset: site.reference('assets', asset),
          value: {
            ...head(site, series),
            timestamp: new Date(point.timestampMs).toISOString(),
            // A string here and a number everywhere else: so says the spec.
            value: String(point.value),
          },
        }),
      });
    }
  }
  const grouped = (names: readonly string[] | undefined) => valuesOf(site, posted, names);
  happenings.push({
    type: 'asset_values_created',
    audience: readAsset,
    content: (names) => {
      const values = grouped(names);
      return values.length === 0 ? undefined : { asset: site.reference('assets', asset), values };
    },
  });
  if (!isWanted('instrumentation_values_created')) return happenings;
  for (const instrumentation of site.holdersOf('instrumentations', asset)) {
    const tagReaders = readers('Instrumentation', instrumentation.id);
    happenings.push({
      type: 'instrumentation_values_created',
      audience: (user) => tagReaders.has(user),
      content: (names) => {
        const values = grouped(names);
        if (values.length === 0) return undefined;
        return { instrumentation: site.reference('instrumentations', instrumentation.id), values };
      },
    });
  }
  return happenings;
}

function head(site: SiteModel, series: PostedSeries) {
  return {
    key: series.key,
    group: series.group ?? null,
    unit: series.unit === undefined ? null : site.reference('units', series.unit.id),
  };
}

/** Grouped by key, as platform 6.3 says, where group and unit are the same too. Keys of a filter are compared in lower case. */
function valuesOf(site: SiteModel, posted: readonly PostedSeries[], names: readonly string[] | undefined) {
  const wanted = names?.map((name) => name.toLowerCase());
  const groups = new Map<string, ReturnType<typeof head> & { data: { timestamp: string; value: number }[] }>();
  for (const series of posted) {
    if (wanted !== undefined && !wanted.includes(series.key)) continue;
    const name = JSON.stringify([series.key, series.group, series.unit?.id]);
    const group = groups.get(name) ?? { ...head(site, series), data: [] };
    groups.set(name, group);
    for (const { timestampMs, value } of series.points) {
      group.data.push({ timestamp: new Date(timestampMs).toISOString(), value });
    }
  }
  return [...groups.values()];
}
