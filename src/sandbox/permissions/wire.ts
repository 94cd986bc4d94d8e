import {
  PERMISSION_TYPES,
  PERMITABLE_TYPES,
  type PermissionType,
  type PermitableType,
} from '../../contract/permissions.ts';
import { isObject } from '../http/call.ts';
import { notFound, refusal } from '../http/refusal.ts';
import type { Grant } from '../site/records.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { PermitableRef } from './inheritance.ts';

/**
 * Parses the `permitable` of a permission or owner (platform 2.2, 4.2). Throws a 400 that specifies the invalid member.
 */
export function readPermitable(value: unknown): PermitableRef {
  if (!isObject(value)) throw refusal(400, 'must be {"id", "type"}', 'permitable');
  if (!(PERMITABLE_TYPES as readonly unknown[]).includes(value.type)) {
    throw refusal(400, `must have a type of ${PERMITABLE_TYPES.join(', ')}`, 'permitable.type');
  }
  if (!Number.isSafeInteger(value.id)) throw refusal(400, 'must be a whole number', 'permitable.id');
  return { type: value.type as PermitableType, id: value.id as number };
}

/**
 * Parses an `assignable`. In v1, users and usergroups are `{id, type}`; in v2, users are `{email, type}`. Throws a 404
 * for an unknown user or usergroup.
 */
export function readAssignable(value: unknown, version: 1 | 2, site: SiteModel): Grant['assignable'] {
  if (!isObject(value)) throw refusal(400, 'must be an object', 'assignable');
  if (value.type === 'Usergroup') {
    const id = value.id as number;
    if (!Number.isSafeInteger(id)) throw refusal(400, 'must be a whole number', 'assignable.id');
    if (!site.get('usergroups', id)) throw notFound(`usergroup ${id}`);
    return { type: 'Usergroup', id };
  }
  if (value.type !== 'User') throw refusal(400, 'must be User or Usergroup', 'assignable.type');
  return { type: 'User', id: readUser(value, version, site, 'assignable') };
}

/** Returns the ID of a user specified by ID (v1) or e-mail address (v2). */
export function readUser(value: unknown, version: 1 | 2, site: SiteModel, attribute: string): number {
  if (!isObject(value)) throw refusal(400, 'must be an object', attribute);
  if (version === 1) {
    if (!Number.isSafeInteger(value.id)) throw refusal(400, 'must be a whole number', `${attribute}.id`);
    if (!site.get('users', value.id as number)) throw notFound(`user ${value.id}`);
    return value.id as number;
  }
  if (typeof value.email !== 'string') throw refusal(400, 'must be an e-mail address', `${attribute}.email`);
  const user = site.userByEmail(value.email);
  if (!user) throw notFound(`the user ${value.email.slice(0, 100)}`);
  return user.id;
}

/** Parses permission types from a list, or in v1 also from a comma-separated string. */
export function readTypes(value: unknown, attribute: string, alsoText: boolean): PermissionType[] {
  const list = alsoText && typeof value === 'string' ? value.split(',').map((type) => type.trim()) : value;
  if (!Array.isArray(list) || list.length === 0 || !list.every((type) => PERMISSION_TYPES.includes(type))) {
    throw refusal(400, `must be a list of ${PERMISSION_TYPES.join(', ')}`, attribute);
  }
  return list;
}

export function assignableV1(grant: Grant) {
  return { id: grant.assignable.id, type: grant.assignable.type };
}

export function assignableV2(grant: Grant, site: SiteModel) {
  if (grant.assignable.type === 'Usergroup') return { id: grant.assignable.id, type: 'Usergroup' as const };
  return { email: site.get('users', grant.assignable.id)?.email ?? '', type: 'User' as const };
}
