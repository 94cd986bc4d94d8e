import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { reactionsSchema } from '../../src/config/reactions-schema.ts';
import { SETTING_CHAPTERS } from '../../src/config/setting-keys.ts';
import type { SettingEntry } from '../../src/config/settings/entry.ts';
import { tagsSchema } from '../../src/config/tags-schema.ts';
import { ACTION_KINDS } from '../../src/reactions/actions.ts';
import { SOURCE_KINDS } from '../../src/sources/kinds.ts';
import { ENV_HEAD, formWords } from '../setting-words.ts';
import { roff, sentence } from './roff.ts';

/**
 * `man-files.ts ROOT VERSION DATE FOLDER` writes the manual pages of the three configuration files, from the settings
 * and the schemas that `tagferry check` uses.
 */
const [root, version, date, folder] = process.argv.slice(2) as [string, string, string, string];

/** The part of JSON Schema that the pages use. */
interface Schema {
  type?: string | readonly string[];
  title?: string;
  description?: string;
  default?: unknown;
  enum?: readonly unknown[];
  const?: unknown;
  examples?: readonly unknown[];
  required?: readonly string[];
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  items?: Schema;
}

interface Page {
  name: string;
  what: string;
  synopsis: readonly string[];
  body: readonly string[];
}

for (const { name, what, synopsis, body } of [agentEnv(), tagsYaml(), reactionsYaml()]) {
  const others = ['agent.env', 'tags.yaml', 'reactions.yaml'].map((file) => `tagferry-${file}`);
  const lines = [
    `.TH ${roff(name.toUpperCase())} 5 "${date}" "tagferry ${version}" "File Formats"`,
    // Do not hyphenate names or stretch lines.
    '.nh',
    '.ad l',
    '.SH NAME',
    `${roff(name)} \\- ${roff(what)}`,
    '.SH SYNOPSIS',
    ...synopsis.flatMap((file) => [`.I ${roff(file)}`, '.br']).slice(0, -1),
    ...body,
    '.SH SEE ALSO',
    ['.BR tagferry (1)', ...others.filter((other) => other !== name).map((other) => `.BR ${roff(other)} (5)`)].join(
      ',\n',
    ),
    '.PP',
    '.I /usr/share/doc/tagferry/',
  ];
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, `${name}.5`), `${lines.join('\n')}\n`);
}
process.exit();

/** One section per chapter. */
function agentEnv(): Page {
  return {
    name: 'tagferry-agent.env',
    what: 'settings of the tagferry agent',
    synopsis: ['/etc/tagferry/agent.env', '/etc/tagferry/agent.env.d/*.env'],
    body: [
      '.SH DESCRIPTION',
      ...ENV_HEAD.map(roff),
      ...SETTING_CHAPTERS.flatMap(({ title, about, entries }) => [
        `.SH ${roff(title.toUpperCase())}`,
        ...(about === undefined ? [] : [roff(about)]),
        ...Object.entries(entries).flatMap(([key, entry]) => settingLines(key, entry)),
      ]),
    ],
  };
}

/** Returns the text of a setting, its form and its default. */
function settingLines(
  key: string,
  { text, form, required, default: usual, otherwise, appliedBy }: SettingEntry,
): string[] {
  const facts = [
    `form: ${formWords(form)}`,
    `applied by a ${appliedBy}`,
    ...(required ? ['required'] : []),
    ...(otherwise === undefined ? [] : [`if not set: ${otherwise}`]),
    ...(usual === undefined ? [] : [`default ${usual}`]),
  ];
  return ['.TP', `.BR ${roff(key)} =`, roff(text), '.br', sentence(facts.join('; '))];
}

function tagsYaml(): Page {
  const schema = tagsSchema(SOURCE_KINDS) as Schema;
  const { sources, like, tags } = schema.properties!;
  const tag = itemOf(tags!);
  const value = itemOf(tag.properties!.values!);
  const { writable } = value.properties!;
  const { max_rate: rate } = writable!.properties!;
  return {
    name: 'tagferry-tags.yaml',
    what: 'tagferry tags and the sources of their values',
    synopsis: ['/etc/tagferry/tags.yaml', '/etc/tagferry/tags.d/*.yaml'],
    body: [
      '.SH DESCRIPTION',
      roff('A mapping with the members sources, like and tags.'),
      roff('Relative paths are resolved against the configuration folder. Durations: 500ms, 10s, 5m, 24h, 7d.'),
      ...section('tags', tags!, tag),
      ...section('values of a tag', tag.properties!.values!, value),
      ...section('writable', writable!, writable!),
      ...section('max_rate', rate!, rate!),
      ...section('sources', sources!, itemOf(sources!)),
      '.SH LIKE',
      sentence(like!.description!),
      roff('Tag templates, with the same members as a tag.'),
      ...example('tags.yaml'),
    ],
  };
}

function reactionsYaml(): Page {
  const { reactions } = (reactionsSchema(ACTION_KINDS) as Schema).properties!;
  const reaction = reactions!.items!;
  const { write } = reaction.properties!.do!.items!.properties!;
  return {
    name: 'tagferry-reactions.yaml',
    what: 'tagferry reactions to webhook events and local values',
    synopsis: ['/etc/tagferry/reactions.yaml', '/etc/tagferry/reactions.d/*.yaml'],
    body: [
      '.SH DESCRIPTION',
      roff('A mapping with the member reactions, which contains a list.'),
      roff('Files in reactions.d/ contain further reactions. Names must be unique across all files.'),
      ...section('a reaction', reactions!, reaction),
      ...section('actions', reaction.properties!.do!, reaction.properties!.do!.items!),
      ...section('write', write!, write!),
      ...example('reactions.yaml'),
    ],
  };
}

function itemOf(mapping: Schema): Schema {
  if (typeof mapping.additionalProperties !== 'object') throw new Error(`${mapping.title} has no members`);
  return mapping.additionalProperties;
}

function section(title: string, whole: Schema, { properties, required = [] }: Schema): string[] {
  const lines = [`.SH ${roff(title.toUpperCase())}`, ...(whole.description ? [sentence(whole.description)] : [])];
  for (const [name, member] of Object.entries(properties ?? {})) {
    lines.push('.TP', `.B ${roff(name)}`, sentence(member.description ?? member.title ?? name));
    const facts = memberFacts(member, required.includes(name));
    if (facts !== '') lines.push(roff(facts));
  }
  return lines;
}

function memberFacts(member: Schema, required: boolean): string {
  const text = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value));
  const facts = [
    ...(required ? ['Required.'] : []),
    ...(member.enum ? [`One of ${member.enum.map(text).join(', ')}.`] : []),
    ...(member.default === undefined ? [] : [`Default: ${text(member.default)}.`]),
    ...(member.examples && member.const === undefined ? [`For example ${member.examples.map(text).join(' or ')}`] : []),
  ];
  return facts.join(' ');
}

/** Returns the shipped file as an example. */
function example(file: string): string[] {
  const text = readFileSync(join(root, 'config', file), 'utf8').trim();
  return ['.SH EXAMPLE', '.EX', ...text.split('\n').map((line) => roff(line) || '.sp'), '.EE'];
}
