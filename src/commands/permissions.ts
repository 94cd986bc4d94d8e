import type { Command } from 'commander';
import { type Clock, systemClock } from '../base/clock.ts';
import { UsageError } from '../base/errors.ts';
import { plain } from '../base/foreign-text.ts';
import { permissionTypesOf, permitableOf } from '../contract/permission-words.ts';
import { PERMISSION_TYPES } from '../contract/permissions.ts';
import { allEntries } from '../platform/pages.ts';
import { PermissionsV2 } from '../platform/resources/permissions-v2.ts';
import { explain } from './person/explain.ts';
import { explanationText } from './person/explanation-text.ts';
import { assignableV2Of, emailOf, nameOfAssignable, nameOfPermitable } from './person/named-objects.ts';
import {
  foundPermission,
  permissionRow,
  permissionTable,
  permissionToChange,
  typesText,
} from './person/permission-record.ts';
import * as v1 from './person/permissions-v1-form.ts';
import { changingVerb, inPersonContext, type PersonFlags, personVerb } from './person/person-context.ts';

const WHO = 'e-mail address, or usergroup/40; with --v1 user/6 or usergroup/40';
const OBJECT = 'for example Asset/881, Instrumentation/4711, Node/20';
const TYPES = `some of ${PERMISSION_TYPES.join(', ')}, or all`;
const V1 = 'the deprecated form; warns with its sunset date';

interface ExplainFlags extends PersonFlags {
  instrumentation: number[];
  node: number[];
  parent: number[];
}

