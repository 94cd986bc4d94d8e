import type { SchemaObject } from 'ajv';
import { DURATION_PATTERN } from '../base/quantity.ts';

/** Schema of durations in tags.yaml and reactions.yaml. */
export const DURATION_SCHEMA: SchemaObject = {
  type: ['string', 'integer'],
  pattern: DURATION_PATTERN,
  maximum: 0,
  minimum: 0,
  title: 'a duration',
  examples: ['500ms', '10s', '5m', '24h'],
};
