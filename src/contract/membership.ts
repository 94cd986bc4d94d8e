/**
 * Membership of tenants and user roles (platform 4.3). POST adds, PATCH replaces the full set, DELETE removes; v1 names
 * users by id, v2 by e-mail. v2 bodies always say `users`; the v1 body of a tenant's admins says `admins`.
 */
export const MEMBERSHIP_KINDS = ['tenant-admins', 'tenant-users', 'userrole-users'] as const;
export type MembershipKind = (typeof MEMBERSHIP_KINDS)[number];

export interface MembersV1 {
  admins?: { id: number }[];
  users?: { id: number }[];
}

export interface MembersV2 {
  users: { email: string }[];
}

const PLACES: Record<MembershipKind, { collection: string; list: string; memberV1: 'admins' | 'users' }> = {
  'tenant-admins': { collection: 'tenants', list: 'admins', memberV1: 'admins' },
  'tenant-users': { collection: 'tenants', list: 'users', memberV1: 'users' },
  'userrole-users': { collection: 'userroles', list: 'users', memberV1: 'users' },
};

/** The path of a membership list: `/v2/tenants/5/admins`. */
export function membershipPath(version: 1 | 2, kind: MembershipKind, objectId: number): string {
  const { collection, list } = PLACES[kind];
  return `/v${version}/${collection}/${objectId}/${list}`;
}

/** The v1 body: users by id, under the member that the list asks for. */
export function membersBodyV1(kind: MembershipKind, userIds: readonly number[]): MembersV1 {
  return { [PLACES[kind].memberV1]: userIds.map((id) => ({ id })) };
}

/** The v2 body: users by e-mail. */
export function membersBodyV2(emails: readonly string[]): MembersV2 {
  return { users: emails.map((email) => ({ email })) };
}
