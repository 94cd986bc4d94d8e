/** `doctor --bundle` with a marker in every text that the schemas and agent.env allow. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { SchemaObject } from 'ajv';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Document, parse, visit } from 'yaml';
import { parseEnvFile } from '../../../src/config/env-file.ts';
import { maskedEnv, maskedReactions, maskedTags } from '../../../src/config/masked-configuration.ts';
import { Problems } from '../../../src/config/problem.ts';
import { reactionsSchema } from '../../../src/config/reactions-schema.ts';
import { AGENT_ENV_KEYS, KEY_NAMES, settingKey } from '../../../src/config/setting-keys.ts';
import { tagsSchema } from '../../../src/config/tags-schema.ts';
import { ACTION_KINDS } from '../../../src/reactions/actions.ts';
import { SOURCE_KINDS } from '../../../src/sources/kinds.ts';
import { runVerb } from './verb-run.ts';

/** Members whose text may be included in a bundle. Extend the list when adding a member to a schema. */
const SHOWN = [
  ...[
    'source.ack_wait',
    'source.ca',
    'source.cert',
    'source.client_id',
    'source.creds',
    'source.csv',
    'source.durable',
  ],
  ...['source.every', 'source.group', 'source.history', 'source.host', 'source.keep', 'source.key', 'source.no_value'],
  ...[
    'source.password_file',
    'source.pattern',
    'source.pause',
    'source.period',
    'source.primary_host',
    'source.session_expiry',
  ],
  ...['source.settle', 'source.share', 'source.simulate', 'source.stream', 'source.time_column', 'source.time_format'],
  ...['source.timeout', 'source.trust', 'source.user_cert', 'source.user_key', 'source.username', 'source.zone'],
  ...[
    'value.at',
    'value.bit',
    'value.column',
    'value.deadband',
    'value.every',
    'value.from',
    'value.group',
    'value.max_silence',
  ],
  ...[
    'value.member',
    'value.metric',
    'value.no_value',
    'value.node',
    'value.on_change',
    'value.reading',
    'value.register',
  ],
  ...[
    'value.samples',
    'value.scale_register',
    'value.status',
    'value.subject',
    'value.time',
    'value.time_property',
    'value.topic',
    'value.unit.code',
    'tag.like',
  ],
  ...['reaction.name', 'reaction.on', 'reaction.if', 'reaction.cooldown', 'reaction.max_age', 'action.timeout'],
  ...['action.working_folder', 'action.publish.to', 'action.publish.topic'],
  ...['action.write.tag', 'action.write.key', 'action.write.group', 'action.write.value'],
  ...['value.writable.max_rate.per', 'value.write_to', 'value.zone'],
  ...['source.name_column', 'source.quality_column', 'source.value_column', 'value.name', 'value.quality_column'],
];
const ADDRESSES = ['source.modbus', 'source.mqtt', 'source.nats', 'source.sparkplug', 'source.opcua', 'action.post'];

const marker = (path: string) => `MARK<${path}>`;
const markersIn = (text: string) => new Set([...text.matchAll(/MARK<([^<>]*)>/g)].map(([, path]) => path!));

/** Returns a mapping with a marker in each text of the schema, regardless of other constraints. */
function filled(schema: SchemaObject | undefined, path: string): unknown {
  const { type, properties, additionalProperties, items, enum: choices } = schema ?? {};
  if (choices) return choices[0];
  const types = [type ?? 'string'].flat();
  if (ADDRESSES.includes(path)) {
    const [user, password, place, query] = ['user', 'password', 'path', 'query'].map((part) =>
      marker(`${path}.${part}`),
    );
    return `mqtt://${user}:${password}@${path.replace('.', '-')}.example.com:1883/${place}?token=${query}`;
  }
  if (types.includes('string')) return marker(path);
  if (types.includes('object')) {
    const members = Object.entries(properties ?? {});
    if (additionalProperties) members.push(['any', additionalProperties]);
    return Object.fromEntries(
      members.map(([name, one]) => [name, filled(one as SchemaObject, shortPath(`${path}.${name}`))]),
    );
  }
  return types.includes('array') ? [filled(items, shortPath(path)), filled(items, shortPath(path))] : 1;
}

/** Returns `source.mqtt` for `tags.sources.any.mqtt`. */
function shortPath(path: string): string {
  return path
    .replace('tags.sources.any', 'source')
    .replace(/^(tags\.like\.any|tag\.values)\.any/, 'value')
    .replace('tags.tags.any', 'tag')
    .replace('reactions.reactions', 'reaction')
    .replace(/reaction\.(do|on_clear)/, 'action')
    .replace(/^reaction\.if\..*/, 'reaction.if');
}

