import type { Command } from 'commander';
import { type Clock, systemClock } from '../base/clock.ts';
import { PlatformError, UsageError } from '../base/errors.ts';
import { plain } from '../base/foreign-text.ts';
import { table } from '../base/table.ts';
import {
  type DisplayLabelsV1,
  type DisplayLabelsV2,
  displayLabelsPath,
  type LabelledCollection,
} from '../contract/labels.ts';
import { permitableOf } from '../contract/permission-words.ts';
import { DisplayLabels } from '../platform/resources/display-labels.ts';
import { heedDeprecatedForm } from './person/deprecated-form.ts';
import { labelsInFile, labelsInWords, MEMBERS_TEXT, namesInWords } from './person/label-words.ts';
import { nameOfPermitable } from './person/named-objects.ts';
import { changingVerb, inPersonContext, type PersonContext, type PersonFlags } from './person/person-context.ts';

/** Platform 4.4 leaves open whether a change replaces what it does not name. */
const ASSUMPTION = 'Labels and members that the change does not name should stay; the platform does not document it.';
const OBJECT = 'Asset/881 or Instrumentation/4711';

interface Labelled {
  collection: LabelledCollection;
  id: number;
  name: string;
}

/**
 * Adds `tagferry labels` (platform 2.6, 4.4): how value keys are shown. The document has no call that reads labels and does not say
 * what a change does to labels and members that it does not name, so every change is shown and confirmed first.
 */
export function define(program: Command, clock: Clock = systemClock): void {
  const labels = program.command('labels').description('display labels of value keys: set, hide');

  labels
    .command('ls')
    .alias('list')
    .description('report that the platform has no call that reads labels')
    .argument('[object]', OBJECT)
    .allowUnknownOption()
    .action(() => {
      throw new PlatformError('the platform has no call that reads display labels', {
        code: 'platform.no_such_call',
        hint: 'View the object in the web application. `tagferry labels change` prints the labels that the platform returns.',
      });
    });

  confirmedVerb(labels.command('change').aliases(['grant', 'set']))
    .description('set labels, for example `labels change Asset/881 flow name="Inlet flow" precision=2`')
    .argument('<object>', OBJECT)
    .argument('[words...]', `a value key, then members as name=value (${MEMBERS_TEXT}); with --v1 key=label`)
    .option('--file <path>', 'JSON of several keys, `-` for standard input: {"flow":{"name":"Inlet flow"}}')
    .option('--v1', 'the deprecated form, key=label alone; warns with its sunset date')
    .action(async (object: string, words: string[], flags: PersonFlags & { file?: string }) => {
      const labelled = labelledOf(object);
      if (flags.v1) {
        const v2Command = `tagferry labels change ${labelled.name} <key> name=<label>`;
        await inPersonContext(program, flags, clock, async (context) => {
          heedDeprecatedForm('display-labels', v2Command, clock);
          await send(context, labelled, { action: 'change', version: 1, body: namesInWords(words) });
        });
        return;
      }
      const body = flags.file === undefined ? labelsInWords(words) : labelsInFile(flags.file, words);
      await inPersonContext(program, flags, clock, (context) =>
        send(context, labelled, { action: 'change', version: 2, body }),
      );
    });

  confirmedVerb(labels.command('take').aliases(['hide', 'rm']))
    .description('hide keys (is_visible=false): the API cannot remove a label')
    .argument('<object>', OBJECT)
    .argument('<keys...>', 'value keys')
    .action(async (object: string, keys: string[], flags: PersonFlags) => {
      const labelled = labelledOf(object);
      const body: DisplayLabelsV2 = Object.assign({}, ...keys.map((key) => labelsInWords([key, 'is_visible=false'])));
      await inPersonContext(program, flags, clock, (context) =>
        send(context, labelled, { action: 'take', version: 2, body }),
      );
    });
}

type LabelChange = { action: string } & ({ version: 1; body: DisplayLabelsV1 } | { version: 2; body: DisplayLabelsV2 });

function confirmedVerb(command: Command): Command {
  return changingVerb(command).option('--yes', 'do not ask');
}

/** Shows the request, asks, and sends it. */
async function send(context: PersonContext, { collection, id, name }: Labelled, change: LabelChange): Promise<void> {
  const { action, version, body } = change;
  const request = { method: 'PATCH', path: displayLabelsPath(version, collection, id), body };
  const keys = plain(Object.keys(body).join(', '));
  const question = `${ASSUMPTION}\nSend this change of ${name} (${keys})? If not, nothing is sent.`;
  if (!(await context.sure(question, request))) return;
  const resource = new DisplayLabels(context.writer);
  if (version === 1) await resource.changeV1(collection, id, body);
  const returned = version === 2 ? await resource.change(collection, id, body) : undefined;
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
  throw new UsageError(`${name} has no display labels`, `Write ${OBJECT}.`);
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
