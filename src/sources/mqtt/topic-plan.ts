/** Pure: what to ask a broker for, and which values a message is for. */
import { topicFits } from '../../broker/topic-filter.ts';
import type { Point } from '../points.ts';
import type { MqttValue } from './mqtt-value.ts';

/** So many topics that differ in the name of the tag are asked for with one wildcard. */
const WILDCARD_FROM = 10;

/**
 * Few filters that bring every topic: topics of one template become one filter with `+`, and what another brings is left out, because
 * brokers may send a message once for each filter that it fits. `refused`: filters that this broker does not allow.
 */
export function planFilters(points: readonly Point<MqttValue>[], refused: ReadonlySet<string> = new Set()): string[] {
  const filters = new Set<string>();
  const byTemplate = Map.groupBy(points, ({ spec }) => spec.template);
  for (const [template, some] of byTemplate) {
    const topics = new Set(some.map(({ spec }) => spec.topic));
    const wildcard = wildcardOf(template);
    const isWorthIt = topics.size >= WILDCARD_FROM && wildcard !== undefined && !refused.has(wildcard);
    if (isWorthIt) filters.add(wildcard);
    // A tag whose name has a slash in it lies deeper than the wildcard reaches.
    for (const topic of topics) if (!isWorthIt || !covers(wildcard, topic)) filters.add(topic);
  }
  const all = [...filters];
  const wild = all.filter((filter) => /[+#]/.test(filter));
  return all.filter((filter) => !wild.some((other) => other !== filter && covers(other, filter)));
}

/** The template with `+` for each level that is filled in; `undefined` where none is, or all of it. */
function wildcardOf(template: string): string | undefined {
  const levels = template.split('/').map((level) => (/\{(tag|asset|instrumentation)\}/.test(level) ? '+' : level));
  const isFixed = levels.some((level) => level !== '+' && level !== '#');
  return isFixed && levels.includes('+') ? levels.join('/') : undefined;
}

/** Whether every topic that `narrow` brings is brought by `wide`. */
export function covers(wide: string, narrow: string): boolean {
  if (!/[+#]/.test(narrow)) return topicFits(wide, narrow);
  if (narrow.startsWith('$') !== wide.startsWith('$')) return false;
  const wanted = wide.split('/');
  const found = narrow.split('/');
  for (const [at, level] of wanted.entries()) {
    if (level === '#') return true;
    if (at >= found.length || found[at] === '#' || (level !== '+' && level !== found[at])) return false;
  }
  return wanted.length === found.length;
}

/** Values by topic: a look-up for those without wildcards, however many they are. */
export class TopicRouter {
  readonly #exact: ReadonlyMap<string, readonly Point<MqttValue>[]>;
  readonly #wild: readonly Point<MqttValue>[];

  constructor(points: readonly Point<MqttValue>[]) {
    const isWild = ({ spec }: Point<MqttValue>) => /[+#]/.test(spec.topic);
    this.#exact = Map.groupBy(
      points.filter((point) => !isWild(point)),
      ({ spec }) => spec.topic,
    );
    this.#wild = points.filter(isWild);
  }

  pointsOf(topic: string): readonly Point<MqttValue>[] {
    const exact = this.#exact.get(topic) ?? [];
    if (this.#wild.length === 0) return exact;
    return [...exact, ...this.#wild.filter(({ spec }) => topicFits(spec.topic, topic))];
  }
}
