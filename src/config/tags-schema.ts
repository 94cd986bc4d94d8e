import type { SchemaObject } from 'ajv';
import { COMMON_VALUE_MEMBERS, commonSourceMembers } from './common-members.ts';
import type { SourceKinds } from './source-kinds.ts';
import { VALUE_MAP_SCHEMA } from './value-map.ts';

/**
 * Schema of tags.yaml. Used by ajv for validation and written to `config/schema/` for completion in editors. `tagferry
 * check` builds its messages from `title` and `examples`. The kinds of sources define their own members.
 */

/** `KEY_PATTERN` (`contract/values.ts`) as JSON Schema. */
const KEY_NAMES = {
  pattern: '^[A-Za-z0-9._-]{1,128}$',
  title: 'a valid key (1 to 128 letters, digits, ".", "-", "_")',
  examples: ['flow', 'process_temperature'],
};

const ID = { type: 'integer', minimum: 1, maximum: Number.MAX_SAFE_INTEGER };

const UNIT: SchemaObject = {
  type: ['integer', 'object'],
  description: 'Unit on the platform: its number or its code.',
  title: 'a unit',
  examples: [12, { code: 'degree_celsius' }],
  minimum: 1,
  maximum: Number.MAX_SAFE_INTEGER,
  required: ['code'],
  additionalProperties: false,
  properties: {
    code: { type: 'string', minLength: 1, maxLength: 128, title: 'a unit code', examples: ['degree_celsius'] },
  },
};

/** Members of a value that are independent of its source. */
const OWN_VALUE_MEMBERS: Readonly<Record<string, SchemaObject>> = {
  unit: UNIT,
  group: {
    type: 'string',
    ...KEY_NAMES,
    title: 'a valid group (1 to 128 letters, digits, ".", "-", "_")',
    description: 'Group of the key on the platform.',
    examples: ['process'],
  },
  from: {
    type: 'string',
    title: 'a source name',
    description: 'Name of a source under `sources`.',
    examples: ['plc1'],
  },
  map: VALUE_MAP_SCHEMA,
};

const NAME = {
  // Control characters would break log lines and line protocol.
  pattern: '^[^\\u0000-\\u001f\\u007f]{1,128}$',
  title: 'a name of 1 to 128 characters',
  examples: ['FT-101'],
};

/**
 * Merges the members of several kinds. If several kinds use the same member name, they must use the same schema; the
 * first one is used.
 */
function joined(members: readonly Readonly<Record<string, SchemaObject>>[]): Record<string, SchemaObject> {
  const all: Record<string, SchemaObject> = {};
  for (const some of members) for (const [name, schema] of Object.entries(some)) all[name] ??= schema;
  return all;
}

const composed = new WeakMap<SourceKinds, SchemaObject>();

/** Returns the cached schema for these kinds of sources. */
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
    description: 'One value of the tag. A value without `from` is pushed by programs.',
    examples: [{ unit: 12, group: 'process' }],
    additionalProperties: false,
    properties: joined([OWN_VALUE_MEMBERS, ...kinds.map(({ valueMembers }) => valueMembers), COMMON_VALUE_MEMBERS]),
  };
  const values: SchemaObject = {
    type: ['object', 'null'],
    title: 'a mapping of keys to values',
    description: 'Keys on the platform, which converts them to lower case.',
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
      asset: { ...ID, title: 'an asset number', description: 'Asset on the platform.', examples: [881] },
      instrumentation: {
        ...ID,
        title: 'an instrumentation number',
        description: 'Instrumentation (tag) on the platform that the asset is assigned to.',
        examples: [4711],
      },
      like: {
        type: 'string',
        title: 'a name under like:',
        description: 'Name under `like` whose values the tag shares. Its own `values` are added to them.',
        examples: ['pump'],
      },
      values,
    },
  };
  return {
    $schema: 'http://json-schema.org/draft-07/schema#',
    title: 'a mapping of sources and tags',
    description: 'tagferry tags, their assets on the platform, and the sources of their values (tags.yaml).',
    type: 'object',
    examples: [{ tags: { 'FT-101': { asset: 881 } } }],
    additionalProperties: false,
    properties: {
      sources: {
        type: ['object', 'null'],
        title: 'a mapping of names to sources',
        description: 'Sources that the agent reads.',
        examples: [{ plc1: { modbus: 'tcp://192.168.0.5:502', unit: 1, every: '1s' } }],
        propertyNames: { ...NAME, examples: ['plc1'] },
        additionalProperties: source,
      },
      like: {
        type: ['object', 'null'],
        title: 'a mapping of names to values',
        description: 'Values that several tags share. {tag}, {asset} and {instrumentation} are replaced for each tag.',
        examples: [{ pump: { flow: { unit: 12 } } }],
        propertyNames: { ...NAME, examples: ['pump'] },
        additionalProperties: { ...values, title: 'a mapping of keys to values' },
      },
      tags: {
        type: ['object', 'null'],
        title: 'a mapping of names to tags',
        description: 'Tags by name, as used by programs and log lines.',
        examples: [{ 'FT-101': { asset: 881 } }],
        propertyNames: NAME,
        additionalProperties: tag,
      },
    },
  };
}
