import { type Answer, type Call, idParam, objectBody } from '../http/call.ts';
import { notFound, refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { Strictness } from '../strictness.ts';
import { readUser } from './wire.ts';

type List = { collection: 'tenants' | 'userroles'; member: 'admins' | 'users'; bodyV1: 'admins' | 'users' };

const LISTS: readonly List[] = [
  { collection: 'tenants', member: 'admins', bodyV1: 'admins' },
  { collection: 'tenants', member: 'users', bodyV1: 'users' },
  { collection: 'userroles', member: 'users', bodyV1: 'users' },
];

/** Platform 4.3: POST adds, PATCH replaces the full set, DELETE removes; v1 by id, v2 by e-mail under `users`. Response bodies: not shown, 204. */
export function addMembershipEndpoints(router: Router, site: SiteModel, strict: Strictness): void {
  for (const list of LISTS) {
    for (const version of [1, 2] as const) {
      const path = `/v${version}/${list.collection}/:id/${list.member}`;
      for (const method of ['POST', 'PATCH', 'DELETE'] as const) {
        router.add(method, path, (call) => changeMembers(call, site, list, version, strict));
      }
    }
  }
}

function changeMembers(call: Call, site: SiteModel, list: List, version: 1 | 2, strict: Strictness): Answer {
  const id = idParam(call, 'id');
  const record = site.get(list.collection, id);
  if (!record) throw notFound(`${list.collection} ${id}`);
  if (strict.has('changers') && !isAdmin(call.caller.user, list, id, site)) {
    throw refusal(403, `members of ${list.collection} are changed by an admin`);
  }
  const attribute = version === 1 ? list.bodyV1 : 'users';
  const named = objectBody(call)[attribute];
  if (!Array.isArray(named)) throw refusal(400, 'is no list of users', attribute);
  const users = named.map((one, index) => readUser(one, version, site, `${attribute}[${index}]`));
  const members = record as { admins?: number[]; users: number[] };
  const before = members[list.member] ?? [];
  members[list.member] = changed(call.method, before, users);
  return {
    status: 204,
    story: `${list.member} of ${list.collection} ${id}: ${before.length} become ${members[list.member]!.length}`,
  };
}

/** Of the tenant itself; for a user role, which has none of its own in the spec, of any tenant. */
function isAdmin(user: number, list: List, id: number, site: SiteModel): boolean {
  const tenants = site.all('tenants').filter((tenant) => list.collection === 'userroles' || tenant.id === id);
  return tenants.some(({ admins }) => admins.includes(user));
}

function changed(method: string, before: readonly number[], users: readonly number[]): number[] {
  if (method === 'POST') return [...new Set([...before, ...users])];
  if (method === 'PATCH') return [...new Set(users)];
  return before.filter((user) => !users.includes(user));
}
