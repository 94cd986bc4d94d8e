import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { readFacts } from '../../../../src/reactions/event-facts.ts';

/** Returns facts for an event in `test/fixtures/events/`, with different content if specified. */
export function factsOf(eventType: string, content?: unknown, id = 1) {
  const file = join(import.meta.dirname, `../../../fixtures/events/${eventType}.json`);
  const envelope = JSON.parse(readFileSync(file, 'utf8')) as Record<string, unknown>;
  if (content !== undefined) envelope.content = content;
  return readFacts({
    id,
    eventType,
    occurredAtMs: Date.UTC(2026, 10, 21),
    payload: JSON.stringify(envelope),
    envelope,
  });
}
