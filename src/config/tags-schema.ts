import type { SchemaObject } from 'ajv';
import { DURATION_PATTERN } from './quantity.ts';

/**
 * The shape of tags.yaml: what ajv checks and, written to `config/schema/`, what editors complete. `title` and `examples`
 * are also the words of `tagferry check`.
 */

/** As KEY_PATTERN of the contract, written for JSON Schema. */
const KEY_NAMES = {
  pattern: '^[A-Za-z0-9._-]{1,128}$',
  title: 'a key of the platform (1 to 128 letters, digits, ".", "-", "_")',
  examples: ['flow', 'process_temperature'],
};

const ID = { type: 'integer', minimum: 1, maximum: Number.MAX_SAFE_INTEGER };

export const DURATION: SchemaObject = {
  type: ['string', 'integer'],
  pattern: DURATION_PATTERN,
  maximum: 0,
  minimum: 0,
  title: 'a duration',
  examples: ['500ms', '10s', '5m', '24h'],
};

const UNIT: SchemaObject = {
  type: ['integer', 'object'],
  description: 'The unit on the platform: its number, or its code.',
  title: 'a unit',
  examples: [12, { code: 'degree_celsius' }],
  minimum: 1,
  maximum: Number.MAX_SAFE_INTEGER,
  required: ['code'],
  additionalProperties: false,
  properties: {
    code: { type: 'string', minLength: 1, maxLength: 128, title: 'the code of a unit', examples: ['degree_celsius'] },
  },
};

const SOURCE: SchemaObject = {
  type: 'object',
  title: 'a source',
  examples: [{ mqtt: 'mqtt://127.0.0.1:1883' }],
  additionalProperties: false,
  properties: {
    modbus: {
      type: 'string',
      title: 'the address of a Modbus TCP device',
      description: 'A Modbus TCP device, polled.',
      examples: ['tcp://192.168.0.5:502'],
    },
    mqtt: {
      type: 'string',
      title: 'the address of an MQTT broker',
      description: 'An MQTT broker, subscribed to.',
      examples: ['mqtt://127.0.0.1:1883', 'mqtts://broker.example:8883'],
    },
    host: { const: true, title: 'true', description: 'The readings of this machine itself.', examples: [true] },
    simulate: { const: true, title: 'true', description: 'Made-up values, for trying things out.', examples: [true] },
    unit: {
      type: 'integer',
      minimum: 0,
      maximum: 255,
      default: 1,
      title: 'a Modbus unit from 0 to 255',
      description: 'Modbus: the unit (slave) address.',
      examples: [1],
    },
    every: { ...DURATION, description: 'How often it is read. Modbus and simulate 1s unless told, host 10s.' },
  },
};

const VALUE: SchemaObject = {
  type: ['object', 'null'],
  title: 'a value',
  description: 'One value of the tag. Without `from`, programs push it.',
  examples: [{ unit: 12, group: 'process' }],
  additionalProperties: false,
  properties: {
    unit: UNIT,
    group: {
      type: 'string',
      ...KEY_NAMES,
      title: 'a group of the platform (1 to 128 letters, digits, ".", "-", "_")',
      description: 'The group of the key on the platform.',
      examples: ['process'],
    },
    from: { type: 'string', title: 'the name of a source', description: 'A name under `sources`.', examples: ['plc1'] },
    register: {
      type: 'string',
      title: 'a Modbus register',
      description: 'Modbus: table and number: holding, input, coil or discrete.',
      examples: ['holding 30013', 'input 30001', 'coil 1'],
    },
    type: {
      enum: ['int16', 'uint16', 'int32', 'uint32', 'float32', 'float64', 'bool'],
      description: 'Modbus: what the registers hold; uint16 unless told, bool for coil and discrete.',
    },
    word_order: {
      enum: ['big', 'little'],
      default: 'big',
      description: 'Modbus: whether the first register holds the high (big) or the low word (little).',
    },
    scale: {
      type: 'number',
      default: 1,
      title: 'a number',
      description: 'Modbus: what the reading is multiplied by.',
      examples: [0.1],
    },
    topic: {
      type: 'string',
      minLength: 1,
      maxLength: 1024,
      title: 'an MQTT topic',
      description: 'MQTT: the topic that carries the value.',
      examples: ['site/ft101'],
    },
    at: {
      type: 'string',
      pattern: '^(/.*)?$',
      title: 'a JSON pointer',
      description: 'MQTT: where the number stands in a JSON message. Left out: the whole message is the number.',
      examples: ['/temp'],
    },
    reading: {
      type: 'string',
      minLength: 1,
      maxLength: 128,
      title: 'the name of a reading',
      description: 'Host: which reading of the machine.',
      examples: ['load1'],
    },
    shape: { enum: ['sine', 'walk', 'step'], default: 'sine', description: 'Simulate: how the value moves.' },
    low: { type: 'number', default: 0, title: 'a number', description: 'Simulate: the lowest value.', examples: [0] },
    high: {
      type: 'number',
      default: 100,
      title: 'a number',
      description: 'Simulate: the highest value.',
      examples: [100],
    },
  },
};

const TAG: SchemaObject = {
  type: 'object',
  title: 'a tag',
  examples: [{ asset: 881, values: { flow: { unit: 12 } } }],
  additionalProperties: false,
  required: ['asset'],
  properties: {
    asset: { ...ID, title: 'the number of an asset', description: 'The asset on the platform.', examples: [881] },
    instrumentation: {
      ...ID,
      title: 'the number of an instrumentation',
      description: 'The instrumentation (tag) on the platform that the asset is assigned to.',
      examples: [4711],
    },
    values: {
      type: ['object', 'null'],
      title: 'a mapping of keys to values',
      description: 'Keys on the platform; lower-cased there.',
      examples: [{ flow: { unit: 12 } }],
      propertyNames: KEY_NAMES,
      additionalProperties: VALUE,
    },
  },
};

const NAME = {
  // Control characters would break log lines and line protocol.
  pattern: '^[^\\u0000-\\u001f\\u007f]{1,128}$',
  title: 'a name of 1 to 128 characters',
  examples: ['FT-101'],
};

export const TAGS_SCHEMA: SchemaObject = {
  $schema: 'http://json-schema.org/draft-07/schema#',
  title: 'a mapping of sources and tags',
  description: 'tags.yaml of tagferry: the tags, what they are on the platform, and where their values come from.',
  type: 'object',
  examples: [{ tags: { 'FT-101': { asset: 881 } } }],
  additionalProperties: false,
  properties: {
    sources: {
      type: ['object', 'null'],
      title: 'a mapping of names to sources',
      description: 'Where the agent reads values itself.',
      examples: [{ plc1: { modbus: 'tcp://192.168.0.5:502', unit: 1, every: '1s' } }],
      propertyNames: { ...NAME, examples: ['plc1'] },
      additionalProperties: SOURCE,
    },
    tags: {
      type: ['object', 'null'],
      title: 'a mapping of names to tags',
      description: 'Tags by name: what programs and log lines call them.',
      examples: [{ 'FT-101': { asset: 881 } }],
      propertyNames: NAME,
      additionalProperties: TAG,
    },
  },
};
