import { UsageError } from '../../base/errors.ts';
import { nearestName } from '../../base/nearest.ts';
import type { Series, SeriesCatalogue } from '../../buffer/series.ts';
import type { Tag } from '../../config/tags.ts';
import type { UnitReference } from '../../contract/values.ts';

/** Selection of series in a command. An omitted member matches all series. */
export interface SeriesChoice {
  tag?: string | undefined;
  asset?: number | undefined;
  key?: string | undefined;
}

/** Display names of series: the tag and key if a tag contains the series, otherwise the asset. */
export class SeriesNames {
  readonly #tags: ReadonlyMap<string, Tag>;
  readonly #byPlace = new Map<string, string>();

  constructor(tags: ReadonlyMap<string, Tag>) {
    this.#tags = tags;
    for (const tag of tags.values()) {
      for (const { key, group } of tag.values.values()) {
        // If several tags contain the same series, the first tag is used.
        const address = { asset: tag.asset, key, group };
        for (const place of [placeOf(address), placeOf({ ...address, instrumentation: tag.instrumentation })]) {
          if (!this.#byPlace.has(place)) this.#byPlace.set(place, tag.name);
        }
      }
    }
  }

  tagOf(series: Series): string | undefined {
    return this.#byPlace.get(placeOf(series)) ?? this.#byPlace.get(placeOf({ ...series, instrumentation: undefined }));
  }

  /** Returns the numbers of the selected series, or `undefined` for all. Throws `UsageError` for an unknown tag. */
  choose(catalogue: SeriesCatalogue, choice: SeriesChoice): number[] | undefined {
    const { asset } = choice;
    const key = choice.key?.toLowerCase();
    const tag = choice.tag === undefined ? undefined : this.#tagNamed(choice.tag);
    if (tag === undefined && asset === undefined && key === undefined) return undefined;
    const chosen: number[] = [];
    for (const series of catalogue.all()) {
      if (asset !== undefined && series.asset !== asset) continue;
      if (key !== undefined && series.key !== key) continue;
      if (tag && !belongs(series, tag)) continue;
      chosen.push(series.id);
    }
    return chosen;
  }

  #tagNamed(name: string): Tag {
    const tag = this.#tags.get(name);
    if (tag) return tag;
    const nearest = nearestName(name, this.#tags.keys());
    const meant = nearest?.likely ? `Did you mean ${JSON.stringify(nearest.name)}? ` : '';
    throw new UsageError(
      `tag ${JSON.stringify(name.slice(0, 64))} is not in tags.yaml`,
      `${meant}For an asset without a tag, use --asset.`,
    );
  }
}

function belongs(series: Series, tag: Tag): boolean {
  if (series.asset !== tag.asset) return false;
  const { instrumentation } = series;
  if (instrumentation !== undefined && tag.instrumentation !== undefined && instrumentation !== tag.instrumentation) {
    return false;
  }
  for (const { key, group } of tag.values.values()) if (key === series.key && group === series.group) return true;
  return false;
}

interface Place {
  asset: number;
  key: string;
  group?: string | undefined;
  instrumentation?: number | undefined;
}

function placeOf({ asset, key, group, instrumentation }: Place): string {
  return `${asset}|${key}|${group ?? ''}|${instrumentation ?? ''}`;
}

/** Returns the unit in the format of pushed values: a number, a code, or an empty string if the series has no unit. */
export function unitText(unit: UnitReference | undefined): string {
  if (unit === undefined) return '';
  return 'id' in unit ? String(unit.id) : unit.code;
}
