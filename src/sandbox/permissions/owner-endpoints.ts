import { type Answer, type Call, isObject, objectBody } from '../http/call.ts';
import { notFound, refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import type { Owner } from '../site/records.ts';
import { mustPermit, type PermissionContext } from './permission-endpoints.ts';
import { readPermitable, readUser } from './wire.ts';

/** Owners (platform 4.2): v1 names the user by id, v2 by e-mail. What an owner may beyond being one is not shown. */
export function addOwnerEndpoints(router: Router, context: PermissionContext, owners: Owner[]): void {
  for (const version of [1, 2] as const) {
    router.add('POST', `/v${version}/owners`, (call) => add(call, context, owners, version));
    router.add('DELETE', `/v${version}/owners`, (call) => remove(call, context, owners, version));
  }
}

function read(call: Call, context: PermissionContext, version: 1 | 2): Owner {
  const { assignable, permitable } = objectBody(call);
  const object = readPermitable(permitable);
  if (!isObject(assignable) || assignable.type !== 'User') throw refusal(400, 'is User', 'assignable.type');
  mustPermit(call, context, object);
  return { user: readUser(assignable, version, context.site, 'assignable'), permitable: object };
}

function add(call: Call, context: PermissionContext, owners: Owner[], version: 1 | 2): Answer {
  const wanted = read(call, context, version);
  if (indexOf(owners, wanted) < 0) owners.push(wanted);
  const email = context.site.get('users', wanted.user)?.email ?? '';
  // Response: not shown. v2 exists so that user ids need not be told (platform 9).
  const assignable = version === 1 ? { id: wanted.user, type: 'User' } : { email, type: 'User' };
  return {
    status: 201,
    body: { assignable, permitable: wanted.permitable },
    story: `${email} becomes an owner of ${wanted.permitable.type} ${wanted.permitable.id}`,
  };
}

function remove(call: Call, context: PermissionContext, owners: Owner[], version: 1 | 2): Answer {
  const wanted = read(call, context, version);
  const index = indexOf(owners, wanted);
  if (index < 0) throw notFound('the owner');
  owners.splice(index, 1);
  return { status: 204, story: `${wanted.permitable.type} ${wanted.permitable.id} loses an owner` };
}

function indexOf(owners: Owner[], wanted: Owner): number {
  return owners.findIndex(
    (one) =>
      one.user === wanted.user &&
      one.permitable.type === wanted.permitable.type &&
      one.permitable.id === wanted.permitable.id,
  );
}
