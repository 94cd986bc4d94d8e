/**
 * URL to which a batch is posted: VALUES_PATH, filled in when the batch is posted, so a corrected path also applies to
 * buffered values. A series keeps its asset from the time of acceptance, and its instrumentation if the path contained
 * one at that time. Otherwise the instrumentation of its tag applies.
 */
import type { SeriesCatalogue } from '../buffer/series.ts';
import { Instrumentations, namesInstrumentation } from '../config/instrumentations.ts';
import type { Tag } from '../config/tags.ts';

export interface PostAddress {
  path: string;
  /** Set if VALUES_PATH contains it. */
  instrumentation?: number;
}

/** Part of a batch that determines its URL. */
export interface Addressed {
  asset: number;
  instrumentation?: number;
  series: readonly number[];
}

export class PostAddresses {
  readonly #series: Pick<SeriesCatalogue, 'get'>;
  #template: string;
  #version = 0;
  #instrumentations: Instrumentations;

  constructor(series: Pick<SeriesCatalogue, 'get'>, valuesPath: string, tags: Iterable<Tag>) {
    this.#series = series;
    this.#template = valuesPath;
    this.#instrumentations = new Instrumentations(tags);
  }

  /** Number of changes of the path. After a change, batches that were already taken must be taken again. */
  get version(): number {
    return this.#version;
  }

  /** Applies settings after a reload. */
  replace(valuesPath: string, tags: Iterable<Tag>): void {
    if (valuesPath !== this.#template) this.#version++;
    this.#template = valuesPath;
    this.#instrumentations = new Instrumentations(tags);
  }

  /** Whether values of different instrumentations are posted to different URLs and require separate batches. */
  get byInstrumentation(): boolean {
    return namesInstrumentation(this.#template);
  }

  /** Returns `undefined` if the path requires an instrumentation and the series has none. */
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

/** Replaces `{asset_id}` and `{instrumentation_id}` in VALUES_PATH. */
export function fillValuesPath(template: string, asset: number, instrumentation: number | undefined): string {
  return template
    .replaceAll('{asset_id}', String(asset))
    .replaceAll('{instrumentation_id}', instrumentation === undefined ? '' : String(instrumentation));
}
