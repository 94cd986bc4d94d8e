import type { Shaping, Tag, TagValue, ValueMap, ValueOrigin } from '../config/tags.ts';

/** A value of a source in tags.yaml, and its series. `Spec` is the value specification defined by the source kind. */
export interface Point<Spec = unknown> {
  /** Display name, for example `FT-101 flow`. */
  name: string;
  series: number;
  /** Poll interval in milliseconds; 0 if the source determines when it sends values. */
  everyMs: number;
  map?: ValueMap | undefined;
  shaping: Shaping;
  spec: Spec;
}

/** Returns the points of a source in tags.yaml order. Opens their series. */
export function pointsOf<Spec>(
  tags: ReadonlyMap<string, Tag>,
  source: string,
  intake: { seriesOf(tag: Tag, value: TagValue): number },
): Point<Spec>[] {
  const points: Point<Spec>[] = [];
  for (const tag of tags.values()) {
    for (const value of tag.values.values()) {
      if (value.from?.source !== source) continue;
      const { everyMs, shaping, spec } = value.from as ValueOrigin<Spec>;
      const name = `${tag.name} ${value.key}`;
      points.push({ name, series: intake.seriesOf(tag, value), everyMs, map: value.map, shaping, spec });
    }
  }
  return points;
}
