import type { Tag } from './tags.ts';

/** Whether the values' path has a place for an instrumentation: then it is part of where a value goes. */
export function namesInstrumentation(valuesPath: string): boolean {
  return valuesPath.includes('{instrumentation_id}');
}

/** Which instrumentation tags.yaml gives a value that names only its asset. */
export class Instrumentations {
  /** By asset, and by asset, key and group: what all its tags have in common; `several` where they differ. */
  readonly #known = new Map<string, number | 'several'>();

  constructor(tags: Iterable<Tag>) {
    for (const { asset, instrumentation, values } of tags) {
      if (instrumentation === undefined) continue;
      this.#note(`${asset}`, instrumentation);
      for (const { key, group } of values.values()) this.#note(placeOf(asset, key, group), instrumentation);
    }
  }

  #note(place: string, instrumentation: number): void {
    const known = this.#known.get(place);
    this.#known.set(place, known === undefined || known === instrumentation ? instrumentation : 'several');
  }

  /**
   * That of the tag that lists the value, else the only one that the asset's tags name. `undefined` where there is none, or
   * where several tags list the same value: a guess would put readings into another instrumentation's history.
   */
  of(asset: number, key: string, group: string | undefined): number | undefined {
    const found = this.#known.get(placeOf(asset, key, group)) ?? this.#known.get(`${asset}`);
    return found === 'several' ? undefined : found;
  }
}

function placeOf(asset: number, key: string, group: string | undefined): string {
  return `${asset}|${key.toLowerCase()}|${group?.toLowerCase() ?? ''}`;
}
