import { type Command, Option } from 'commander';
import type { ObjectLine, ObjectListing } from '../access/known-objects.ts';
import { counted, countText, timeText } from '../base/amounts.ts';
import { UsageError } from '../base/errors.ts';
import { jsonText, plain } from '../base/foreign-text.ts';
import { table } from '../base/table.ts';
import { configurationDirectory } from '../config/configuration.ts';
import { listObjects } from '../control/asset-routes.ts';
import { readStoppedObjects } from '../control/stopped-inbox.ts';
import { writeKnownIds } from './assets/known-ids-schema.ts';
import { askDaemon, type DaemonPlace, daemonPlace, orStopped } from './control-client.ts';

interface Flags {
  limit: string;
  json?: boolean;
  schema?: boolean;
  complete?: string | true;
}

/** More branches make editors slow. */
const MAX_SCHEMA_IDS = 2_000;
const MAX_COMPLETED = 500;

/** Adds `tagferry assets`: ids by tag, serial number or name. Works on a stopped agent's files too. */
export function define(program: Command): void {
  program
    .command('assets')
    .description('assets, instrumentations and nodes that this gateway knows; find an id by tag or serial number')
    .argument('[text]', 'part of an id, serial number, tag or name')
    .option('--limit <n>', 'maximum number of objects', '100')
    .option('--json', 'print them as JSON')
    .option('--schema', 'write the known ids into schema/tags.schema.json of the configuration folder, for editors')
    .addOption(new Option('--complete [kind]', 'words for shell completion').hideHelp())
    .action(async (text: string | undefined, flags: Flags) => {
      const { config } = program.opts<{ config?: string }>();
      const place = daemonPlace(config, process.env);
      const listed = (limit: number) => knownObjects(place, text, limit);
      if (flags.complete !== undefined)
        return print(completions((await listed(MAX_COMPLETED)).objects, flags.complete));
      if (flags.schema) {
        const directory = configurationDirectory(config, process.env);
        return print(writeKnownIds(directory, (await listed(MAX_SCHEMA_IDS)).objects));
      }
      const listing = await listed(limitOf(flags.limit));
      print(flags.json ? jsonText(listing) : listText(listing, text));
    });
}

/** Known objects that match, last seen first. Throws `inbox.absent` where no agent ever ran. */
export function knownObjects(place: DaemonPlace, text: string | undefined, limit: number): Promise<ObjectListing> {
  const query = { text, limit };
  return orStopped(
    () => askDaemon<ObjectListing>(place, 'assets/ls', query),
    () => readStoppedObjects(place.stateDir, (objects) => listObjects(objects, query)),
  );
}

function listText({ objects, total }: ObjectListing, text = ''): string {
  if (total === 0 && text !== '') return 'No matches.';
  if (total === 0)
    return 'No objects known. The agent learns them from access events and from posts that the platform accepts.';
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
  return `${shown}\n\n${countText(objects.length)} of ${counted(total, 'object')}. Add a text, or raise --limit.`;
}

/** A word per line, and behind a tab what it names. Words with white space cannot be completed by every shell. */
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

function limitOf(text: string): number {
  if (!/^\d{1,9}$/.test(text) || Number(text) < 1) throw new UsageError('--limit must be a positive integer');
  return Number(text);
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}
