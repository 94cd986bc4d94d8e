import { PlatformError } from '../../base/errors.ts';
import type { AssignableV2, PermissionRecordV2, Permitable } from '../../contract/permissions.ts';
import type { PlatformClient } from '../../platform/client.ts';
import { PermissionsV2 } from '../../platform/resources/permissions-v2.ts';
import { isSameAssignable, nameOfAssignable, nameOfPermitable } from './named-objects.ts';
import type { PersonContext } from './person-context.ts';

/** A record by its id, or by the pair that it stands for (there is one record a pair, platform 9). */
export type WhichPermission = number | { assignable: AssignableV2; permitable: Permitable };

/** Throws `PlatformError`, with a 404 or `person.no_permission` where there is none. */
export async function foundPermission(reader: PlatformClient, which: WhichPermission): Promise<PermissionRecordV2> {
  const resource = new PermissionsV2(reader);
  if (typeof which === 'number') {
    const record = await resource.read(which);
    if (record !== undefined) return record;
    throw none(`there is no permission ${which}`);
  }
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

function none(message: string): PlatformError {
  return new PlatformError(message, {
    code: 'person.no_permission',
    hint: 'See `tagferry permissions ls` and `tagferry permissions explain`: it may be inherited.',
  });
}
