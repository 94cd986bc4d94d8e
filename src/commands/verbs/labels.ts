import { closeSync, openSync, readSync } from 'node:fs';
import type { Command } from 'commander';
import { type Clock, systemClock } from '../../base/clock.ts';
import { codeOf, UsageError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { table } from '../../base/table.ts';
import {
  DISPLAY_LABEL_MEMBERS,
  type DisplayLabel,
  type DisplayLabelsV1,
  type DisplayLabelsV2,
  displayLabelsPath,
  type LabelledCollection,
} from '../../contract/labels.ts';
import { permitableOf } from '../../contract/permission-words.ts';
import { KEY_PATTERN } from '../../contract/values.ts';
import { changeDisplayLabels } from '../../platform/resources/display-labels.ts';
import { nameOfPermitable } from '../person/named-objects.ts';
import {
  addUnlistable,
  changingVerb,
  inPersonContext,
  type PersonContext,
  type PersonFlags,
  warnOfDeprecation,
} from '../person/person-context.ts';

/** Platform section 4.4 does not specify whether a change removes labels and members that it does not contain. */
const ASSUMPTION = 'Other labels and members are expected to stay unchanged, but the platform does not document it.';
const OBJECT = 'Asset/881 or Instrumentation/4711';
const MEMBERS_TEXT = Object.keys(DISPLAY_LABEL_MEMBERS).join(', ');
const MAX_FILE_BYTES = 1024 * 1024;

interface Labelled {
  collection: LabelledCollection;
  id: number;
  name: string;
}

/**
 * Adds `tagferry labels` (platform 2.6, 4.4). The platform documents neither a call that reads labels, nor the effect
 * of a change on labels that it does not contain. The user must therefore confirm each change.
 */
export function define(program: Command, clock: Clock = systemClock): void {
  const labels = program.command('labels').description('set and hide display labels of value keys');

  addUnlistable(
    labels,
    'display labels',
    '[object]',
    OBJECT,
    'View the object in the web application. `tagferry labels change` prints the labels that the platform returns.',
  );

  confirmedVerb(labels.command('change').aliases(['grant', 'set']))
    .description('set labels, for example `labels change Asset/881 flow name="Inlet flow" precision=2`')
    .argument('<object>', OBJECT)
    .argument('[words...]', `a value key, then members as name=value (${MEMBERS_TEXT}); with --v1 key=label`)
    .option('--file <path>', 'JSON file with several keys, - for standard input: {"flow":{"name":"Inlet flow"}}')
    .option('--v1', 'use the deprecated v1 API with key=label and print its sunset date')
    .action(async (object: string, args: string[], flags: PersonFlags & { file?: string }) => {
      const labelled = labelledOf(object);
      if (flags.v1) {
        const v2Command = `tagferry labels change ${labelled.name} <key> name=<label>`;
        await inPersonContext(program, flags, clock, async (context) => {
          warnOfDeprecation('display-labels', v2Command, clock);
          await send(context, labelled, { action: 'change', version: 1, body: namesInArguments(args) });
        });
        return;
      }
      const body = flags.file === undefined ? labelsInArguments(args) : labelsInFile(flags.file, args);
      await inPersonContext(program, flags, clock, (context) =>
        send(context, labelled, { action: 'change', version: 2, body }),
      );
    });

  confirmedVerb(labels.command('take').aliases(['hide', 'rm']))
    .description('hide labels (is_visible=false), because the API cannot remove them')
    .argument('<object>', OBJECT)
    .argument('<keys...>', 'value keys')
    .action(async (object: string, keys: string[], flags: PersonFlags) => {
      const labelled = labelledOf(object);
      const body: DisplayLabelsV2 = Object.assign(
        {},
        ...keys.map((key) => labelsInArguments([key, 'is_visible=false'])),
      );
      await inPersonContext(program, flags, clock, (context) =>
        send(context, labelled, { action: 'take', version: 2, body }),
      );
    });
}

type LabelChange = { action: string } & ({ version: 1; body: DisplayLabelsV1 } | { version: 2; body: DisplayLabelsV2 });

function confirmedVerb(command: Command): Command {
  return changingVerb(command).option('--yes', 'skip the confirmation');
}

/** Shows the request, asks for confirmation, and sends it. */
async function send(context: PersonContext, { collection, id, name }: Labelled, change: LabelChange): Promise<void> {
  const { action, version, body } = change;
  const request = { method: 'PATCH', path: displayLabelsPath(version, collection, id), body };
  const keys = plain(Object.keys(body).join(', '));
  const question = `${ASSUMPTION}\nChange the labels of ${name} (${keys})? If not, nothing is sent.`;
  if (!(await context.confirm(question, request))) return;
  const returned = await changeDisplayLabels(context.writer, collection, id, change);
  const done = `Labels of ${name} changed: ${keys}.`;
  context.done(returned === undefined ? done : `${done}\n${labelsText(returned)}`, {
    action,
    sent: body,
    ...(returned === undefined ? {} : { labels: returned }),
  });
}

function labelledOf(text: string): Labelled {
  const { type, id } = permitableOf(text);
  const name = nameOfPermitable({ type, id });
  if (type === 'Asset') return { collection: 'assets', id, name };
  if (type === 'Instrumentation') return { collection: 'instrumentations', id, name };
  throw new UsageError(`${name} has no display labels`, `Use ${OBJECT}.`);
}

function labelsText(labels: DisplayLabelsV2): string {
  const rows = Object.entries(labels).map(([key, label]) => [
    plain(key),
    plain(label.name ?? ''),
    ...['preferred_unit', 'precision', 'priority', 'is_visible', 'is_primary'].map((member) =>
      plain(String(label[member as keyof typeof label] ?? '')),
    ),
  ]);
  return table([['key', 'name', 'unit', 'precision', 'priority', 'visible', 'primary'], ...rows]);
}

/** Parses one key: `flow name="Inlet flow" precision=2`. */
function labelsInArguments(args: readonly string[]): DisplayLabelsV2 {
  const [key = '', ...rest] = args;
  checkKey(key);
  if (rest.length === 0)
    throw new UsageError(`members of ${key} are missing`, `Specify name="…" or other members: ${MEMBERS_TEXT}.`);
  const label = Object.fromEntries(
    rest.map((word) => {
      const { name, value } = assignment(word);
      return [name, memberValue(name, value)];
    }),
  );
  return { [key]: label as DisplayLabel };
}

/** Parses v1 labels: `flow="Inlet flow" temperature=…`. */
function namesInArguments(args: readonly string[]): DisplayLabelsV1 {
  if (args.length === 0) throw new UsageError('labels are missing', 'Use key=label.');
  return Object.fromEntries(
    args.map((word) => {
      const { name, value } = assignment(word);
      checkKey(name);
      return [name, value];
    }),
  );
}

/** Parses a JSON file with several keys. Throws `UsageError` if the file is invalid. */
function labelsInFile(path: string, args: readonly string[]): DisplayLabelsV2 {
  if (args.length > 0) throw new UsageError('--file and labels on the command line are mutually exclusive');
  let body: unknown;
  try {
    body = JSON.parse(readBounded(path));
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError(codeOf(error) ? `cannot read ${path} (${codeOf(error)})` : `${path} is not JSON`);
  }
  if (!isObject(body))
    throw new UsageError(`${path} must contain a JSON object`, 'Use an object such as {"flow":{"name":"Inlet flow"}}.');
  for (const [key, label] of Object.entries(body)) {
    checkKey(key);
    if (!isObject(label))
      throw new UsageError(`${key} must be an object`, 'Use an object such as {"flow":{"name":"Inlet flow"}}.');
    for (const [name, value] of Object.entries(label)) checkMember(name, value, `${key}.${name}`);
  }
  return body as DisplayLabelsV2;
}

function assignment(word: string): { name: string; value: string } {
  const at = word.indexOf('=');
  if (at > 0) return { name: word.slice(0, at), value: word.slice(at + 1) };
  throw new UsageError(`${JSON.stringify(word)} must have the form name=value`, 'For example: name="Inlet flow".');
}

function memberValue(name: string, text: string): string | number | boolean {
  const kind = (DISPLAY_LABEL_MEMBERS as Record<string, string | undefined>)[name];
  const value =
    kind === 'string'
      ? text
      : kind === 'boolean'
        ? { true: true, false: false }[text]
        : text === ''
          ? undefined
          : Number(text);
  checkMember(name, value, name);
  return value as string | number | boolean;
}

function checkMember(name: string, value: unknown, place: string): void {
  const kind = Object.hasOwn(DISPLAY_LABEL_MEMBERS, name)
    ? DISPLAY_LABEL_MEMBERS[name as keyof DisplayLabel]
    : undefined;
  if (kind === undefined) throw new UsageError(`${place} is not a label member`, `Members: ${MEMBERS_TEXT}.`);
  const fits =
    kind === 'integer'
      ? Number.isSafeInteger(value)
      : kind === 'number'
        ? Number.isFinite(value)
        : typeof value === kind;
  if (!fits)
    throw new UsageError(
      `${place} must be ${kind === 'boolean' ? 'true or false' : kind === 'integer' ? 'an integer' : `a ${kind}`}`,
    );
}

function checkKey(key: string): void {
  if (!KEY_PATTERN.test(key)) {
    throw new UsageError(`${JSON.stringify(key)} is not a value key`, 'Use letters, digits, `.`, `-` and `_`.');
  }
}

function readBounded(path: string): string {
  const descriptor = path === '-' ? 0 : openSync(path, 'r');
  try {
    const chunks: Buffer[] = [];
    let size = 0;
    for (;;) {
      const chunk = Buffer.alloc(65_536);
      const count = readSync(descriptor, chunk, 0, chunk.length, null);
      if (count === 0) return Buffer.concat(chunks).toString('utf8');
      size += count;
      if (size > MAX_FILE_BYTES) throw new UsageError(`${path} is larger than 1 MiB`);
      chunks.push(chunk.subarray(0, count));
    }
  } finally {
    if (descriptor !== 0) closeSync(descriptor);
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
