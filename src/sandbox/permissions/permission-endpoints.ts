import {
  PERMISSION_ID_OFFSETS_V1,
  PERMISSION_TYPES,
  type PermissionRecordV1,
  type PermissionRecordV2,
  type PermissionType,
} from '../../contract/permissions.ts';
import { type Answer, type Call, idParam, idQuery, isObject, objectBody, page } from '../http/call.ts';
import { successorLink } from '../http/deprecation-headers.ts';
import { notFound, refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import type { Grant, Owner } from '../site/records.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { Stage } from '../stage.ts';
import type { PermitableRef } from './inheritance.ts';
import { isSameOwner } from './permission-registry.ts';
import { assignableV1, assignableV2, readAssignable, readPermitable, readTypes, readUser } from './wire.ts';

/**
 * Permissions v1 and v2 (platform 4.2). Changes require `can_permit` on the object; reads require `can_permit` or
 * `can_read`.
 */
export function addPermissionEndpoints(router: Router, stage: Stage): void {
  router.add('GET', '/v1/permissions', (call) => {
    const { items, pagination } = page(
      call,
      listed(call, stage).flatMap((grant) => recordsV1(grant)),
    );
    return { status: 200, body: { permissions: items, pagination }, story: listStory(call) };
  });
  router.add('POST', '/v1/permissions', (call) => create(call, stage, 1));
  router.add('GET', '/v1/permissions/:id', (call) => {
    const { record, type } = foundV1(call, stage);
    const body = recordsV1(record).find((one) => one.permission_type === type);
    const headers = successorLink(`/v2/permissions/${record.id}`);
    return { status: 200, body, headers, story: `permission ${body?.id} (${type}) read` };
  });
  router.add('DELETE', '/v1/permissions/:id', (call) => {
    const { record, type } = foundV1(call, stage);
    const left = call.query.get('all') === 'true' ? [] : record.types.filter((one) => one !== type);
    return change(call, stage, record, left);
  });

  router.add('GET', '/v2/permissions', (call) => {
    const { items, pagination } = page(call, listed(call, stage));
    const permissions = items.map((grant) => recordV2(grant, stage.site));
    return { status: 200, body: { permissions, pagination }, story: listStory(call) };
  });
  router.add('POST', '/v2/permissions', (call) => create(call, stage, 2));
  router.add('GET', '/v2/permissions/:id', (call) => {
    const record = foundV2(call, stage);
    return { status: 200, body: recordV2(record, stage.site), story: `permission ${record.id} read` };
  });
  router.add('PATCH', '/v2/permissions/:id', (call) => {
    const record = foundV2(call, stage);
    const types = readTypes(objectBody(call).permission_types, 'permission_types', false);
    const { story } = change(call, stage, record, types);
    return { status: 200, body: recordV2(record, stage.site), ...(story === undefined ? {} : { story }) };
  });
  router.add('DELETE', '/v2/permissions/:id', (call) => change(call, stage, foundV2(call, stage), []));
  addOwnerEndpoints(router, stage);
}

/**
 * Creates or extends a permission. The specification does not show the response, so the response is 201 with the
 * record; in v1, with one record per type.
 */
function create(call: Call, stage: Stage, version: 1 | 2): Answer {
  const body = objectBody(call);
  const permitable = readPermitable(body.permitable);
  const types =
    version === 1
      ? readTypes(body.permission_type, 'permission_type', true)
      : readTypes(body.permission_types, 'permission_types', false);
  stage.permissions.require(call.caller.user, 'can_permit', permitable);
  const assignable = readAssignable(body.assignable, version, stage.site);
  const record = stage.visibility.during(() => stage.permissions.grant(assignable, permitable, types));
  const shown = version === 1 ? { permissions: recordsV1(record) } : recordV2(record, stage.site);
  return {
    status: 201,
    body: shown,
    story: `${types.join(', ')} on ${permitable.type} ${permitable.id} for ${assignable.type} ${assignable.id}`,
  };
}

function change(call: Call, stage: Stage, record: Grant, types: readonly PermissionType[]): Answer {
  stage.permissions.require(call.caller.user, 'can_permit', record.permitable);
  stage.visibility.during(() => stage.permissions.setTypes(record, types));
  const { type, id } = record.permitable;
  return { status: 204, story: `permissions on ${type} ${id} are now ${types.join(', ') || 'none'}` };
}

/**
 * Returns whether the caller can see the permissions on an object, which requires read access or the right to grant
 * permissions.
 */
function isShown(call: Call, stage: Stage, object: PermitableRef): boolean {
  if (!stage.site.hasPermitable(object.type, object.id)) return false;
  return (['can_read', 'can_permit'] as const).some((type) => stage.permissions.may(call.caller.user, type, object));
}

/** Returns the permissions that the caller can see, filtered by `permitable_id` and `permitable_type`. */
function listed(call: Call, stage: Stage): Grant[] {
  const id = idQuery(call, 'permitable_id');
  const type = call.query.get('permitable_type');
  const wanted = stage.site
    .all('permissions')
    .filter((grant) => id === undefined || grant.permitable.id === id)
    .filter((grant) => type === null || grant.permitable.type === type);
  return wanted.filter((grant) => isShown(call, stage, grant.permitable));
}

function listStory(call: Call): string {
  const type = call.query.get('permitable_type') ?? 'object';
  return `permissions on ${type.slice(0, 40)} ${call.query.get('permitable_id')?.slice(0, 15) ?? '(any id)'} listed`;
}

function foundV2(call: Call, stage: Stage): Grant {
  const id = idParam(call, 'id');
  const record = stage.site.get('permissions', id);
  if (!record || !isShown(call, stage, record.permitable)) throw notFound(`permission ${id}`);
  return record;
}

/** Finds the record and type for a v1 ID, which is the record ID plus the type's offset (platform 2.2). */
function foundV1(call: Call, stage: Stage): { record: Grant; type: PermissionType } {
  const id = idParam(call, 'id');
  for (const type of PERMISSION_TYPES) {
    const record = stage.site.get('permissions', id - idOffset(type));
    if (record?.types.includes(type) && isShown(call, stage, record.permitable)) return { record, type };
  }
  throw notFound(`permission ${id}`);
}

function recordsV1(grant: Grant): PermissionRecordV1[] {
  return grant.types.map((type) => ({
    id: String(grant.id + idOffset(type)),
    permission_type: type,
    assignable: assignableV1(grant),
    permitable: { ...grant.permitable },
  }));
}

function recordV2(grant: Grant, site: SiteModel): PermissionRecordV2 {
  return {
    id: grant.id,
    permission_types: [...grant.types],
    assignable: assignableV2(grant, site),
    permitable: { ...grant.permitable },
  };
}

/**
 * Returns the offset of a type in v1 IDs (platform 2.2). The specification does not show the offset of `can_permit`.
 */
function idOffset(type: PermissionType): number {
  return PERMISSION_ID_OFFSETS_V1[type] ?? 3;
}

/**
 * Adds the endpoints for owners (platform 4.2). v1 identifies the user by ID, v2 by e-mail address. Ownership has no
 * other effect.
 */
function addOwnerEndpoints(router: Router, stage: Stage): void {
  for (const version of [1, 2] as const) {
    router.add('POST', `/v${version}/owners`, (call) => addOwner(call, stage, version));
    router.add('DELETE', `/v${version}/owners`, (call) => removeOwner(call, stage, version));
  }
}

function readOwner(call: Call, stage: Stage, version: 1 | 2): Owner {
  const { assignable, permitable } = objectBody(call);
  const object = readPermitable(permitable);
  if (!isObject(assignable) || assignable.type !== 'User') throw refusal(400, 'must be User', 'assignable.type');
  stage.permissions.require(call.caller.user, 'can_permit', object);
  return { user: readUser(assignable, version, stage.site, 'assignable'), permitable: object };
}

function addOwner(call: Call, stage: Stage, version: 1 | 2): Answer {
  const wanted = readOwner(call, stage, version);
  stage.permissions.addOwner(wanted);
  const email = stage.site.get('users', wanted.user)?.email ?? '';
  // The specification does not show the response. v2 does not expose user IDs (platform 9).
  const assignable = version === 1 ? { id: wanted.user, type: 'User' } : { email, type: 'User' };
  return {
    status: 201,
    body: { assignable, permitable: wanted.permitable },
    story: `${email} added as owner of ${wanted.permitable.type} ${wanted.permitable.id}`,
  };
}

function removeOwner(call: Call, stage: Stage, version: 1 | 2): Answer {
  const wanted = readOwner(call, stage, version);
  if (!stage.permissions.removeOwners((one) => isSameOwner(one, wanted))) throw notFound('the owner');
  return { status: 204, story: `${wanted.permitable.type} ${wanted.permitable.id}: owner removed` };
}
