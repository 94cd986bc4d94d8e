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
    for (const { name, asset, instrumentation, values } of tags.values()) {
      for (const { key, group } of values.values()) {
        // If several tags contain the same series, the first tag is used.
        for (const place of [placeOf(asset, key, group), placeOf(asset, key, group, instrumentation)])
          if (!this.#byPlace.has(place)) this.#byPlace.set(place, name);
      }
    }
  }

  tagOf(series: Series): string | undefined {
    const { asset, key, group, instrumentation } = series;
    return (
      this.#byPlace.get(placeOf(asset, key, group, instrumentation)) ?? this.#byPlace.get(placeOf(asset, key, group))
    );
  }

  /** Returns the numbers of the selected series, or `undefined` for all. Throws `UsageError` for an unknown tag. */
  choose(catalogue: SeriesCatalogue, choice: SeriesChoice): number[] | undefined {
    const { asset } = choice;
    const key = choice.key?.toLowerCase();
    const tag = choice.tag === undefined ? undefined : this.#tagNamed(choice.tag);
    if (tag === undefined && asset === undefined && key === undefined) return undefined;
    return [...catalogue.all()]
      .filter((series) => asset === undefined || series.asset === asset)
      .filter((series) => key === undefined || series.key === key)
      .filter((series) => tag === undefined || belongs(series, tag))
      .map(({ id }) => id);
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

function belongs({ asset, instrumentation: bound, key, group }: Series, tag: Tag): boolean {
  if (asset !== tag.asset) return false;
  if (bound !== undefined && tag.instrumentation !== undefined && bound !== tag.instrumentation) return false;
  return [...tag.values.values()].some((value) => value.key === key && value.group === group);
}

function placeOf(asset: number, key: string, group = '', instrumentation: number | '' = ''): string {
  return `${asset}|${key}|${group}|${instrumentation}`;
}

/** Returns the unit in the format of pushed values: a number, a code, or an empty string if the series has no unit. */
export function unitText(unit: UnitReference | undefined): string {
  if (unit === undefined) return '';
  return 'id' in unit ? String(unit.id) : unit.code;
}