const FILES = {
  'tags.yaml': filled(tagsSchema(SOURCE_KINDS), 'tags'),
  'reactions.yaml': filled(reactionsSchema(ACTION_KINDS), 'reactions'),
};
const SECRET_KEYS = KEY_NAMES.filter((key) => settingKey(key).secret);
const ENV = KEY_NAMES.flatMap((key) => [
  `# ${marker(`comment ${key}`)}`,
  `${key}=${marker(`env ${key}`)} # ${marker(`tail ${key}`)}`,
  `#${key}=${marker(`off ${key}`)}`,
  `${key}X=${marker(`misspelt ${key}`)}`,
]);
const EXPECTED = [...SHOWN, ...KEY_NAMES.filter((key) => !SECRET_KEYS.includes(key)).map((key) => `env ${key}`)].sort();

/** Adds comments, and an unknown member to each mapping with fixed names. */
function withStrays(file: unknown): string {
  const document = new Document(file);
  visit(document, {
    Map: (_key, map) => {
      map.commentBefore = marker('comment');
      // Names of sources, tags and keys are shown.
      if (map.has('any')) return;
      map.add({ key: marker('unknown name'), value: marker('unknown value') });
    },
    Scalar: (key, scalar) => {
      if (key === 'value') scalar.comment = marker('comment');
    },
  });
  return document.toString({ lineWidth: 0 });
}

describe('masked configuration', () => {
  it('shows only the listed members, in block and flow style', () => {
    for (const write of [withStrays, (file: unknown) => JSON.stringify(file, null, 1)]) {
      const shown = markersIn(
        maskedTags(write(FILES['tags.yaml'])).text + maskedReactions(write(FILES['reactions.yaml'])).text,
      );
      expect([...shown].sort()).toEqual([...SHOWN].sort());
    }
    const env = markersIn(maskedEnv(ENV.join('\n')).text);
    expect([...env].sort()).toEqual(EXPECTED.filter((path) => path.startsWith('env ')));
  });

  it('keeps names, structure and line numbers', () => {
    const text = withStrays(FILES['tags.yaml']);
    const masked = maskedTags(text).text;
    const members = ({ sources, like }: { sources: { any: object }; like: { any: { any: object } } }) =>
      [sources.any, like.any.any].flatMap((one) => Object.keys(one).slice(0, -1));
    expect(members(parse(masked, { uniqueKeys: false }))).toEqual(members(parse(text)));
    const lineOf = (all: string) => all.split('\n').findIndex((line) => line.includes('tags:'));
    expect(lineOf(masked)).toBe(lineOf(text));
    expect(masked).toContain('mqtt://***@source-mqtt.example.com:1883/***?***');
    expect(maskedReactions('reactions: [{ do: [{ run: [a, "b"] }]').text).toBe('# not valid YAML\n');
  });

  it('keeps valid lines from agent.env, and comments out masked settings', () => {
    const text =
      'POST_INTERVAL=3s # tuned\nCLIENT_SECRET=abc\n#LOG_LEVEL=x\nCLIENT_SECRT=abc\nb64==\nCLIENT_ID_FILE=/x\nWEBHOOK_URL=https://gw/x?t=abc';
    const masked = maskedEnv(text).text;
    expect(masked.split('\n')).toEqual([
      'POST_INTERVAL=3s',
      '#CLIENT_SECRET=*** (masked)',
      ...['#***', '#***', '#***'],
      'CLIENT_ID_FILE=/x',
      '#WEBHOOK_URL=https://gw/x?*** (masked)',
    ]);
    const problems = new Problems();
    expect([...parseEnvFile(masked, 'agent.env', AGENT_ENV_KEYS, problems).lines.keys()]).toHaveLength(2);
    expect(problems.list).toEqual([]);
  });
});

describe('doctor --bundle', () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'tagferry-bundle-'));
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  it('contains no configuration text except the listed members', async () => {
    const config = join(folder, 'config');
    mkdirSync(join(config, 'tags.d'), { recursive: true });
    for (const [name, file] of Object.entries(FILES)) writeFileSync(join(config, name), withStrays(file));
    writeFileSync(join(config, 'tags.d', 'more.yaml'), withStrays(FILES['tags.yaml']));
    writeFileSync(join(config, 'agent.env'), ENV.join('\n'));
    const file = join(folder, 'support.tar.gz');
    const { stderr } = await runVerb(['doctor', '--config', config, '--bundle', file], {
      STATE_DIR: join(folder, 'state'),
    });
    expect(statSync(file, { throwIfNoEntry: false })?.size, stderr).toBeGreaterThan(0);
    execFileSync('tar', ['-xzf', file, '-C', folder]);
    const bundle = join(folder, 'tagferry-doctor');
    const names = (readdirSync(bundle, { recursive: true }) as string[]).filter((name) =>
      statSync(join(bundle, name)).isFile(),
    );
    expect(names).toEqual(
      expect.arrayContaining(['doctor.json', 'config/agent.env', 'config/tags.yaml', 'config/tags.d/more.yaml']),
    );
    const shown = markersIn(names.map((name) => readFileSync(join(bundle, name), 'utf8')).join('\n'));
    expect([...shown].sort()).toEqual(EXPECTED);
  });
});
