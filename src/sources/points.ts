import type { Tag, TagValue, ValueOrigin } from '../config/tags.ts';
import type { Intake } from './intake.ts';

/** One value that a source of tags.yaml reads, and the series that it goes to. */
export interface Point<Kind extends ValueOrigin['kind']> {
  /** As people know it: `FT-101 flow`. */
  name: string;
  series: number;
  origin: Extract<ValueOrigin, { kind: Kind }>;
}

/** What tags.yaml takes from a source, in its order. Opens the series. */
export function pointsOf<Kind extends ValueOrigin['kind']>(
  tags: ReadonlyMap<string, Tag>,
  source: string,
  kind: Kind,
  intake: Intake,
): Point<Kind>[] {
  const points: Point<Kind>[] = [];
  for (const tag of tags.values()) {
    for (const value of tag.values.values()) {
      if (!isFrom(value, source, kind)) continue;
      points.push({ name: `${tag.name} ${value.key}`, series: intake.seriesOf(tag, value), origin: value.from });
    }
  }
  return points;
}

function isFrom<Kind extends ValueOrigin['kind']>(
  value: TagValue,
  source: string,
  kind: Kind,
): value is TagValue & { from: Extract<ValueOrigin, { kind: Kind }> } {
  return value.from?.kind === kind && value.from.source === source;
}
