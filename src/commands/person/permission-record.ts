import { PlatformError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { table } from '../../base/table.ts';
import type { AssignableV2, PermissionRecordV1, PermissionRecordV2, Permitable } from '../../contract/permissions.ts';
import type { PlatformClient } from '../../platform/client.ts';
import { PermissionsV2 } from '../../platform/resources/permissions-v2.ts';
import { isSameAssignable, NOT_REPORTED, nameOfAssignable, nameOfPermitable } from './named-objects.ts';
import type { PersonContext } from './person-context.ts';

/** A record by its id, or by the pair that it stands for (there is one record a pair, platform 9). */
export type WhichPermission = number | { assignable: AssignableV2; permitable: Permitable };

/** Throws `PlatformError`, with a 404 or `person.no_permission` where there is none. */
export async function foundPermission(reader: PlatformClient, which: WhichPermission): Promise<PermissionRecordV2> {
  const resource = new PermissionsV2(reader);
  if (typeof which === 'number') return await resource.read(which);
  const { assignable, permitable } = which;
  for await (const record of resource.list(permitable)) {
    if (isSameAssignable(record.assignable, assignable)) return record;
  }
  throw none(`${nameOfAssignable(assignable)} has no permission on ${nameOfPermitable(permitable)} itself`);
}

/** With `--dry-run` an id is taken at its word, so that nobody has to be signed in to see the request. */
export async function permissionToChange(context: PersonContext, which: WhichPermission): Promise<PermissionRecordV2> {
  if (context.isDry && typeof which === 'number') return { id: which, permission_types: [] };
  return await foundPermission(context.reader, which);
}

export function typesText(types: readonly string[]): string {
  return types.length === 0 ? 'nothing' : types.join(', ');
}

/** One row of `permissionTable`. */
export function permissionRow(record: PermissionRecordV1 | PermissionRecordV2): string[] {
  const types = 'permission_type' in record ? record.permission_type : typesText(record.permission_types);
  const object = record.permitable === undefined ? NOT_REPORTED : nameOfPermitable(record.permitable);
  return [String(record.id), plain(nameOfAssignable(record.assignable)), plain(types), object];
}

export function permissionTable(rows: readonly string[][]): string {
  return table([['id', 'who', 'may', 'object'], ...rows]);
}

function none(message: string): PlatformError {
  return new PlatformError(message, {
    code: 'person.no_permission',
    hint: 'See `tagferry permissions ls` and `tagferry permissions explain`: it may be inherited.',
  });
}
