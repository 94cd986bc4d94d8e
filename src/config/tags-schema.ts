import type { SchemaObject } from 'ajv';
import { COMMON_VALUE_MEMBERS, commonSourceMembers } from './common-members.ts';
import type { SourceKinds } from './source-kinds.ts';

/**
 * The shape of tags.yaml: what ajv checks and, written to `config/schema/`, what editors complete. `title` and `examples`
 * are also the words of `tagferry check`. What belongs to a kind of source stands with the kind.
 */

/** As KEY_PATTERN of the contract, written for JSON Schema. */
const KEY_NAMES = {
  pattern: '^[A-Za-z0-9._-]{1,128}$',
  title: 'a key of the platform (1 to 128 letters, digits, ".", "-", "_")',
  examples: ['flow', 'process_temperature'],
};

const ID = { type: 'integer', minimum: 1, maximum: Number.MAX_SAFE_INTEGER };

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

/** Members of a value that it has whether or not the agent reads it. */
const OWN_VALUE_MEMBERS: Readonly<Record<string, SchemaObject>> = {
  unit: UNIT,
  group: {
    type: 'string',
    ...KEY_NAMES,
    title: 'a group of the platform (1 to 128 letters, digits, ".", "-", "_")',
    description: 'The group of the key on the platform.',
    examples: ['process'],
  },
  from: { type: 'string', title: 'the name of a source', description: 'A name under `sources`.', examples: ['plc1'] },
};

const NAME = {
  // Control characters would break log lines and line protocol.
  pattern: '^[^\\u0000-\\u001f\\u007f]{1,128}$',
  title: 'a name of 1 to 128 characters',
  examples: ['FT-101'],
};

/** Members of several kinds in one mapping. A name that two kinds share must mean the same shape: the first one's counts. */
function joined(members: readonly Readonly<Record<string, SchemaObject>>[]): Record<string, SchemaObject> {
  const all: Record<string, SchemaObject> = {};
  for (const some of members) for (const [name, schema] of Object.entries(some)) all[name] ??= schema;
  return all;
}

const composed = new WeakMap<SourceKinds, SchemaObject>();

/** The schema for these kinds of sources, made once. */
export function tagsSchema(kinds: SourceKinds): SchemaObject {
  const known = composed.get(kinds);
  if (known !== undefined) return known;
  const schema = compose(kinds);
  composed.set(kinds, schema);
  return schema;
}

function compose(kinds: SourceKinds): SchemaObject {
  const source: SchemaObject = {
    type: 'object',
    title: 'a source',
    examples: [{ mqtt: 'mqtt://127.0.0.1:1883' }],
    additionalProperties: false,
    properties: joined([
      ...kinds.map(({ kind, sourceMembers }) => ({ [kind]: sourceMembers[kind]! })),
      ...kinds.map(({ sourceMembers }) => sourceMembers),
      commonSourceMembers(kinds),
    ]),
  };
  const value: SchemaObject = {
    type: ['object', 'null'],
    title: 'a value',
    description: 'One value of the tag. Without `from`, programs push it.',
    examples: [{ unit: 12, group: 'process' }],
    additionalProperties: false,
    properties: joined([OWN_VALUE_MEMBERS, ...kinds.map(({ valueMembers }) => valueMembers), COMMON_VALUE_MEMBERS]),
  };
  const values: SchemaObject = {
    type: ['object', 'null'],
    title: 'a mapping of keys to values',
    description: 'Keys on the platform; lower-cased there.',
    examples: [{ flow: { unit: 12 } }],
    propertyNames: KEY_NAMES,
    additionalProperties: value,
  };
  const tag: SchemaObject = {
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
      like: {
        type: 'string',
        title: 'a name under like:',
        description: 'Values that it shares with others; its own `values` come on top.',
        examples: ['pump'],
      },
      values,
    },
  };
  return {
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
        additionalProperties: source,
      },
      like: {
        type: ['object', 'null'],
        title: 'a mapping of names to values',
        description: 'Values that many tags share; {tag}, {asset} and {instrumentation} are filled in.',
        examples: [{ pump: { flow: { unit: 12 } } }],
        propertyNames: { ...NAME, examples: ['pump'] },
        additionalProperties: { ...values, title: 'a mapping of keys to values' },
      },
      tags: {
        type: ['object', 'null'],
        title: 'a mapping of names to tags',
        description: 'Tags by name: what programs and log lines call them.',
        examples: [{ 'FT-101': { asset: 881 } }],
        propertyNames: NAME,
        additionalProperties: tag,
      },
    },
  };
}
