import type { SchemaObject } from 'ajv';
import { EVENT_TYPES } from '../contract/events.ts';
import { DURATION_SCHEMA } from './duration-schema.ts';

/**
 * The shape of reactions.yaml: what ajv checks and, written to `config/schema/`, what editors complete. `title` and
 * `examples` are also the words of `tagferry check`.
 */

const SCALAR = ['string', 'number', 'boolean', 'null'];

const CONDITION: SchemaObject = {
  type: [...SCALAR, 'array', 'object'],
  title: 'a condition',
  examples: ['high', ['high', 'low'], { above: 20 }, { above: 20, below: 80 }],
  minItems: 1,
  items: { type: SCALAR, title: 'a text, a number, true, false or null', examples: ['high', 20] },
  minProperties: 1,
  additionalProperties: false,
  properties: {
    above: { type: 'number', title: 'a number', examples: [20] },
    below: { type: 'number', title: 'a number', examples: [80] },
  },
};

const PUBLISH: SchemaObject = {
  type: 'object',
  title: 'what to publish',
  description: 'Publishes to an MQTT broker, QoS 1, or to a subject of NATS.',
  examples: [{ to: 'broker', topic: 'site/alarms' }],
  additionalProperties: false,
  required: ['to', 'topic'],
  properties: {
    to: {
      type: 'string',
      title: 'the name of an mqtt or nats source',
      description: 'An mqtt, sparkplug or nats source of tags.yaml.',
      examples: ['broker'],
    },
    topic: {
      type: 'string',
      minLength: 1,
      maxLength: 1024,
      title: 'a topic',
      description: 'Where to: a topic of MQTT, a subject of NATS. {{content.asset.id}} is filled in from the event.',
      examples: ['site/alarms'],
    },
    body: { description: 'What to send instead of the JSON of the event.' },
    retain: { type: 'boolean', default: false, title: 'true or false', examples: [true] },
  },
};

const ACTION: SchemaObject = {
  type: 'object',
  title: 'an action',
  description: 'One of run, post, publish, log.',
  examples: [{ log: 'warn' }],
  additionalProperties: false,
  properties: {
    run: {
      type: 'array',
      minItems: 1,
      maxItems: 1000,
      items: { type: ['string', 'number', 'boolean'], title: 'a text', examples: ['FT-101'] },
      title: 'a command as a list',
      description: 'A program and its arguments, never through a shell; the JSON of the event is its standard input.',
      examples: [['/opt/site/close-valve', 'FT-101']],
    },
    post: {
      type: 'string',
      title: 'an http address',
      description: 'Posts the JSON of the event there, or `body`.',
      examples: ['http://127.0.0.1:1880/alarm'],
    },
    publish: PUBLISH,
    log: {
      enum: ['debug', 'info', 'warn', 'error'],
      description: 'Writes a line of this level to the log.',
      examples: ['warn'],
    },
    timeout: { ...DURATION_SCHEMA, description: 'run: 30s unless told; post: 10s.' },
    working_folder: {
      type: 'string',
      pattern: '^/',
      title: 'an absolute path',
      description: 'run: where the program runs.',
      examples: ['/opt/site'],
    },
    body: {
      description: 'post: what to send instead of the JSON of the event. {{content.data.value}} is filled in from it.',
    },
    headers: {
      type: 'object',
      title: 'a mapping of header names to texts',
      description: 'post: headers to add.',
      examples: [{ 'X-Site': 'north' }],
      propertyNames: { pattern: "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$", title: 'the name of a header', examples: ['X-Site'] },
      additionalProperties: {
        type: ['string', 'number'],
        pattern: '^[^\\u0000-\\u0008\\u000a-\\u001f\\u007f]*$',
        title: 'the text of a header',
        examples: ['north'],
      },
    },
  },
};

const REACTION: SchemaObject = {
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
      description: 'What the log, the journal and the metrics call it.',
      examples: ['close-inlet-valve'],
    },
    on: {
      type: ['string', 'array'],
      minItems: 1,
      items: { type: 'string', title: 'an event type', examples: ['threshold_reached'] },
      title: 'an event type, a list of them, or "*"',
      description: `One of ${EVENT_TYPES.join(', ')}; a list of them; "*" is every one.`,
      examples: ['threshold_reached', ['asset_appeared', 'asset_disappeared']],
    },
    if: {
      type: ['object', 'null'],
      title: 'a mapping of conditions',
      description:
        'All must hold. `tag` is a tag of tags.yaml, or a list of them; any other name is a path that starts in `content`.',
      examples: [{ tag: 'FT-101', 'threshold.type': 'high', 'data.value': { above: 20 } }],
      propertyNames: {
        pattern: '^[A-Za-z0-9_-]+(\\.[A-Za-z0-9_-]+)*$',
        maxLength: 256,
        title: 'a path of member names with dots between them',
        examples: ['data.value'],
      },
      properties: {
        tag: {
          ...CONDITION,
          description: 'A tag of tags.yaml, or a list of them: the event names its instrumentation, or else its asset.',
          examples: ['FT-101', ['FT-101', 'FT-102']],
        },
      },
      additionalProperties: CONDITION,
    },
    cooldown: {
      ...DURATION_SCHEMA,
      description: 'After it ran, how long it rests for the same object. None unless told.',
    },
    max_age: {
      ...DURATION_SCHEMA,
      description: 'An event that occurred longer ago is only logged. 10m unless told; 0 is no limit.',
    },
    do: {
      type: 'array',
      minItems: 1,
      maxItems: 100,
      items: ACTION,
      title: 'a list of actions',
      description: 'What to do, in this order.',
      examples: [[{ log: 'warn' }]],
    },
  },
};

export const REACTIONS_SCHEMA: SchemaObject = {
  $schema: 'http://json-schema.org/draft-07/schema#',
  title: 'a mapping with a list of reactions',
  description: 'reactions.yaml of tagferry: what to do when a webhook event arrives.',
  type: 'object',
  examples: [{ reactions: [] }],
  additionalProperties: false,
  properties: {
    reactions: {
      type: ['array', 'null'],
      items: REACTION,
      title: 'a list of reactions',
      examples: [[{ name: 'note', on: 'threshold_reached', do: [{ log: 'warn' }] }]],
    },
  },
};
