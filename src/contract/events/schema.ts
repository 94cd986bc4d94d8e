import type { EventType } from './names.ts';
import type { JsonSchema } from './shape.ts';
import { SHAPES } from './shapes.ts';

const textOrNull: JsonSchema = { type: ['string', 'null'] };

/** What a receiver lets through of one type: the envelope of platform 6.2 around its content. The time may be spelled either way. */
export function eventSchema(eventType: EventType): JsonSchema {
  return {
    title: eventType,
    type: 'object',
    properties: {
      event_type: { const: eventType },
      occurred_at: textOrNull,
      occured_at: textOrNull,
      content: SHAPES[eventType].received,
    },
    required: ['event_type', 'content'],
    anyOf: [{ required: ['occurred_at'] }, { required: ['occured_at'] }],
  };
}
