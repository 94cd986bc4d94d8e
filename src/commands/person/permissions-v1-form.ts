import { UsageError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import type { PermissionType, Permitable } from '../../contract/permissions.ts';
import { allEntries } from '../../platform/pages.ts';
import { PermissionsV1 } from '../../platform/resources/permissions-v1.ts';
import { heedDeprecatedForm } from './deprecated-form.ts';
import { assignableV1Of, nameOfPermitable } from './named-objects.ts';
import { permissionRow, permissionTable, typesText } from './permission-record.ts';
import type { PersonContext } from './person-context.ts';

/** `permissions --v1`: one record a type, users by number, no change of a set (platform 2.2, 4.2; deprecated, section 9). */

export async function list(context: PersonContext, permitable: Permitable): Promise<void> {
  heedDeprecatedForm('permissions', `tagferry permissions ls ${nameOfPermitable(permitable)}`, context.clock);
  const records = await allEntries(new PermissionsV1(context.reader).list(permitable));
  context.show(permissionTable(records.map((one) => permissionRow({ permitable, ...one }))), records);
}

export async function show(context: PersonContext, id: string): Promise<void> {
  heedDeprecatedForm('permissions', 'tagferry permissions show <id>', context.clock);
  const record = await new PermissionsV1(context.reader).read(id);
  context.show(permissionTable([permissionRow(record)]), record);
}

export async function grant(
  context: PersonContext,
  who: string,
  permitable: Permitable,
  types: PermissionType[],
): Promise<void> {
  const object = nameOfPermitable(permitable);
  heedDeprecatedForm('permissions', `tagferry permissions grant <e-mail> ${object} ${types.join(' ')}`, context.clock);
  const body = { permission_type: types, assignable: assignableV1Of(who), permitable };
  const answer = await new PermissionsV1(context.writer).create(body);
  const facts = { action: 'grant', ...body, ...(answer === undefined ? {} : { answer }) };
  context.done(`${plain(who)} has ${typesText(types)} on ${object}.`, facts);
}

/** The id carries the offset of its type, so it stands for one type; with `all` for the pair. */
export async function take(context: PersonContext, id: string, all: boolean): Promise<void> {
  heedDeprecatedForm('permissions', 'tagferry permissions take <e-mail> <object> [types]', context.clock);
  const what = all ? `every permission of the pair that ${id} belongs to` : `the one permission ${id}`;
  if (!(await context.sure(`Take away ${what}?`))) return;
  await new PermissionsV1(context.writer).delete(id, { all });
  context.done(`Taken away: ${what}.`, { action: 'take', id, all });
}

export function idIn(words: readonly string[]): string {
  const [id = '', ...rest] = words;
  if (rest.length === 0 && /^\d{1,15}$/.test(id)) return id;
  throw new UsageError('v1 names one permission by its id', 'See `tagferry permissions ls --v1 <object>`.');
}
