import type { Shaping, Tag, TagValue, ValueOrigin } from '../config/tags.ts';

/** One value that a source of tags.yaml brings, and the series that it goes to. `Spec` is what its kind made of it. */
export interface Point<Spec = unknown> {
  /** As people know it: `FT-101 flow`. */
  name: string;
  series: number;
  /** How often it is read; 0 where the source itself says when. */
  everyMs: number;
  shaping: Shaping;
  spec: Spec;
}

/** Opens the series of a value. */
export interface SeriesOpener {
  seriesOf(tag: Tag, value: TagValue): number;
}

/** What tags.yaml takes from a source, in its order. Opens the series. */
export function pointsOf<Spec>(tags: ReadonlyMap<string, Tag>, source: string, intake: SeriesOpener): Point<Spec>[] {
  const points: Point<Spec>[] = [];
  for (const tag of tags.values()) {
    for (const value of tag.values.values()) {
      if (value.from?.source !== source) continue;
      const { everyMs, shaping, spec } = value.from as ValueOrigin<Spec>;
      points.push({ name: `${tag.name} ${value.key}`, series: intake.seriesOf(tag, value), everyMs, shaping, spec });
    }
  }
  return points;
}
