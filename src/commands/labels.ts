import type { Command } from 'commander';
import { type Clock, systemClock } from '../base/clock.ts';
import { UsageError } from '../base/errors.ts';
import { plain } from '../base/foreign-text.ts';
import { table } from '../base/table.ts';
import type { DisplayLabelsV2, LabelledCollection } from '../contract/labels.ts';
import { permitableOf } from '../contract/permission-words.ts';
import { DisplayLabels } from '../platform/resources/display-labels.ts';
import { heedDeprecatedForm } from './person/deprecated-form.ts';
import { labelsInFile, labelsInWords, MEMBERS_TEXT, namesInWords } from './person/label-words.ts';
import { nameOfPermitable } from './person/named-objects.ts';
import { changingVerb, inPersonContext, type PersonFlags, personVerb } from './person/person-context.ts';

const OBJECT = 'Asset/881 or Instrumentation/4711';

interface Labelled {
  collection: LabelledCollection;
  id: number;
  name: string;
}

/** Adds `tagferry labels` (platform 2.6, 4.4): how value keys are shown. */
export function define(program: Command, clock: Clock = systemClock): void {
  const labels = program.command('labels').description('display labels of value keys: list, set, hide');

  personVerb(labels.command('ls').alias('list'))
    .description('the labels of an object, by a change of nothing: the API has no call that only reads them')
    .argument('<object>', OBJECT)
    .action(async (object: string, flags: PersonFlags) => {
      const { collection, id, name } = labelledOf(object);
      await inPersonContext(program, flags, clock, async ({ reader, show }) => {
        const found = (await new DisplayLabels(reader).change(collection, id, {})) ?? {};
        show(labelsText(found, name), found);
      });
    });

  changingVerb(labels.command('change').aliases(['grant', 'set']))
    .description('set labels: `labels change Asset/881 flow name="Inlet flow" precision=2`; other members stay')
    .argument('<object>', OBJECT)
    .argument('[words...]', `a value key, then members as name=value (${MEMBERS_TEXT}); with --v1 key=label`)
    .option('--file <path>', 'JSON of several keys, `-` for standard input: {"flow":{"name":"Inlet flow"}}')
    .option('--v1', 'the deprecated form, key=label alone; warns with its sunset date')
    .action(async (object: string, words: string[], flags: PersonFlags & { file?: string }) => {
      const { collection, id, name } = labelledOf(object);
      if (flags.v1) {
        await inPersonContext(program, flags, clock, async ({ writer, done }) => {
          heedDeprecatedForm('display-labels', `tagferry labels change ${name} <key> name=<label>`, clock);
          const body = namesInWords(words);
          await new DisplayLabels(writer).changeV1(collection, id, body);
          done(`Labels of ${name} are set: ${plain(Object.keys(body).join(', '))}.`, {
            action: 'change',
            labels: body,
          });
        });
        return;
      }
      const body = flags.file === undefined ? labelsInWords(words) : labelsInFile(flags.file, words);
      await inPersonContext(program, flags, clock, async ({ writer, done }) => {
        const answer = await new DisplayLabels(writer).change(collection, id, body);
        const facts = { action: 'change', sent: body, ...(answer === undefined ? {} : { labels: answer }) };
        done(`Labels of ${name} are set: ${plain(Object.keys(body).join(', '))}.`, facts);
      });
    });

  changingVerb(labels.command('take').aliases(['hide', 'rm']))
    .description('hide keys (is_visible=false): the API cannot remove a label')
    .argument('<object>', OBJECT)
    .argument('<keys...>', 'value keys')
    .option('--yes', 'do not ask')
    .action(async (object: string, keys: string[], flags: PersonFlags) => {
      const { collection, id, name } = labelledOf(object);
      const body: DisplayLabelsV2 = Object.assign({}, ...keys.map((key) => labelsInWords([key, 'is_visible=false'])));
      await inPersonContext(program, flags, clock, async ({ writer, sure, done }) => {
        if (!(await sure(`Hide ${plain(keys.join(', '))} of ${name}?`))) return;
        await new DisplayLabels(writer).change(collection, id, body);
        done(`Hidden: ${plain(keys.join(', '))} of ${name}.`, { action: 'take', sent: body });
      });
    });
}

function labelledOf(text: string): Labelled {
  const { type, id } = permitableOf(text);
  const name = nameOfPermitable({ type, id });
  if (type === 'Asset') return { collection: 'assets', id, name };
  if (type === 'Instrumentation') return { collection: 'instrumentations', id, name };
  throw new UsageError(`${name} has no display labels`, `Write ${OBJECT}.`);
}

function labelsText(labels: DisplayLabelsV2, name: string): string {
  const rows = Object.entries(labels).map(([key, label]) => [
    plain(key),
    plain(label.name ?? ''),
    ...['preferred_unit', 'precision', 'priority', 'is_visible', 'is_primary'].map((member) =>
      plain(String(label[member as keyof typeof label] ?? '')),
    ),
  ]);
  if (rows.length === 0) return `The platform tells no labels of ${name}.`;
  return table([['key', 'name', 'unit', 'precision', 'priority', 'visible', 'primary'], ...rows]);
}
