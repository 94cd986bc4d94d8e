import { type MembershipKind, membersBodyV1, membersBodyV2, membershipPath } from '../../contract/membership.ts';
import type { PlatformClient } from '../client.ts';

const METHODS = { add: 'POST', replace: 'PATCH', remove: 'DELETE' } as const;
export type MembershipChange = keyof typeof METHODS;

/**
 * Admins and users of tenants, and users of user roles (platform 4.3). Members can be added and removed, and the whole
 * list can be replaced. The API cannot list members, and responses are not documented.
 */
export class Members {
  readonly #client: PlatformClient;

  constructor(client: PlatformClient) {
    this.#client = client;
  }

  /** v2: identifies users by e-mail address. */
  async change(how: MembershipChange, kind: MembershipKind, id: number, emails: readonly string[]): Promise<void> {
    const path = membershipPath(2, kind, id);
    await this.#client.act({ method: METHODS[how], path, body: membersBodyV2(emails), kind: 'other' });
  }

  /** v1 (deprecated): identifies users by ID. */
  async changeV1(how: MembershipChange, kind: MembershipKind, id: number, userIds: readonly number[]): Promise<void> {
    const path = membershipPath(1, kind, id);
    await this.#client.act({ method: METHODS[how], path, body: membersBodyV1(kind, userIds), kind: 'other' });
  }
}
