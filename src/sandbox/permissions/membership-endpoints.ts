import { type Answer, type Call, idParam, objectBody } from '../http/call.ts';
import { notFound, refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { Stage } from '../stage.ts';
import { readUser } from './wire.ts';

type List = { collection: 'tenants' | 'userroles'; member: 'admins' | 'users' };

const LISTS: readonly List[] = [
  { collection: 'tenants', member: 'admins' },
  { collection: 'tenants', member: 'users' },
  { collection: 'userroles', member: 'users' },
];

/**
 * Adds the endpoints for members (platform 4.3). POST adds members, PATCH replaces all members, and DELETE removes
 * members. v1 identifies users by ID, v2 by e-mail address in `users`. The specification does not show response bodies,
 * so the response is 204.
 */
export function addMembershipEndpoints(router: Router, stage: Stage): void {
  for (const list of LISTS) {
    for (const version of [1, 2] as const) {
      const path = `/v${version}/${list.collection}/:id/${list.member}`;
      for (const method of ['POST', 'PATCH', 'DELETE'] as const) {
        router.add(method, path, (call) => changeMembers(call, stage, list, version));
      }
    }
  }
}

function changeMembers(call: Call, { site, strict }: Stage, list: List, version: 1 | 2): Answer {
  const id = idParam(call, 'id');
  const record = site.get(list.collection, id);
  if (!record) throw notFound(`${list.collection} ${id}`);
  if (strict.has('changers') && !isAdmin(call.caller.user, list, id, site)) {
    throw refusal(403, `members of ${list.collection} can only be changed by an administrator`);
  }
  const attribute = version === 1 ? list.member : 'users';
  const named = objectBody(call)[attribute];
  if (!Array.isArray(named)) throw refusal(400, 'must be a list of users', attribute);
  const users = named.map((one, index) => readUser(one, version, site, `${attribute}[${index}]`));
  const members = record as { admins?: number[]; users: number[] };
  const before = members[list.member] ?? [];
  members[list.member] = changed(call.method, before, users);
  return {
    status: 204,
    story: `${list.member} of ${list.collection} ${id}: ${members[list.member]!.length} instead of ${before.length}`,
  };
}

/**
 * Returns whether the user is an administrator of the tenant. The specification defines no administrators for user
 * roles, so the administrators of any tenant can change them.
 */
function isAdmin(user: number, list: List, id: number, site: SiteModel): boolean {
  const tenants = site.all('tenants').filter((tenant) => list.collection === 'userroles' || tenant.id === id);
  return tenants.some(({ admins }) => admins.includes(user));
}

function changed(method: string, before: readonly number[], users: readonly number[]): number[] {
  if (method === 'POST') return [...new Set([...before, ...users])];
  if (method === 'PATCH') return [...new Set(users)];
  return before.filter((user) => !users.includes(user));
}
