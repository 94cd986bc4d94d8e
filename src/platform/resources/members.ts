import { type MembershipKind, membersBodyV1, membersBodyV2, membershipPath } from '../../contract/membership.ts';
import type { PlatformClient } from '../client.ts';

const METHODS = { add: 'POST', replace: 'PATCH', remove: 'DELETE' } as const;
export type MembershipChange = keyof typeof METHODS;

/**
 * Admins and users of tenants, users of user roles (platform 4.3): `add`, `replace` the full set, `remove`.
 * There is no call that lists them, and answers are not specified.
 */
export class Members {
  readonly #client: PlatformClient;

  constructor(client: PlatformClient) {
    this.#client = client;
  }

  /** v2: users by e-mail. */
  async change(
    how: MembershipChange,
    kind: MembershipKind,
    objectId: number,
    emails: readonly string[],
    signal?: AbortSignal,
  ): Promise<void> {
    const path = membershipPath(2, kind, objectId);
    await this.#client.act({ method: METHODS[how], path, body: membersBodyV2(emails), kind: 'other', signal });
  }

  /** v1 (deprecated): users by id. */
  async changeV1(
    how: MembershipChange,
    kind: MembershipKind,
    objectId: number,
    userIds: readonly number[],
    signal?: AbortSignal,
  ): Promise<void> {
    const path = membershipPath(1, kind, objectId);
    await this.#client.act({
      method: METHODS[how],
      path,
      body: membersBodyV1(kind, userIds),
      kind: 'other',
      signal,
    });
  }
}
