import {
  PERMISSION_TYPES,
  type PermissionRecordV1,
  type PermissionRecordV2,
  type PermissionType,
} from '../../contract/permissions.ts';
import { type Answer, type Call, idParam, objectBody } from '../http/call.ts';
import { successorLink } from '../http/deprecation-headers.ts';
import { page } from '../http/paging.ts';
import { notFound, refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import type { Grant } from '../site/records.ts';
import type { SiteModel } from '../site/site-model.ts';
import { offsetOf } from './id-offsets.ts';
import type { PermitableRef } from './inheritance.ts';
import type { PermissionRegistry } from './permission-registry.ts';
import { mustMay } from './permitted.ts';
import type { Visibility } from './visibility.ts';
import { assignableV1, assignableV2, readAssignable, readPermitable, readTypes } from './wire.ts';

export interface PermissionContext {
  site: SiteModel;
  registry: PermissionRegistry;
  visibility: Visibility;
  /** Offset of can_permit in v1 ids, see `id-offsets.ts`. */
  canPermitOffset: number;
}

/** Permissions v1 and v2 (platform 4.2). Changing wants `can_permit` on the object, looking that or `can_read`. */
export function addPermissionEndpoints(router: Router, context: PermissionContext): void {
  router.add('GET', '/v1/permissions', (call) => {
    const { items, pagination } = page(
      call,
      listed(call, context).flatMap((grant) => recordsV1(grant, context)),
    );
    return { status: 200, body: { permissions: items, pagination }, story: listStory(call) };
  });
  router.add('POST', '/v1/permissions', (call) => create(call, context, 1));
  router.add('GET', '/v1/permissions/:id', (call) => {
    const { record, type } = foundV1(call, context);
    const body = recordsV1(record, context).find((one) => one.permission_type === type);
    const headers = successorLink(`/v2/permissions/${record.id}`);
    return { status: 200, body, headers, story: `permission ${body?.id} (${type}) is looked at` };
  });
  router.add('DELETE', '/v1/permissions/:id', (call) => {
    const { record, type } = foundV1(call, context);
    const left = call.query.get('all') === 'true' ? [] : record.types.filter((one) => one !== type);
    return change(call, context, record, left);
  });

  router.add('GET', '/v2/permissions', (call) => {
    const { items, pagination } = page(call, listed(call, context));
    const permissions = items.map((grant) => recordV2(grant, context.site));
    return { status: 200, body: { permissions, pagination }, story: listStory(call) };
  });
  router.add('POST', '/v2/permissions', (call) => create(call, context, 2));
  router.add('GET', '/v2/permissions/:id', (call) => {
    const record = foundV2(call, context);
    return { status: 200, body: recordV2(record, context.site), story: `permission ${record.id} is looked at` };
  });
  router.add('PATCH', '/v2/permissions/:id', (call) => {
    const record = foundV2(call, context);
    const types = readTypes(objectBody(call).permission_types, 'permission_types', false);
    const { story } = change(call, context, record, types);
    return { status: 200, body: recordV2(record, context.site), ...(story === undefined ? {} : { story }) };
  });
  router.add('DELETE', '/v2/permissions/:id', (call) => change(call, context, foundV2(call, context), []));
}

/** Response of create: not shown; 201 with the record, in v1 with one record a type. */
function create(call: Call, context: PermissionContext, version: 1 | 2): Answer {
  const body = objectBody(call);
  const permitable = readPermitable(body.permitable);
  const types =
    version === 1
      ? readTypes(body.permission_type, 'permission_type', true)
      : readTypes(body.permission_types, 'permission_types', false);
  mustPermit(call, context, permitable);
  const assignable = readAssignable(body.assignable, version, context.site);
  const record = context.visibility.during(() => context.registry.grant(assignable, permitable, types));
  const shown = version === 1 ? { permissions: recordsV1(record, context) } : recordV2(record, context.site);
  return {
    status: 201,
    body: shown,
    story: `${types.join(', ')} on ${permitable.type} ${permitable.id} for ${assignable.type} ${assignable.id}`,
  };
}

function change(call: Call, context: PermissionContext, record: Grant, types: readonly PermissionType[]): Answer {
  mustPermit(call, context, record.permitable);
  context.visibility.during(() => context.registry.setTypes(record, types));
  const { type, id } = record.permitable;
  return { status: 204, story: `permissions on ${type} ${id} are now ${types.join(', ') || 'none'}` };
}

/** Granting and taking away want `can_permit` on the object, and nothing else (platform 2.2). */
export function mustPermit(call: Call, context: PermissionContext, object: PermitableRef): void {
  mustMay(context.registry, context.site, call.caller.user, 'can_permit', object);
}

/** Who may read an object sees its permissions, and so does who may grant and delete them. */
function isShown(call: Call, context: PermissionContext, object: PermitableRef): boolean {
  if (!context.site.hasPermitable(object.type, object.id)) return false;
  return (['can_read', 'can_permit'] as const).some((type) => context.registry.may(call.caller.user, type, object));
}

/** `permitable_id` and `permitable_type` filter; without them everything that the caller may see permissions of. */
function listed(call: Call, context: PermissionContext): Grant[] {
  const id = call.query.get('permitable_id');
  const type = call.query.get('permitable_type');
  if (id !== null && !/^\d{1,15}$/.test(id)) throw refusal(400, 'is no whole number', 'permitable_id');
  const wanted = context.site
    .all('permissions')
    .filter((grant) => id === null || grant.permitable.id === Number(id))
    .filter((grant) => type === null || grant.permitable.type === type);
  return wanted.filter((grant) => isShown(call, context, grant.permitable));
}

function listStory(call: Call): string {
  const type = call.query.get('permitable_type') ?? 'object';
  return `permissions on ${type.slice(0, 40)} ${call.query.get('permitable_id')?.slice(0, 15) ?? 'of every id'} are looked at`;
}

function foundV2(call: Call, context: PermissionContext): Grant {
  const id = idParam(call, 'id');
  const record = context.site.get('permissions', id);
  if (!record || !isShown(call, context, record.permitable)) throw notFound(`permission ${id}`);
  return record;
}

/** Finds the record and type of a v1 id, which is the record's id plus the type's offset (platform 2.2). */
function foundV1(call: Call, context: PermissionContext): { record: Grant; type: PermissionType } {
  const id = idParam(call, 'id');
  for (const type of PERMISSION_TYPES) {
    const record = context.site.get('permissions', id - offsetOf(type, context.canPermitOffset));
    if (record?.types.includes(type) && isShown(call, context, record.permitable)) return { record, type };
  }
  throw notFound(`permission ${id}`);
}

function recordsV1(grant: Grant, context: PermissionContext): PermissionRecordV1[] {
  return grant.types.map((type) => ({
    id: String(grant.id + offsetOf(type, context.canPermitOffset)),
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
