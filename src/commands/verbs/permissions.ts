import type { Command } from 'commander';
import { type Clock, systemClock } from '../../base/clock.ts';
import { PlatformError, UsageError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { table } from '../../base/table.ts';
import { permissionTypesOf, permitableOf } from '../../contract/permission-words.ts';
import {
  type AssignableV2,
  PERMISSION_TYPES,
  type PermissionRecordV1,
  type PermissionRecordV2,
  type PermissionType,
  type Permitable,
} from '../../contract/permissions.ts';
import type { PlatformClient } from '../../platform/client.ts';
import {
  changePermission,
  createPermission,
  deletePermission,
  listPermissions,
  readPermission,
} from '../../platform/resources/permissions.ts';
import { explain, explanationText } from '../person/explain.ts';
import {
  assignableV1Of,
  assignableV2Of,
  emailOf,
  isSameAssignable,
  NOT_REPORTED,
  nameOfAssignable,
  nameOfPermitable,
} from '../person/named-objects.ts';
import {
  changingVerb,
  inPersonContext,
  type PersonContext,
  type PersonFlags,
  personVerb,
  V1,
  warnOfDeprecation,
} from '../person/person-context.ts';

const WHO = 'e-mail address, or usergroup/40; with --v1 user/6 or usergroup/40';
const OBJECT = 'object, for example Asset/881, Instrumentation/4711 or Node/20';
const TYPES = `one or more of ${PERMISSION_TYPES.join(', ')}, or all`;

interface ExplainFlags extends PersonFlags {
  instrumentation: number[];
  node: number[];
  parent: number[];
}

/** Adds `tagferry permissions` (platform 2.2, 4.2); `--v1` selects the deprecated form. */
export function define(program: Command, clock: Clock = systemClock): void {
  const permissions = program.command('permissions').description('list, grant, change and revoke permissions');

  personVerb(permissions.command('ls').alias('list'))
    .description('list the permissions on an object')
    .argument('<object>', OBJECT)
    .option('--v1', V1)
    .action(async (object: string, flags: PersonFlags) => {
      const permitable = permitableOf(object);
      await inPersonContext(program, flags, clock, async (context) => {
        if (flags.v1) return await listV1(context, permitable);
        const records = await Array.fromAsync(listPermissions(context.reader, 2, permitable));
        const rows = records.map((one) => permissionRow({ permitable, ...one }));
        const none = `No direct permissions on ${nameOfPermitable(permitable)}.`;
        context.show(rows.length === 0 ? none : permissionTable(rows), records);
      });
    });

  personVerb(permissions.command('show'))
    .description('show a permission')
    .argument('<id>', 'id from `permissions ls`')
    .option('--v1', V1)
    .action(async (id: string, flags: PersonFlags) => {
      if (flags.v1) {
        return await inPersonContext(program, flags, clock, (context) => showV1(context, v1IdIn([id])));
      }
      const number = idOf(id);
      await inPersonContext(program, flags, clock, async ({ reader, show }) => {
        const record = await readPermission(reader, 2, number);
        show(permissionTable([permissionRow(record)]), record);
      });
    });

  changingVerb(permissions.command('grant'))
    .description('grant permission types, none of which implies another')
    .argument('<who>', WHO)
    .argument('<object>', OBJECT)
    .argument('<types...>', TYPES)
    .option('--v1', V1)
    .action(async (who: string, object: string, args: string[], flags: PersonFlags) => {
      const permitable = permitableOf(object);
      const types = permissionTypesOf(args);
      if (flags.v1)
        return await inPersonContext(program, flags, clock, (context) => grantV1(context, who, permitable, types));
      const assignable = assignableV2Of(who);
      await inPersonContext(program, flags, clock, async ({ writer, done }) => {
        const body = { permission_types: types, assignable, permitable };
        const record = await createPermission(writer, 2, body);
        const sentence = `${plain(who)} has ${typesText(types)} on ${nameOfPermitable(permitable)}.`;
        done(sentence, { action: 'grant', ...body, ...(record === undefined ? {} : { record }) });
      });
    });

  changingVerb(permissions.command('change'))
    .description(
      'replace all permission types of a user on an object, for example `change 8 can_read` or `change anna@example.com Asset/881 can_read`',
    )
    .argument('<what...>', `id, or user and object; then ${TYPES}`)
    .option('--yes', 'skip the confirmation')
    .option('--v1', V1)
    .action(async (args: string[], flags: PersonFlags) => {
      if (flags.v1)
        throw new UsageError('the v1 API cannot change a permission', 'Omit --v1, or use `grant` and `take`.');
      const { which, types } = pairIn(args);
      if (types.length === 0)
        throw new UsageError('permission types are missing', `Use ${TYPES}. To revoke all types, use \`take\`.`);
      await inPersonContext(program, flags, clock, async (context) => {
        const { writer, confirm, done } = context;
        const record = await permissionToChange(context, which);
        const before = `${nameOfAssignable(record.assignable)} has ${typesText(record.permission_types)}`;
        if (!(await confirm(`${plain(before)}. Replace these permissions with ${typesText(types)}?`))) return;
        await changePermission(writer, record.id, types);
        const facts = { action: 'change', id: record.id, before: record.permission_types, permission_types: types };
        done(`Permission ${record.id} is now ${typesText(types)}.`, facts);
      });
    });

  changingVerb(permissions.command('take').aliases(['revoke', 'rm']))
    .description('revoke all permission types (`take 8`) or some (`take 8 can_update`), by ID or by user and object')
    .argument('<what...>', `id, or user and object; then optionally ${TYPES}`)
    .option('--yes', 'skip the confirmation')
    .option('--v1', V1)
    .option('--all', 'with --v1, also revoke all other types of the same user on the same object')
    .action(async (args: string[], flags: PersonFlags & { all?: boolean }) => {
      if (flags.v1) {
        const id = v1IdIn(args);
        return await inPersonContext(program, flags, clock, (context) => revokeV1(context, id, flags.all === true));
      }
      const { which, types } = pairIn(args);
      await inPersonContext(program, flags, clock, async (context) => {
        const { reader, writer, confirm, done } = context;
        const record = await (types.length === 0 ? permissionToChange(context, which) : findPermission(reader, which));
        const revoked = types.length === 0 ? record.permission_types : types;
        const left = record.permission_types.filter((type) => !revoked.includes(type));
        const object = record.permitable === undefined ? 'it' : nameOfPermitable(record.permitable);
        const from = plain(nameOfAssignable(record.assignable));
        if (!(await confirm(`Revoke ${typesText(revoked)} on ${object} from ${from}?`))) return;
        if (left.length === 0) await deletePermission(writer, 2, record.id);
        else await changePermission(writer, record.id, left);
        const rest = left.length === 0 ? 'No permissions remain' : `Remaining: ${typesText(left)}`;
        const facts = { action: 'take', id: record.id, taken: revoked, permission_types: left };
        done(`Revoked from ${from}. ${rest}.`, facts);
      });
    });

  personVerb(permissions.command('explain'))
    .description('explain why a user sees an object: direct and inherited permissions that the API lists')
    .argument('<who>', 'e-mail address')
    .argument('<object>', OBJECT)
    .option('--instrumentation <id>', 'instrumentation that the asset is assigned to, repeatable', addId, [])
    .option('--node <id>', 'node above the asset, repeatable', addId, [])
    .option('--parent <id>', 'parent asset, repeatable', addId, [])
    .action(async (who: string, object: string, flags: ExplainFlags) => {
      const email = emailOf(who);
      const permitable = permitableOf(object);
      await inPersonContext(program, flags, clock, async ({ reader, settings, show }) => {
        const explanation = await explain(reader, email, permitable, flags, settings.directory);
        show(explanationText(explanation), explanation);
      });
    });
}

function idOf(text: string): number {
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw new UsageError(`${JSON.stringify(text)} is not an ID`, 'Use the number from `permissions ls`.');
}

/** `8 can_read` or `anna@example.com Asset/881 can_read`. */
function pairIn(args: readonly string[]) {
  const [first = '', second, ...rest] = args;
  if (/^\d{1,15}$/.test(first)) return { which: Number(first), types: permissionTypesOf(args.slice(1)) };
  if (second === undefined) {
    throw new UsageError(
      'a permission requires an ID, or a user and an object',
      'Run `tagferry permissions ls <object>`.',
    );
  }
  const which = { assignable: assignableV2Of(first), permitable: permitableOf(second) };
  return { which, types: permissionTypesOf(rest) };
}

/** A permission by ID, or by user and object, which have at most one record (platform 9). */
type WhichPermission = number | { assignable: AssignableV2; permitable: Permitable };

/** Throws `PlatformError` with a 404, or `person.no_permission`, if there is no record. */
async function findPermission(reader: PlatformClient, which: WhichPermission): Promise<PermissionRecordV2> {
  if (typeof which === 'number') return await readPermission(reader, 2, which);
  const { assignable, permitable } = which;
  for await (const record of listPermissions(reader, 2, permitable)) {
    if (isSameAssignable(record.assignable, assignable)) return record;
  }
  throw noPermission(`${nameOfAssignable(assignable)} has no direct permission on ${nameOfPermitable(permitable)}`);
}

/** With `--dry-run` an ID is not looked up, so that the request can be shown without a sign-in. */
async function permissionToChange(context: PersonContext, which: WhichPermission): Promise<PermissionRecordV2> {
  if (context.isDryRun && typeof which === 'number') return { id: which, permission_types: [] };
  return await findPermission(context.reader, which);
}

function addId(text: string, before: number[]): number[] {
  if (/^\d{1,15}$/.test(text)) return [...before, Number(text)];
  throw new UsageError(`${JSON.stringify(text)} is not an ID`, 'Specify only the number.');
}

function typesText(types: readonly string[]): string {
  return types.length === 0 ? 'nothing' : types.join(', ');
}

/** Returns one row of `permissionTable`. */
function permissionRow(record: PermissionRecordV1 | PermissionRecordV2): string[] {
  const types = 'permission_type' in record ? record.permission_type : typesText(record.permission_types);
  const object = record.permitable === undefined ? NOT_REPORTED : nameOfPermitable(record.permitable);
  return [String(record.id), plain(nameOfAssignable(record.assignable)), plain(types), object];
}

function permissionTable(rows: readonly string[][]): string {
  return table([['id', 'user or group', 'permissions', 'object'], ...rows]);
}

function noPermission(message: string): PlatformError {
  return new PlatformError(message, {
    code: 'person.no_permission',
    hint: 'The user may inherit it from an instrumentation, a node or a parent asset.',
  });
}

/** v1 has a record per permission type, identifies users by number, and cannot change a set (platform 4.2, 9). */
async function listV1(context: PersonContext, permitable: Permitable): Promise<void> {
  warnOfDeprecation('permissions', `tagferry permissions ls ${nameOfPermitable(permitable)}`, context.clock);
  const records = await Array.fromAsync(listPermissions(context.reader, 1, permitable));
  context.show(permissionTable(records.map((one) => permissionRow({ permitable, ...one }))), records);
}

async function showV1(context: PersonContext, id: string): Promise<void> {
  warnOfDeprecation('permissions', 'tagferry permissions show <id>', context.clock);
  const record = await readPermission(context.reader, 1, id);
  context.show(permissionTable([permissionRow(record)]), record);
}

async function grantV1(
  context: PersonContext,
  who: string,
  permitable: Permitable,
  types: PermissionType[],
): Promise<void> {
  const object = nameOfPermitable(permitable);
  warnOfDeprecation('permissions', `tagferry permissions grant <e-mail> ${object} ${types.join(' ')}`, context.clock);
  const body = { permission_type: types, assignable: assignableV1Of(who), permitable };
  const answer = await createPermission(context.writer, 1, body);
  const facts = { action: 'grant', ...body, ...(answer === undefined ? {} : { answer }) };
  context.done(`${plain(who)} has ${typesText(types)} on ${object}.`, facts);
}

/** An ID identifies one permission type or, with `all`, all types of the pair. */
async function revokeV1(context: PersonContext, id: string, all: boolean): Promise<void> {
  warnOfDeprecation('permissions', 'tagferry permissions take <e-mail> <object> [types]', context.clock);
  const what = all ? `all permissions of the same user on the same object as ${id}` : `permission ${id}`;
  if (!(await context.confirm(`Revoke ${what}?`))) return;
  await deletePermission(context.writer, 1, id, all);
  context.done(`Revoked ${what}.`, { action: 'take', id, all });
}

function v1IdIn(args: readonly string[]): string {
  const [id = '', ...rest] = args;
  if (rest.length === 0 && /^\d{1,15}$/.test(id)) return id;
  throw new UsageError('--v1 requires a permission id', 'See `tagferry permissions ls --v1 <object>`.');
}
