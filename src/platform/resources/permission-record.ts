import {
  type AssignableV1,
  type AssignableV2,
  PERMITABLE_TYPES,
  type PermissionRecordV1,
  type PermissionRecordV2,
  type Permitable,
} from '../../contract/permissions.ts';
import type { ResponseRecord } from '../response-record.ts';

/** Permission records of platform 2.2 in responses. Who and object may be absent: the document does not show a whole record. */
export function readPermissionV2(record: ResponseRecord): PermissionRecordV2 {
  const assignable = record.optional('assignable', record.record);
  return {
    id: record.integer('id'),
    permission_types: record.strings('permission_types'),
    ...(assignable === undefined ? {} : { assignable: readAssignable(assignable) }),
    ...permitableIn(record),
  };
}

export function readPermissionV1(record: ResponseRecord): PermissionRecordV1 {
  const assignable = record.optional('assignable', record.record);
  return {
    // A string of digits by the document.
    id: String(record.integer('id')),
    permission_type: record.string('permission_type'),
    ...(assignable === undefined ? {} : { assignable: readAssignableById(assignable) }),
    ...permitableIn(record),
  };
}

function readAssignable(record: ResponseRecord): AssignableV2 | AssignableV1 {
  if (record.has('email')) return { email: record.string('email'), type: 'User' };
  return readAssignableById(record);
}

function readAssignableById(record: ResponseRecord): AssignableV1 {
  return { id: record.integer('id'), type: record.string('type') === 'Usergroup' ? 'Usergroup' : 'User' };
}

/** A type that the document does not name is treated as absent. */
function permitableIn(record: ResponseRecord): { permitable?: Permitable } {
  const permitable = record.optional('permitable', record.record);
  if (permitable === undefined) return {};
  const name = permitable.string('type');
  const type = PERMITABLE_TYPES.find((one) => one === name);
  return type === undefined ? {} : { permitable: { id: permitable.integer('id'), type } };
}