/** Adds `tagferry permissions` (platform 2.2, 4.2): v2, with `--v1` the deprecated form. */
export function define(program: Command, clock: Clock = systemClock): void {
  const permissions = program
    .command('permissions')
    .description('who may see and do what: list, grant, change, take away');

  personVerb(permissions.command('ls').alias('list'))
    .description('the permissions on an object')
    .argument('<object>', OBJECT)
    .option('--v1', V1)
    .action(async (object: string, flags: PersonFlags) => {
      const permitable = permitableOf(object);
      await inPersonContext(program, flags, clock, async (context) => {
        if (flags.v1) return await v1.list(context, permitable);
        const records = await allEntries(new PermissionsV2(context.reader).list(permitable));
        const rows = records.map((one) => permissionRow({ permitable, ...one }));
        const none = `Nobody has a permission on ${nameOfPermitable(permitable)} itself.`;
        context.show(rows.length === 0 ? none : permissionTable(rows), records);
      });
    });

  personVerb(permissions.command('show'))
    .description('one permission by its id')
    .argument('<id>', 'id as `permissions ls` shows it')
    .option('--v1', V1)
    .action(async (id: string, flags: PersonFlags) => {
      if (flags.v1) {
        return await inPersonContext(program, flags, clock, (context) => v1.show(context, v1.idIn([id])));
      }
      const number = idOf(id);
      await inPersonContext(program, flags, clock, async ({ reader, show }) => {
        const record = await new PermissionsV2(reader).read(number);
        show(permissionTable([permissionRow(record)]), record);
      });
    });

  changingVerb(permissions.command('grant'))
    .description('give permissions; the four are disjoint, none implies another')
    .argument('<who>', WHO)
    .argument('<object>', OBJECT)
    .argument('<types...>', TYPES)
    .option('--v1', V1)
    .action(async (who: string, object: string, words: string[], flags: PersonFlags) => {
      const permitable = permitableOf(object);
      const types = permissionTypesOf(words);
      if (flags.v1)
        return await inPersonContext(program, flags, clock, (context) => v1.grant(context, who, permitable, types));
      const assignable = assignableV2Of(who);
      await inPersonContext(program, flags, clock, async ({ writer, done }) => {
        const body = { permission_types: types, assignable, permitable };
        const record = await new PermissionsV2(writer).create(body);
        const sentence = `${plain(who)} has ${typesText(types)} on ${nameOfPermitable(permitable)}.`;
        done(sentence, { action: 'grant', ...body, ...(record === undefined ? {} : { record }) });
      });
    });

  changingVerb(permissions.command('change'))
    .description(
      'replace the whole set of a pair: `change 8 can_read`, or `change anna@example.com Asset/881 can_read`',
    )
    .argument('<what...>', `id, or who and object; then ${TYPES}`)
    .option('--yes', 'do not ask')
    .option('--v1', V1)
    .action(async (words: string[], flags: PersonFlags) => {
      if (flags.v1) throw new UsageError('v1 cannot change a permission', 'Leave out --v1, or grant and take with it.');
      const { which, types } = pairIn(words);
      if (types.length === 0)
        throw new UsageError('no permission is named', `Write ${TYPES}; \`take\` takes all away.`);
      await inPersonContext(program, flags, clock, async (context) => {
        const { writer, sure, done } = context;
        const record = await permissionToChange(context, which);
        const before = `${nameOfAssignable(record.assignable)} has ${typesText(record.permission_types)}`;
        if (!(await sure(`${plain(before)}. Replace that with ${typesText(types)}?`))) return;
        await new PermissionsV2(writer).change(record.id, types);
        const facts = { action: 'change', id: record.id, before: record.permission_types, permission_types: types };
        done(`Permission ${record.id} is now ${typesText(types)}.`, facts);
      });
    });

  changingVerb(permissions.command('take').aliases(['revoke', 'rm']))
    .description('take away: `take 8` all of a pair, `take 8 can_update` only that; or by who and object')
    .argument('<what...>', `id, or who and object; then perhaps ${TYPES}`)
    .option('--yes', 'do not ask')
    .option('--v1', V1)
    .option('--all', 'with --v1: every type of the pair, not only the one that the id stands for')
    .action(async (words: string[], flags: PersonFlags & { all?: boolean }) => {
      if (flags.v1) {
        const id = v1.idIn(words);
        return await inPersonContext(program, flags, clock, (context) => v1.take(context, id, flags.all === true));
      }
      const { which, types } = pairIn(words);
      await inPersonContext(program, flags, clock, async (context) => {
        const { reader, writer, sure, done } = context;
        const record = await (types.length === 0 ? permissionToChange(context, which) : foundPermission(reader, which));
        const taken = types.length === 0 ? record.permission_types : types;
        const left = record.permission_types.filter((type) => !taken.includes(type));
        const object = record.permitable === undefined ? 'it' : nameOfPermitable(record.permitable);
        const from = plain(nameOfAssignable(record.assignable));
        if (!(await sure(`Take ${typesText(taken)} on ${object} from ${from}?`))) return;
        const resource = new PermissionsV2(writer);
        if (left.length === 0) await resource.delete(record.id);
        else await resource.change(record.id, left);
        const kept = left.length === 0 ? 'nothing is left' : `${typesText(left)} is left`;
        done(`Taken from ${from}; ${kept}.`, { action: 'take', id: record.id, taken, permission_types: left });
      });
    });

  personVerb(permissions.command('explain'))
    .description(
      'why does a user see an object: which permissions are direct, which inherited, as far as the API tells',
    )
    .argument('<who>', 'e-mail address')
    .argument('<object>', OBJECT)
    .option('--instrumentation <id>', 'an instrumentation that the asset is assigned to', collected, [])
    .option('--node <id>', 'a node that it is under', collected, [])
    .option('--parent <id>', 'the asset that it is a part of', collected, [])
    .action(async (who: string, object: string, flags: ExplainFlags) => {
      const email = emailOf(who);
      const permitable = permitableOf(object);
      await inPersonContext(program, flags, clock, async ({ reader, settings, show }) => {
        const { instrumentation, node, parent } = flags;
        const known = { instrumentation, node, parent };
        const explanation = await explain(reader, email, permitable, known, settings.directory);
        show(explanationText(explanation), explanation);
      });
    });
}

function collected(text: string, before: number[]): number[] {
  return [...before, idOf(text)];
}

function idOf(text: string): number {
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw new UsageError(`${JSON.stringify(text)} is not an id`, 'Write the number alone.');
}

/** `8 can_read` or `anna@example.com Asset/881 can_read`. */
function pairIn(words: readonly string[]) {
  const [first = '', second, ...rest] = words;
  if (/^\d{1,15}$/.test(first)) return { which: Number(first), types: permissionTypesOf(words.slice(1)) };
  if (second === undefined) {
    throw new UsageError('this names no permission', 'Write its id (`permissions ls` shows it), or who and object.');
  }
  const which = { assignable: assignableV2Of(first), permitable: permitableOf(second) };
  return { which, types: permissionTypesOf(rest) };
}
