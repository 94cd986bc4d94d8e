/**
 * Membership of tenants and user roles (platform 4.3). POST adds users, PATCH replaces the full set, and DELETE removes
 * users. Users are identified by ID in v1 and by e-mail in v2. Bodies have the member `users` in v2; the v1 body for a
 * tenant's admins has `admins`.
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

/** Returns the path of a membership list: `/v2/tenants/5/admins`. */
export function membershipPath(version: 1 | 2, kind: MembershipKind, objectId: number): string {
  const { collection, list } = PLACES[kind];
  return `/v${version}/${collection}/${objectId}/${list}`;
}

/** Returns the v1 body: users by ID, under the member of the list. */
export function membersBodyV1(kind: MembershipKind, userIds: readonly number[]): MembersV1 {
  return { [PLACES[kind].memberV1]: userIds.map((id) => ({ id })) };
}

/** Returns the v2 body: users by e-mail. */
export function membersBodyV2(emails: readonly string[]): MembersV2 {
  return { users: emails.map((email) => ({ email })) };
}
