import type { ApiKey, Application, Grant, Kind, Threshold, User } from './records.ts';
import { KIND_OF_PERMITABLE, KIND_OF_THRESHOLDABLE } from './records.ts';
import type { SiteModel } from './site-model.ts';

interface Problem {
  member: string;
  message: string;
}

/** What is wrong with a record, whose form is right, among the others: what it names is not there, or is there already. */
export function relationProblemOf(kind: Kind, record: object, site: SiteModel): Problem | undefined {
  if (kind === 'users') return userProblem(record as User, site);
  if (kind === 'client_applications') return applicationProblem(record as Application & Partial<ApiKey>, site);
  if (kind === 'api_keys') return keyProblem(record as ApiKey, site);
  if (kind === 'thresholds') return thresholdProblem(record as Threshold, site);
  if (kind === 'permissions') return permissionProblem(record as Grant, site);
  return undefined;
}

/** People and machines sign in by it, and v2 names them by it. */
function userProblem({ id, email }: User, site: SiteModel): Problem | undefined {
  const wanted = email.toLowerCase();
  const other = site.all('users').find((user) => user.id !== id && user.email.toLowerCase() === wanted);
  return other && { member: 'email', message: `is user ${other.id}’s already` };
}

function applicationProblem(record: Application & Partial<ApiKey>, site: SiteModel): Problem | undefined {
  if (!site.get('users', record.technical_user)) return { member: 'technical_user', message: 'is the id of no user' };
  const key = record.client_id === undefined ? undefined : site.apiKey(record.client_id);
  // Its first key has its own id (api-keys.ts).
  return key && key.id !== record.id ? { member: 'client_id', message: `is API key ${key.id}’s already` } : undefined;
}

function keyProblem({ id, client_id, client_application }: ApiKey, site: SiteModel): Problem | undefined {
  if (!site.get('client_applications', client_application)) {
    return { member: 'client_application', message: 'is the id of no client application' };
  }
  const other = site.apiKey(client_id);
  return other && other.id !== id ? { member: 'client_id', message: `is API key ${other.id}’s already` } : undefined;
}

function thresholdProblem(threshold: Threshold, site: SiteModel): Problem | undefined {
  const { thresholdable_type: type, thresholdable_id: id, unit } = threshold;
  if (!site.get(KIND_OF_THRESHOLDABLE[type], id)) {
    return { member: 'thresholdable_id', message: `is the id of no ${type}` };
  }
  if (unit === undefined || site.all('units').some((one) => one.code === unit)) return undefined;
  return { member: 'unit', message: 'is the code of no unit' };
}

function permissionProblem({ id, assignable, permitable }: Grant, site: SiteModel): Problem | undefined {
  // Platform 2.2: v1 ids are made of it by adding offsets.
  if (id % 8 !== 0) return { member: 'id', message: 'is no multiple of 8' };
  if (!site.get(assignable.type === 'User' ? 'users' : 'usergroups', assignable.id)) {
    return { member: 'assignable', message: `is no ${assignable.type} that is there` };
  }
  if (!site.get(KIND_OF_PERMITABLE[permitable.type], permitable.id)) {
    return { member: 'permitable', message: `is no ${permitable.type} that is there` };
  }
  const other = site.all('permissions').find((grant) => {
    const isSame = (a: { type: string; id: number }, b: { type: string; id: number }) =>
      a.type === b.type && a.id === b.id;
    return grant.id !== id && isSame(grant.assignable, assignable) && isSame(grant.permitable, permitable);
  });
  return other && { member: 'permitable', message: `is in permission ${other.id} with this assignable already` };
}
