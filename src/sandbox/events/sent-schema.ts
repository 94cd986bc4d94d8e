import { type EventType, type JsonSchema, SHAPES } from '../../contract/events.ts';
import { ONE_R } from './announcer.ts';

/**
 * JSON Schemas of what the sandbox sends, member by member as the table of platform 6.3 has it, for the OpenAPI document: the whole
 * payload of one type, with the envelope of platform 6.2. What a receiver lets through is wider (`eventSchema`).
 */
export function sentSchema(type: EventType): JsonSchema {
  const stamp = ONE_R.has(type) ? 'occured_at' : 'occurred_at';
  return {
    title: type,
    type: 'object',
    properties: {
      event_type: { const: type },
      [stamp]: { type: 'string', format: 'date-time' },
      content: SHAPES[type].sent,
    },
    required: ['event_type', stamp, 'content'],
    additionalProperties: false,
  };
}
