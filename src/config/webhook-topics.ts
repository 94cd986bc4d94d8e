import type { Problems } from './problem.ts';
import { printable } from './problem.ts';
import type { ReadSettings } from './read-settings.ts';
import type { ReadTags } from './read-tags.ts';
import type { GivenSettings } from './setting-origins.ts';
import { wrongSubject } from './subject.ts';
import { wrongTopic } from './topic.ts';

/** Whether the brokers of WEBHOOK_FROM and WEBHOOK_TO stand in tags.yaml, and their topics are such as one can publish to. */
export function checkTopics(settings: ReadSettings, origins: GivenSettings, tags: ReadTags, problems: Problems): void {
  for (const [key, target] of [
    ['WEBHOOK_FROM', settings.webhookFrom],
    ['WEBHOOK_TO', settings.webhookTo],
  ] as const) {
    if (target === undefined || tags.unknown) continue;
    const { broker, topic } = target;
    const place = origins.placeOf(key);
    const levels = tags.sourceKinds.get(broker)?.publishes;
    if (levels === undefined) {
      const reason = `${key}: there is no broker "${printable(broker)}" in tags.yaml`;
      problems.error(place, reason, 'name a source with mqtt: or nats:', broker);
      continue;
    }
    const wrong = levels === 'subject' ? wrongSubject(topic, 'plain') : wrongTopic(topic);
    if (wrong !== undefined) {
      const example = levels === 'subject' ? 'platform.events' : 'platform/events';
      problems.error(place, `${key}: topic "${printable(topic)}" ${wrong}`, `write for example ${example}`, topic);
    }
  }
}
