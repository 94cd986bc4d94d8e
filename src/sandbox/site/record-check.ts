import { insteadOf } from '../../base/nearest.ts';
import { type Form, problemWith } from '../http/forms.ts';
import {
  type ApiKey,
  type Application,
  type Grant,
  KIND_OF_PERMITABLE,
  KIND_OF_THRESHOLDABLE,
  type Kind,
  MEMBERS,
  type Threshold,
  type User,
} from './records.ts';
import type { SiteModel } from './site-model.ts';

export interface RecordProblem {
  member: string;
  message: string;
}

/** Returns whether null is a valid value for the member, for example for a product's dates. */
export function isNullable(kind: Kind, member: string): boolean {
  const form = String((MEMBERS[kind] as Readonly<Record<string, unknown>>)[member]);
  return form === '?date' || form === '?textOrNull';
}

/**
 * Validates a record from a seed file or the admin API, so that it does not cause an error later in an event or a
 * request. Returns the problem, if any. References are checked only if `site` is specified, because a seed can refer to
 * records that follow later.
 */
export function problemOf(kind: Kind, record: object, site?: SiteModel): RecordProblem | undefined {
  const known: Readonly<Record<string, string | readonly string[]>> = MEMBERS[kind];
  const unknown = Object.keys(record).find((member) => member !== 'id' && !Object.hasOwn(known, member));
  if (unknown !== undefined) {
    const message = `is not a member of ${kind}: ${insteadOf(unknown, Object.keys(known))}`;
    return { member: unknown.slice(0, 60), message };
  }
  for (const [member, form] of Object.entries(known)) {
    const message = memberProblemOf((record as Record<string, unknown>)[member], form);
    if (message !== undefined) return { member, message };
  }
  return site && relationProblemOf(kind, record, site);
}

function memberProblemOf(value: unknown, form: string | readonly string[]): string | undefined {
  const isOptional = form === 'ids' || (typeof form === 'string' && form[0] === '?');
  if (value === undefined) return isOptional ? undefined : 'is missing';
  return problemWith(value, (typeof form === 'string' ? form.replace('?', '') : form) as Form);
}

/**
 * Returns the problem with a well-formed record, if any: a reference to an object that does not exist, or a duplicate.
 */
function relationProblemOf(kind: Kind, record: object, site: SiteModel): RecordProblem | undefined {
  if (kind === 'users') return userProblem(record as User, site);
  if (kind === 'client_applications') return applicationProblem(record as Application, site);
  if (kind === 'api_keys') return keyProblem(record as ApiKey, site);
  if (kind === 'thresholds') return thresholdProblem(record as Threshold, site);
  if (kind === 'permissions') return grantProblem(record as Grant, site);
  return undefined;
}

/** The e-mail address must be unique, because it identifies a user at sign-in and in v2. */
function userProblem({ id, email }: User, site: SiteModel): RecordProblem | undefined {
  const other = site.userByEmail(email);
  return other && other.id !== id ? { member: 'email', message: `is already used by user ${other.id}` } : undefined;
}

function applicationProblem(
  { id, technical_user, client_id }: Application,
  site: SiteModel,
): RecordProblem | undefined {
  if (!site.get('users', technical_user)) return { member: 'technical_user', message: 'must be the ID of a user' };
  return client_id === undefined ? undefined : clientIdProblem(id, client_id, site);
}

function keyProblem({ id, client_id, client_application }: ApiKey, site: SiteModel): RecordProblem | undefined {
  if (!site.get('client_applications', client_application)) {
    return { member: 'client_application', message: 'must be the ID of a client application' };
  }
  return clientIdProblem(id, client_id, site);
}

/**
 * Returns a problem if the client ID is used by a different API key. The first key of an application has the same ID as
 * the application.
 */
function clientIdProblem(id: number, clientId: string, site: SiteModel): RecordProblem | undefined {
  const other = site.apiKey(clientId);
  return other && other.id !== id
    ? { member: 'client_id', message: `is already used by API key ${other.id}` }
    : undefined;
}

function thresholdProblem(threshold: Threshold, site: SiteModel): RecordProblem | undefined {
  const { thresholdable_type: type, thresholdable_id: id, unit } = threshold;
  if (!site.get(KIND_OF_THRESHOLDABLE[type], id)) {
    return { member: 'thresholdable_id', message: `must be the ID of a ${type}` };
  }
  if (unit === undefined || site.unitByCode(unit)) return undefined;
  return { member: 'unit', message: 'must be the code of a unit' };
}

function grantProblem({ id, assignable, permitable }: Grant, site: SiteModel): RecordProblem | undefined {
  // v1 adds an offset to the ID (platform 2.2).
  if (id % 8 !== 0) return { member: 'id', message: 'must be a multiple of 8' };
  if (!site.get(assignable.type === 'User' ? 'users' : 'usergroups', assignable.id)) {
    return { member: 'assignable', message: `must be an existing ${assignable.type}` };
  }
  if (!site.get(KIND_OF_PERMITABLE[permitable.type], permitable.id)) {
    return { member: 'permitable', message: `must be an existing ${permitable.type}` };
  }
  const isSame = (a: { type: string; id: number }, b: { type: string; id: number }) =>
    a.type === b.type && a.id === b.id;
  const other = site
    .all('permissions')
    .find((grant) => grant.id !== id && isSame(grant.assignable, assignable) && isSame(grant.permitable, permitable));
  return other && { member: 'permitable', message: `already has a permission for this assignable: ${other.id}` };
}
