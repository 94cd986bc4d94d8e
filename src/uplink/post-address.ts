/**
 * Where a batch is posted: VALUES_PATH, filled in when the batch goes out, so that a mended path serves what was accepted
 * under the old one. The asset belongs to the series from acceptance on, and so does the instrumentation where the path
 * names one; a series that was accepted before it did gets that of its tag, as tags.yaml has it now.
 */
import { Instrumentations, namesInstrumentation } from '../config/instrumentations.ts';
import type { Tag } from '../config/tags.ts';

export interface PostAddress {
  path: string;
  /** Where the path names it. */
  instrumentation?: number;
}

/** What of a batch decides where it goes. */
export interface Addressed {
  asset: number;
  instrumentation?: number;
  series: readonly number[];
}

/** `SeriesCatalogue` of the buffer fits. */
interface KnownSeries {
  get(id: number): { key: string; group: string | undefined } | undefined;
}

export class PostAddresses {
  readonly #series: KnownSeries;
  #template: string;
  #instrumentations: Instrumentations;

  constructor(series: KnownSeries, valuesPath: string, tags: Iterable<Tag>) {
    this.#series = series;
    this.#template = valuesPath;
    this.#instrumentations = new Instrumentations(tags);
  }

  /** After a reload. Says whether the path is another: then a batch that was taken before may hold what goes apart now. */
  replace(valuesPath: string, tags: Iterable<Tag>): boolean {
    const isOther = valuesPath !== this.#template;
    this.#template = valuesPath;
    this.#instrumentations = new Instrumentations(tags);
    return isOther;
  }

  /** Values of different instrumentations go to different addresses, and so never in one batch. */
  get byInstrumentation(): boolean {
    return namesInstrumentation(this.#template);
  }

  /** `undefined` where the path names an instrumentation and there is none. */
  of(batch: Addressed): PostAddress | undefined {
    if (!this.byInstrumentation) return { path: fillValuesPath(this.#template, batch.asset, undefined) };
    const instrumentation = batch.instrumentation ?? this.#listed(batch);
    if (instrumentation === undefined) return undefined;
    return { path: fillValuesPath(this.#template, batch.asset, instrumentation), instrumentation };
  }

  #listed({ asset, series }: Addressed): number | undefined {
    const known = series.length === 1 ? this.#series.get(series[0]!) : undefined;
    return known && this.#instrumentations.of(asset, known.key, known.group);
  }
}

/** Fills `{asset_id}` and `{instrumentation_id}` into VALUES_PATH. */
export function fillValuesPath(template: string, asset: number, instrumentation: number | undefined): string {
  return template
    .replaceAll('{asset_id}', String(asset))
    .replaceAll('{instrumentation_id}', instrumentation === undefined ? '' : String(instrumentation));
}
