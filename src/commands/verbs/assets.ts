import { lstatSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import type { SchemaObject } from 'ajv';
import { type Command, Option } from 'commander';
import type { ObjectLine, ObjectListing } from '../../access/access-table.ts';
import { counted, countText, timeText } from '../../base/amounts.ts';
import { jsonText, plain } from '../../base/foreign-text.ts';
import { table } from '../../base/table.ts';
import { configurationDirectory } from '../../config/configuration.ts';
import { tagsSchema } from '../../config/tags-schema.ts';
import { listObjects } from '../../control/event-routes.ts';
import { readStoppedObjects } from '../../control/stopped-inbox.ts';
import { SOURCE_KINDS } from '../../sources/kinds.ts';
import { addShippedSchemas, writeWhole } from '../configuration/files.ts';
import { type AgentAddress, agentOf, askAgent, configOf, orStopped } from '../connection/control-client.ts';
import { positiveInteger } from '../terminal/input.ts';
import { print } from '../terminal/output.ts';

interface Flags {
  limit: string;
  json?: boolean;
  schema?: boolean;
  complete?: string | true;
}

/** Larger schemas make editors slow. */
const MAX_SCHEMA_IDS = 2_000;
const MAX_COMPLETED = 500;

/** Adds `tagferry assets`, which can also read the files of a stopped agent. */
export function define(program: Command): void {
  program
    .command('assets')
    .description('list known assets, instrumentations and nodes, and find IDs by tag, serial number or name')
    .argument('[text]', 'part of an ID, serial number, tag or name')
    .option('--limit <n>', 'maximum number of objects', '100')
    .option('--json', 'print the objects as JSON')
    .option(
      '--schema',
      'write known IDs to schema/tags.schema.json in the configuration folder, for completion in editors',
    )
    .addOption(new Option('--complete [kind]', 'words for shell completion').hideHelp())
    .action(async (text: string | undefined, flags: Flags) => {
      const config = configOf(program);
      const place = agentOf(program);
      const listed = (limit: number) => knownObjects(place, text, limit);
      if (flags.complete !== undefined)
        return print(completions((await listed(MAX_COMPLETED)).objects, flags.complete));
      if (flags.schema) {
        const directory = configurationDirectory(config, process.env);
        return print(await writeKnownIds(directory, (await listed(MAX_SCHEMA_IDS)).objects));
      }
      const listing = await listed(positiveInteger('--limit', flags.limit));
      print(flags.json ? jsonText(listing) : listText(listing, text));
    });
}

/** Returns known objects that match a text, most recently seen first. Throws `inbox.absent` if no agent has run. */
export function knownObjects(place: AgentAddress, text: string | undefined, limit: number): Promise<ObjectListing> {
  const query = { text, limit };
  return orStopped(
    () => askAgent<ObjectListing>(place, 'assets/ls', query),
    () => readStoppedObjects(place.stateDir, (objects) => listObjects(objects, query)),
  );
}

function listText({ objects, total }: ObjectListing, text = ''): string {
  if (total === 0 && text !== '') return 'No matches.';
  if (total === 0) return 'No objects known. The agent learns about objects from access events and accepted posts.';
  const rows = objects.map((one) => [
    one.kind,
    String(one.id),
    plain(one.serial_number ?? '') || '-',
    plain(one.tag ?? '') || '-',
    plain(one.name ?? '') || '-',
    one.state,
    timeText(one.last_seen),
  ]);
  const shown = table([['kind', 'id', 'serial number', 'tag', 'name', 'state', 'last seen (UTC)'], ...rows]);
  if (objects.length === total) return shown;
  return `${shown}\n\n${countText(objects.length)} of ${counted(total, 'object')} shown. Narrow the search, or increase --limit.`;
}

/**
 * Prints one word per line, followed by a tab and a description. Omits words with white space, because not every shell
 * completes them.
 */
function completions(objects: readonly ObjectLine[], kind: string | true): string {
  const lines = objects.flatMap((one) => {
    if (kind !== true && one.kind !== kind) return [];
    const names = namesOf(one);
    const description = [one.kind, ...names, ...(one.state === 'lost' ? ['(lost)'] : [])].join(' ');
    const words = kind === true ? [String(one.id), ...names.filter((name) => !/\s/.test(name))] : [String(one.id)];
    return words.map((word) => `${word}\t${description}`);
  });
  return lines.join('\n');
}

function namesOf({ serial_number, tag, name }: ObjectLine): string[] {
  return [serial_number, tag, name].filter((one) => one !== null).map(plain);
}

/**
 * Writes `schema/tags.schema.json` to the configuration folder. Replaces a link to the packaged schemas with a separate
 * folder. Returns a sentence for the operator. Throws `setup.unwritable` if writing fails.
 */
export async function writeKnownIds(directory: string, objects: readonly ObjectLine[]): Promise<string> {
  const folder = join(directory, 'schema');
  if (lstatSync(folder, { throwIfNoEntry: false })?.isSymbolicLink()) unlinkSync(folder);
  await addShippedSchemas(directory);
  const path = join(folder, 'tags.schema.json');
  await writeWhole(path, `${JSON.stringify(schemaWithIds(objects), null, 2)}\n`, 0o644);
  const count = (kind: string) => objects.filter((one) => one.kind === kind).length;
  return `Wrote ${path}: ${counted(count('asset'), 'asset')}, ${counted(count('instrumentation'), 'instrumentation')}.`;
}

/** Editors offer known IDs with their names. Unknown IDs remain valid. */
function schemaWithIds(objects: readonly ObjectLine[]): SchemaObject {
  const schema = structuredClone(tagsSchema(SOURCE_KINDS));
  const { properties } = schema.properties.tags.additionalProperties;
  for (const kind of ['asset', 'instrumentation']) {
    const known = objects.filter((one) => one.kind === kind);
    if (known.length === 0) continue;
    const { examples: _, ...any } = properties[kind];
    const ids = known.map((one) => ({ const: one.id, description: descriptionOf(one) }));
    properties[kind] = { ...any, anyOf: [...ids, { type: 'integer' }] };
  }
  return schema;
}

function descriptionOf({ serial_number, tag, name, state }: ObjectLine): string {
  const names = [
    ...(serial_number === null ? [] : [`serial number ${plain(serial_number)}`]),
    ...(tag === null ? [] : [`tag ${plain(tag)}`]),
    ...(name === null ? [] : [plain(name)]),
  ];
  return [...names, state].join(', ');
}
