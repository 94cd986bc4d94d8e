import type { Plant } from './plant.ts';
import type { ApiKey, Application, Grant, Kind, Threshold, User } from './records.ts';
import { KIND_OF_PERMITABLE, KIND_OF_THRESHOLDABLE } from './records.ts';

interface Problem {
  member: string;
  message: string;
}

/** What is wrong with a record, whose form is right, among the others: what it names is not there, or is there already. */
export function relationProblemOf(kind: Kind, record: object, plant: Plant): Problem | undefined {
  if (kind === 'users') return userProblem(record as User, plant);
  if (kind === 'client_applications') return applicationProblem(record as Application & Partial<ApiKey>, plant);
  if (kind === 'api_keys') return keyProblem(record as ApiKey, plant);
  if (kind === 'thresholds') return thresholdProblem(record as Threshold, plant);
  if (kind === 'permissions') return permissionProblem(record as Grant, plant);
  return undefined;
}

/** People and machines sign in by it, and v2 names them by it. */
function userProblem({ id, email }: User, plant: Plant): Problem | undefined {
  const wanted = email.toLowerCase();
  const other = plant.all('users').find((user) => user.id !== id && user.email.toLowerCase() === wanted);
  return other && { member: 'email', message: `is user ${other.id}’s already` };
}

function applicationProblem(record: Application & Partial<ApiKey>, plant: Plant): Problem | undefined {
  if (!plant.get('users', record.technical_user)) return { member: 'technical_user', message: 'is the id of no user' };
  const key = record.client_id === undefined ? undefined : plant.apiKey(record.client_id);
  // Its first key has its own id (api-keys.ts).
  return key && key.id !== record.id ? { member: 'client_id', message: `is API key ${key.id}’s already` } : undefined;
}

function keyProblem({ id, client_id, client_application }: ApiKey, plant: Plant): Problem | undefined {
  if (!plant.get('client_applications', client_application)) {
    return { member: 'client_application', message: 'is the id of no client application' };
  }
  const other = plant.apiKey(client_id);
  return other && other.id !== id ? { member: 'client_id', message: `is API key ${other.id}’s already` } : undefined;
}

function thresholdProblem(threshold: Threshold, plant: Plant): Problem | undefined {
  const { thresholdable_type: type, thresholdable_id: id, unit } = threshold;
  if (!plant.get(KIND_OF_THRESHOLDABLE[type], id)) {
    return { member: 'thresholdable_id', message: `is the id of no ${type}` };
  }
  if (unit === undefined || plant.all('units').some((one) => one.code === unit)) return undefined;
  return { member: 'unit', message: 'is the code of no unit' };
}

function permissionProblem({ id, assignable, permitable }: Grant, plant: Plant): Problem | undefined {
  // Spec 2.2: v1 ids are made of it by adding offsets.
  if (id % 8 !== 0) return { member: 'id', message: 'is no multiple of 8' };
  if (!plant.get(assignable.type === 'User' ? 'users' : 'usergroups', assignable.id)) {
    return { member: 'assignable', message: `is no ${assignable.type} that is there` };
  }
  if (!plant.get(KIND_OF_PERMITABLE[permitable.type], permitable.id)) {
    return { member: 'permitable', message: `is no ${permitable.type} that is there` };
  }
  const other = plant.all('permissions').find((grant) => {
    const isSame = (a: { type: string; id: number }, b: { type: string; id: number }) =>
      a.type === b.type && a.id === b.id;
    return grant.id !== id && isSame(grant.assignable, assignable) && isSame(grant.permitable, permitable);
  });
  return other && { member: 'permitable', message: `is in permission ${other.id} with this assignable already` };
}
