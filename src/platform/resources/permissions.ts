import { type MembershipKind, membersBodyV1, membersBodyV2, membershipPath } from '../../contract/membership.ts';
import {
  type AssignableV1,
  type AssignableV2,
  type OwnerV1,
  type OwnerV2,
  PERMITABLE_TYPES,
  type PermissionCreateV1,
  type PermissionCreateV2,
  type PermissionRecordV1,
  type PermissionRecordV2,
  type Permitable,
} from '../../contract/permissions.ts';
import type { ApiCalls } from '../client.ts';
import type { ResponseRecord } from '../response-body.ts';
import { listEntries } from './lists.ts';

/**
 * Permissions, owners and members (platform 4.2, 4.3). v2 identifies users by e-mail address and has one permission
 * record per pair of assignable and permitable. v1 (deprecated, section 9) identifies users by ID and has one record per
 * permission type, whose ID is the ID of the pair plus the offset of the type. Responses to changes are not documented.
 */
interface Versions {
  1: { create: PermissionCreateV1; record: PermissionRecordV1; id: string; user: number };
  2: { create: PermissionCreateV2; record: PermissionRecordV2; id: number; user: string };
}
type Version = keyof Versions;

/** Readers of a permission record (platform 2.2). */
const READERS: { [V in Version]: (record: ResponseRecord) => Versions[V]['record'] } = {
  1: (record) => ({
    // According to the specification, a string of digits.
    id: String(record.integer('id')),
    permission_type: record.string('permission_type'),
    ...partiesOf(record, readAssignableV1),
  }),
  2: (record) => ({
    id: record.integer('id'),
    permission_types: record.strings('permission_types'),
    ...partiesOf(record, readAssignableV2),
  }),
};
const MEMBER_METHODS = { add: 'POST', replace: 'PATCH', remove: 'DELETE' } as const;
export type MembershipChange = keyof typeof MEMBER_METHODS;

function pathOf(version: Version, id: string | number): string {
  return `/v${version}/permissions/${encodeURIComponent(id)}`;
}

/** `POST /v{1,2}/permissions`. Returns the JSON object in the response, if any. */
export function createPermission<V extends Version>(client: ApiCalls, version: V, body: Versions[V]['create']) {
  return client.act({ method: 'POST', path: `/v${version}/permissions`, body, kind: 'other' });
}

/** `GET /v{1,2}/permissions?permitable_id&permitable_type`. */
export function listPermissions<V extends Version>(
  client: ApiCalls,
  version: V,
  { id, type }: Permitable,
  signal?: AbortSignal,
): AsyncIterable<Versions[V]['record']> {
  const query = { permitable_id: id, permitable_type: type };
  const list = { path: `/v${version}/permissions`, members: ['permissions'], query, signal };
  return listEntries(client, list, READERS[version]);
}

/** `GET /v{1,2}/permissions/{id}`. */
export async function readPermission<V extends Version>(
  client: ApiCalls,
  version: V,
  id: Versions[V]['id'],
): Promise<Versions[V]['record']> {
  const call = { method: 'GET', path: pathOf(version, id), kind: 'other' } as const;
  return READERS[version](await client.record(call, 'permission'));
}

/** `PATCH /v2/permissions/{id}`: replaces the permission types of the pair. */
export async function changePermission(client: ApiCalls, id: number, types: readonly string[]): Promise<void> {
  await client.act({ method: 'PATCH', path: pathOf(2, id), body: { permission_types: types }, kind: 'other' });
}

/**
 * `DELETE /v{1,2}/permissions/{id}`: deletes all permission types of the pair. In v1 without `all`, deletes only the
 * type with this ID.
 */
export async function deletePermission<V extends Version>(
  client: ApiCalls,
  version: V,
  id: Versions[V]['id'],
  all = false,
): Promise<void> {
  await client.act({ method: 'DELETE', path: pathOf(version, id), query: all ? { all } : {}, kind: 'other' });
}

/** `POST` or `DELETE /v{1,2}/owners`. */
export async function changeOwner(client: ApiCalls, how: 'add' | 'remove', body: OwnerV1 | OwnerV2): Promise<void> {
  const path = 'email' in body.assignable ? '/v2/owners' : '/v1/owners';
  await client.act({ method: MEMBER_METHODS[how], path, body, kind: 'other' });
}

/**
 * Changes the admins or users of a tenant, or the users of a user role. The API cannot list members. `users`: e-mail
 * addresses, or IDs in v1.
 */
export async function changeMembers<V extends Version>(
  client: ApiCalls,
  version: V,
  how: MembershipChange,
  kind: MembershipKind,
  id: number,
  users: readonly Versions[V]['user'][],
): Promise<void> {
  const body =
    version === 1 ? membersBodyV1(kind, users as readonly number[]) : membersBodyV2(users as readonly string[]);
  await client.act({ method: MEMBER_METHODS[how], path: membershipPath(version, kind, id), body, kind: 'other' });
}

/**
 * Reads the assignable and permitable of a record. Both may be absent, because the specification does not show a complete
 * record. A permitable of an unlisted type is treated as absent.
 */
function partiesOf<Assignable>(record: ResponseRecord, readAssignable: (assignable: ResponseRecord) => Assignable) {
  const assignable = record.optional('assignable', record.record);
  const permitable = record.optional('permitable', record.record);
  const type = permitable && PERMITABLE_TYPES.find((one) => one === permitable.string('type'));
  return {
    ...(assignable ? { assignable: readAssignable(assignable) } : {}),
    ...(permitable && type ? { permitable: { id: permitable.integer('id'), type } } : {}),
  };
}

function readAssignableV1(record: ResponseRecord): AssignableV1 {
  return { id: record.integer('id'), type: record.string('type') === 'Usergroup' ? 'Usergroup' : 'User' };
}

function readAssignableV2(record: ResponseRecord): AssignableV2 | AssignableV1 {
  return record.has('email') ? { email: record.string('email'), type: 'User' } : readAssignableV1(record);
}
