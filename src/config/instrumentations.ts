import type { Tag } from './tags.ts';

/** Whether the values path contains the instrumentation, which makes the instrumentation part of the destination. */
export function namesInstrumentation(valuesPath: string): boolean {
  return valuesPath.includes('{instrumentation_id}');
}

/** Finds the instrumentation in tags.yaml for values that specify only an asset. */
export class Instrumentations {
  /** Instrumentation shared by all tags of an asset, or of an asset, key and group; `several` if the tags differ. */
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
   * Returns the instrumentation of the tag that lists the value, or otherwise the only instrumentation of the asset.
   * Returns `undefined` if there is none or the choice is ambiguous, because a guess could store readings under the
   * wrong instrumentation.
   */
  of(asset: number, key: string, group: string | undefined): number | undefined {
    const found = this.#known.get(placeOf(asset, key, group)) ?? this.#known.get(`${asset}`);
    return found === 'several' ? undefined : found;
  }
}

function placeOf(asset: number, key: string, group: string | undefined): string {
  return `${asset}|${key.toLowerCase()}|${group?.toLowerCase() ?? ''}`;
}
