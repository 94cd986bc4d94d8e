import type { Reaction } from '../config/reactions.ts';
import type { Tag } from '../config/tags.ts';
import { type EventFacts, readFacts } from './event-facts.ts';
import { matches } from './rules.ts';

/**
 * Which of the events that many gateways are told concern this one: those of assets and instrumentations that tags.yaml names, and
 * those that a reaction asks for by a condition. A reaction without one takes all of its type, and would take those of every gateway.
 */
export function concernOf(
  tags: Iterable<Pick<Tag, 'asset' | 'instrumentation'>>,
  reactions: readonly Reaction[],
): (event: Omit<Parameters<typeof readFacts>[0], 'progress'>) => boolean {
  const assets = new Set<number>();
  const instrumentations = new Set<number>();
  for (const { asset, instrumentation } of tags) {
    assets.add(asset);
    if (instrumentation !== undefined) instrumentations.add(instrumentation);
  }
  const asking = reactions.filter(({ conditions }) => conditions.length > 0);
  const isNamed = (facts: EventFacts) =>
    facts.assets.some((id) => assets.has(id)) || facts.instrumentations.some((id) => instrumentations.has(id));
  return (event) => {
    const facts = readFacts(event);
    return isNamed(facts) || asking.some((reaction) => matches(reaction, facts));
  };
}
