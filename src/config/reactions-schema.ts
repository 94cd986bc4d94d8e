import type { SchemaObject } from 'ajv';
import { EVENT_TYPES } from '../contract/events.ts';
import type { ActionKinds } from './action-kinds.ts';
import { DURATION_SCHEMA } from './duration-schema.ts';

/**
 * Schema of reactions.yaml. Used by ajv for validation and written to `config/schema/` for completion in editors.
 * `tagferry check` builds its messages from `title` and `examples`.
 */

const SCALAR = ['string', 'number', 'boolean', 'null'];

const CONDITION: SchemaObject = {
  type: [...SCALAR, 'array', 'object'],
  title: 'a condition',
  examples: ['high', ['high', 'low'], { above: 20 }, { above: 20, below: 80 }],
  minItems: 1,
  items: { type: SCALAR, title: 'a string, a number, true, false or null', examples: ['high', 20] },
  minProperties: 1,
  additionalProperties: false,
  properties: {
    above: { type: 'number', title: 'a number', examples: [20] },
    below: { type: 'number', title: 'a number', examples: [80] },
    change: { type: 'number', title: 'a number', description: 'Minimum change for `rate_above`.', examples: [2] },
    per: { ...DURATION_SCHEMA, description: 'Period for `rate_above`.' },
  },
};

/** Returns the schema of one action: the member that selects the kind, and the members of all kinds. */
function actionSchema(kinds: ActionKinds): SchemaObject {
  const members: Record<string, SchemaObject> = {};
  for (const { kind, shape } of kinds) members[kind] = shape;
  for (const { kind, members: own = {} } of kinds) {
    for (const [name, shape] of Object.entries(own)) {
      const description = `${kind}: ${shape.description}`;
      const shared = members[name];
      members[name] = { ...shape, description: shared ? `${shared.description} ${description}` : description };
    }
  }
  return {
    type: 'object',
    title: 'an action',
    description: `One of ${kinds.map(({ kind }) => kind).join(', ')}.`,
    examples: [{ log: 'warn' }],
    additionalProperties: false,
    properties: members,
  };
}

const reactionSchema = (kinds: ActionKinds): SchemaObject => ({
  type: 'object',
  title: 'a reaction',
  examples: [{ name: 'note', on: 'threshold_reached', do: [{ log: 'warn' }] }],
  additionalProperties: false,
  required: ['name', 'on', 'do'],
  properties: {
    name: {
      type: 'string',
      pattern: '^[^\\u0000-\\u001f\\u007f]{1,128}$',
      title: 'a name of 1 to 128 characters',
      description: 'Name of the reaction in log, journal and metrics.',
      examples: ['close-inlet-valve'],
    },
    on: {
      type: ['string', 'array'],
      minItems: 1,
      items: { type: 'string', title: 'an event type', examples: ['threshold_reached'] },
      title: 'an event type, a list of them, or "*"',
      description: `One of ${EVENT_TYPES.join(', ')}; a list of them; "*" means all types; value means a rule on local values.`,
      examples: ['threshold_reached', ['asset_appeared', 'asset_disappeared']],
    },
    if: {
      type: ['object', 'null'],
      title: 'a mapping of conditions',
      description:
        'Conditions that must all be true. `tag` is a tag in tags.yaml, or a list of tags; any other name is a path that starts in `content`. ' +
        'With `on: value`: `tag`, `key` and one of above, below, outside, changes, quality, silent, rate_above.',
      examples: [{ tag: 'FT-101', 'threshold.type': 'high', 'data.value': { above: 20 } }],
      propertyNames: {
        pattern: '^[A-Za-z0-9_-]+(\\.[A-Za-z0-9_-]+)*$',
        maxLength: 256,
        title: 'a path of member names, separated by dots',
        examples: ['data.value'],
      },
      properties: {
        tag: {
          ...CONDITION,
          description:
            'Tag in tags.yaml, or a list of tags. Matches events of its instrumentation, or of its asset if the event contains no instrumentation.',
          examples: ['FT-101', ['FT-101', 'FT-102']],
        },
      },
      additionalProperties: CONDITION,
    },
    cooldown: {
      ...DURATION_SCHEMA,
      description: 'Minimum time between two runs for the same object. Default: none.',
    },
    max_age: {
      ...DURATION_SCHEMA,
      description: 'Maximum age of an event; older events are only logged. 0 means no limit. Default: 10m.',
    },
    do: {
      type: 'array',
      minItems: 1,
      maxItems: 100,
      items: actionSchema(kinds),
      title: 'a list of actions',
      description: 'Actions, in order of execution.',
      examples: [[{ log: 'warn' }]],
    },
    on_clear: {
      type: 'array',
      minItems: 1,
      maxItems: 100,
      items: actionSchema(kinds),
      title: 'a list of actions',
      description: 'With `on: value`: actions when the condition is no longer met.',
      examples: [[{ log: 'info' }]],
    },
  },
});

/** Returns the schema of reactions.yaml for these kinds of actions. */
export const reactionsSchema = (kinds: ActionKinds): SchemaObject => ({
  $schema: 'http://json-schema.org/draft-07/schema#',
  title: 'a mapping with a list of reactions',
  description: 'tagferry reactions to webhook events (reactions.yaml).',
  type: 'object',
  examples: [{ reactions: [] }],
  additionalProperties: false,
  properties: {
    reactions: {
      type: ['array', 'null'],
      items: reactionSchema(kinds),
      title: 'a list of reactions',
      examples: [[{ name: 'note', on: 'threshold_reached', do: [{ log: 'warn' }] }]],
    },
  },
});
