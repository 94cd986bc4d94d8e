import type { Plant } from '../plant/plant.ts';
import type { PostedSeries } from '../values/values-body.ts';
import type { Happening } from './announcer.ts';

type MayRead = (user: number, type: 'Asset' | 'Instrumentation', id: number) => boolean;

/** Spec 6.3: what a post of values tells. One call a value, one for the asset, one for each of its instrumentations. */
export function valueHappenings(
  plant: Plant,
  asset: number,
  posted: readonly PostedSeries[],
  mayRead: MayRead,
): Happening[] {
  const readAsset = (user: number) => mayRead(user, 'Asset', asset);
  const happenings: Happening[] = [];
  for (const series of posted) {
    for (const point of series.points) {
      happenings.push({
        type: 'asset_value_created',
        audience: readAsset,
        content: () => ({
          asset: plant.reference('assets', asset),
          value: {
            ...head(plant, series),
            timestamp: new Date(point.timestampMs).toISOString(),
            // A string here and a number everywhere else: so says the spec.
            value: String(point.value),
          },
        }),
      });
    }
  }
  const grouped = (names: readonly string[] | undefined) => valuesOf(plant, posted, names);
  happenings.push({
    type: 'asset_values_created',
    audience: readAsset,
    content: (names) => {
      const values = grouped(names);
      return values.length === 0 ? undefined : { asset: plant.reference('assets', asset), values };
    },
  });
  for (const instrumentation of plant.all('instrumentations')) {
    if (!instrumentation.assets.includes(asset)) continue;
    happenings.push({
      type: 'instrumentation_values_created',
      audience: (user) => mayRead(user, 'Instrumentation', instrumentation.id),
      content: (names) => {
        const values = grouped(names);
        if (values.length === 0) return undefined;
        return { instrumentation: plant.reference('instrumentations', instrumentation.id), values };
      },
    });
  }
  return happenings;
}

function head(plant: Plant, series: PostedSeries) {
  return {
    key: series.key,
    group: series.group ?? null,
    unit: series.unit === undefined ? null : plant.reference('units', series.unit.id),
  };
}

/** Grouped by key, as spec 6.3 says, where group and unit are the same too. Keys of a filter are compared in lower case. */
function valuesOf(plant: Plant, posted: readonly PostedSeries[], names: readonly string[] | undefined) {
  const wanted = names?.map((name) => name.toLowerCase());
  const groups = new Map<string, ReturnType<typeof head> & { data: { timestamp: string; value: number }[] }>();
  for (const series of posted) {
    if (wanted !== undefined && !wanted.includes(series.key)) continue;
    const name = JSON.stringify([series.key, series.group, series.unit?.id]);
    const group = groups.get(name) ?? { ...head(plant, series), data: [] };
    groups.set(name, group);
    for (const { timestampMs, value } of series.points) {
      group.data.push({ timestamp: new Date(timestampMs).toISOString(), value });
    }
  }
  return [...groups.values()];
}
