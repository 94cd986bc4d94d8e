import {
  PERMISSION_ID_OFFSETS_V1,
  type PermissionRecordV1,
  type PermissionRecordV2,
  type PermissionType,
} from '../../contract/permissions.ts';
import { type Answer, type Call, idParam, objectBody } from '../http/call.ts';
import { successorLink } from '../http/deprecation-headers.ts';
import { page } from '../http/paging.ts';
import { notFound, refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import type { Plant } from '../plant/plant.ts';
import type { Grant } from '../plant/records.ts';
import type { PermitableRef } from './inheritance.ts';
import type { PermissionBook } from './permission-book.ts';
import type { Visibility } from './visibility.ts';
import { assignableV1, assignableV2, readAssignable, readPermitable, readTypes } from './wire.ts';

export interface PermissionRoom {
  plant: Plant;
  book: PermissionBook;
  visibility: Visibility;
  /** Of v1 ids, see `CAN_PERMIT_OFFSETS`. */
  canPermitOffset: number;
}

/**
 * What the offset of can_permit in v1 ids may be; the first is the default. Not shown in the spec (2.2): these are free
 * between the three that are, and ids stay unambiguous because pairs are 8 apart.
 */
export const CAN_PERMIT_OFFSETS: readonly number[] = [3, 5, 6, 7];

const offsetOf = (type: PermissionType, room: PermissionRoom): number =>
  PERMISSION_ID_OFFSETS_V1[type] ?? room.canPermitOffset;

/** Permissions v1 and v2 (spec 4.2). The caller needs `can_permit` on the object, without `can_read` it is not there. */
export function addPermissionEndpoints(router: Router, room: PermissionRoom): void {
  router.add('GET', '/v1/permissions', (call) => {
    const { items, pagination } = page(
      call,
      listed(call, room).flatMap((grant) => recordsV1(grant, room)),
    );
    return { status: 200, body: { permissions: items, pagination }, story: listStory(call) };
  });
  router.add('POST', '/v1/permissions', (call) => create(call, room, 1));
  router.add('GET', '/v1/permissions/:id', (call) => {
    const { record, type } = foundV1(call, room);
    const body = recordsV1(record, room).find((one) => one.permission_type === type);
    const headers = successorLink(`/v2/permissions/${record.id}`);
    return { status: 200, body, headers, story: `permission ${body?.id} (${type}) is looked at` };
  });
  router.add('DELETE', '/v1/permissions/:id', (call) => {
    const { record, type } = foundV1(call, room);
    const left = call.query.get('all') === 'true' ? [] : record.types.filter((one) => one !== type);
    return change(call, room, record, left);
  });

  router.add('GET', '/v2/permissions', (call) => {
    const { items, pagination } = page(call, listed(call, room));
    const permissions = items.map((grant) => recordV2(grant, room.plant));
    return { status: 200, body: { permissions, pagination }, story: listStory(call) };
  });
  router.add('POST', '/v2/permissions', (call) => create(call, room, 2));
  router.add('GET', '/v2/permissions/:id', (call) => {
    const record = foundV2(call, room);
    return { status: 200, body: recordV2(record, room.plant), story: `permission ${record.id} is looked at` };
  });
  router.add('PATCH', '/v2/permissions/:id', (call) => {
    const record = foundV2(call, room);
    const types = readTypes(objectBody(call).permission_types, 'permission_types', false);
    const { story } = change(call, room, record, types);
    return { status: 200, body: recordV2(record, room.plant), ...(story === undefined ? {} : { story }) };
  });
  router.add('DELETE', '/v2/permissions/:id', (call) => change(call, room, foundV2(call, room), []));
}

/** Response of create: not shown; 201 with the record, in v1 with one record a type. */
function create(call: Call, room: PermissionRoom, version: 1 | 2): Answer {
  const body = objectBody(call);
  const permitable = readPermitable(body.permitable);
  const types =
    version === 1
      ? readTypes(body.permission_type, 'permission_type', true)
      : readTypes(body.permission_types, 'permission_types', false);
  mustPermit(call, room, permitable);
  const assignable = readAssignable(body.assignable, version, room.plant);
  const record = room.visibility.during(() => room.book.grant(assignable, permitable, types));
  const shown = version === 1 ? { permissions: recordsV1(record, room) } : recordV2(record, room.plant);
  return {
    status: 201,
    body: shown,
    story: `${types.join(', ')} on ${permitable.type} ${permitable.id} for ${assignable.type} ${assignable.id}`,
  };
}

function change(call: Call, room: PermissionRoom, record: Grant, types: readonly PermissionType[]): Answer {
  mustPermit(call, room, record.permitable);
  room.visibility.during(() => room.book.setTypes(record, types));
  const { type, id } = record.permitable;
  return { status: 204, story: `permissions on ${type} ${id} are now ${types.join(', ') || 'none'}` };
}

/** 404 for who may not see the object, 403 for who may see it but not permit. */
export function mustPermit(call: Call, room: PermissionRoom, object: PermitableRef): void {
  if (!readable(call, room, object)) throw notFound(`${object.type} ${object.id}`);
  if (!room.book.may(call.caller.user, 'can_permit', object)) {
    throw refusal(403, `permissions on this ${object.type} may not be given by the user`);
  }
}

function readable(call: Call, room: PermissionRoom, object: PermitableRef): boolean {
  return room.plant.hasPermitable(object.type, object.id) && room.book.may(call.caller.user, 'can_read', object);
}

/** `permitable_id` and `permitable_type` filter; without them everything that the caller may see permissions of. */
function listed(call: Call, room: PermissionRoom): Grant[] {
  const id = call.query.get('permitable_id');
  const type = call.query.get('permitable_type');
  if (id !== null && !/^\d{1,15}$/.test(id)) throw refusal(400, 'is no whole number', 'permitable_id');
  const wanted = room.plant
    .all('permissions')
    .filter((grant) => id === null || grant.permitable.id === Number(id))
    .filter((grant) => type === null || grant.permitable.type === type);
  return wanted.filter((grant) => readable(call, room, grant.permitable));
}

function listStory(call: Call): string {
  const type = call.query.get('permitable_type') ?? 'object';
  return `permissions on ${type.slice(0, 40)} ${call.query.get('permitable_id')?.slice(0, 15) ?? 'of every id'} are looked at`;
}

function foundV2(call: Call, room: PermissionRoom): Grant {
  const id = idParam(call, 'id');
  const record = room.plant.get('permissions', id);
  if (!record || !readable(call, room, record.permitable)) throw notFound(`permission ${id}`);
  return record;
}

/** Spec 2.2: the v1 id is the record's id plus the type's offset. */
function foundV1(call: Call, room: PermissionRoom): { record: Grant; type: PermissionType } {
  const id = idParam(call, 'id');
  for (let offset = 1; offset < 8; offset++) {
    const record = room.plant.get('permissions', id - offset);
    const type = record?.types.find((one) => offsetOf(one, room) === offset);
    if (record && type && readable(call, room, record.permitable)) return { record, type };
  }
  throw notFound(`permission ${id}`);
}

function recordsV1(grant: Grant, room: PermissionRoom): PermissionRecordV1[] {
  return grant.types.map((type) => ({
    id: String(grant.id + offsetOf(type, room)),
    permission_type: type,
    assignable: assignableV1(grant),
    permitable: { ...grant.permitable },
  }));
}

function recordV2(grant: Grant, plant: Plant): PermissionRecordV2 {
  return {
    id: grant.id,
    permission_types: [...grant.types],
    assignable: assignableV2(grant, plant),
    permitable: { ...grant.permitable },
  };
}
