/** Plans topic subscriptions. Pure. */
import { covers, hasWildcard, type TopicGrammar } from '../../broker/topic-filters.ts';
import type { MessageValue } from './payload.ts';

/** Minimum number of topics in a template that are replaced by one wildcard filter. */
const WILDCARD_FROM = 10;

/**
 * Returns a small set of filters that match all topics. Topics with the same template become one filter with a
 * wildcard. Filters covered by other filters are omitted, because brokers may send a message once per matching filter.
 * `rejected`: filters that this broker does not allow.
 */
export function planFilters(
  points: readonly { spec: Pick<MessageValue, 'topic' | 'template'> }[],
  grammar: TopicGrammar,
  rejected: ReadonlySet<string> = new Set(),
): string[] {
  const filters = new Set<string>();
  const byTemplate = Map.groupBy(points, ({ spec }) => spec.template);
  for (const [template, some] of byTemplate) {
    const topics = new Set(some.map(({ spec }) => spec.topic));
    const wildcard = topics.size < WILDCARD_FROM ? undefined : wildcardOf(template, grammar);
    const isUsed = wildcard !== undefined && !rejected.has(wildcard);
    if (isUsed) filters.add(wildcard);
    // If a tag name contains a separator, its topic has more levels than the wildcard matches.
    for (const topic of topics) if (!isUsed || !covers(wildcard, topic, grammar)) filters.add(topic);
  }
  const all = [...filters];
  const wild = all.filter((filter) => hasWildcard(filter, grammar));
  return all.filter((filter) => !wild.some((other) => other !== filter && covers(other, filter, grammar)));
}

/**
 * Returns the template with a wildcard at each level that contains a placeholder. Returns `undefined` if no level or
 * every level contains a placeholder.
 */
function wildcardOf(template: string, { separator, one, rest }: TopicGrammar): string | undefined {
  const levels = template
    .split(separator)
    .map((level) => (/\{(tag|asset|instrumentation)\}/.test(level) ? one : level));
  const isFixed = levels.some((level) => level !== one && level !== rest);
  return isFixed && levels.includes(one) ? levels.join(separator) : undefined;
}

/** Returns the problem of a source whose filters the broker rejects; `undefined` if there are none. */
export function deniedText(filters: ReadonlySet<string>): string | undefined {
  const [first] = filters;
  if (first === undefined) return undefined;
  const more = filters.size > 1 ? ` and ${filters.size - 1} more` : '';
  return `the broker rejects the subscription to ${first}${more}`;
}
