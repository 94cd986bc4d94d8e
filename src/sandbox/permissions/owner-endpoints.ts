import { type Answer, type Call, isObject, objectBody } from '../http/call.ts';
import { notFound, refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import type { Owner } from '../plant/records.ts';
import { mustPermit, type PermissionRoom } from './permission-endpoints.ts';
import { readPermitable, readUser } from './wire.ts';

/** Owners (spec 4.2): v1 names the user by id, v2 by e-mail. What an owner may beyond being one is not shown. */
export function addOwnerEndpoints(router: Router, room: PermissionRoom, owners: Owner[]): void {
  for (const version of [1, 2] as const) {
    router.add('POST', `/v${version}/owners`, (call) => add(call, room, owners, version));
    router.add('DELETE', `/v${version}/owners`, (call) => remove(call, room, owners, version));
  }
}

function read(call: Call, room: PermissionRoom, version: 1 | 2): Owner {
  const { assignable, permitable } = objectBody(call);
  const object = readPermitable(permitable);
  if (!isObject(assignable) || assignable.type !== 'User') throw refusal(400, 'is User', 'assignable.type');
  mustPermit(call, room, object);
  return { user: readUser(assignable, version, room.plant, 'assignable'), permitable: object };
}

function add(call: Call, room: PermissionRoom, owners: Owner[], version: 1 | 2): Answer {
  const wanted = read(call, room, version);
  if (indexOf(owners, wanted) < 0) owners.push(wanted);
  const email = room.plant.get('users', wanted.user)?.email ?? '';
  // Response: not shown. v2 exists so that user ids need not be told (spec 9).
  const assignable = version === 1 ? { id: wanted.user, type: 'User' } : { email, type: 'User' };
  return {
    status: 201,
    body: { assignable, permitable: wanted.permitable },
    story: `${email} becomes an owner of ${wanted.permitable.type} ${wanted.permitable.id}`,
  };
}

function remove(call: Call, room: PermissionRoom, owners: Owner[], version: 1 | 2): Answer {
  const wanted = read(call, room, version);
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
