import type { OwnerV1, OwnerV2 } from '../../contract/permissions.ts';
import type { PlatformClient } from '../client.ts';

/**
 * Owners (platform 4.2). v2 identifies the user by e-mail address, v1 (deprecated) by ID. Responses are not documented.
 */
export class Owners {
  readonly #client: PlatformClient;

  constructor(client: PlatformClient) {
    this.#client = client;
  }

  async add(body: OwnerV1 | OwnerV2): Promise<void> {
    await this.#client.act({ method: 'POST', path: pathOf(body), body, kind: 'other' });
  }

  async remove(body: OwnerV1 | OwnerV2): Promise<void> {
    await this.#client.act({ method: 'DELETE', path: pathOf(body), body, kind: 'other' });
  }
}

function pathOf({ assignable }: OwnerV1 | OwnerV2): string {
  return 'email' in assignable ? '/v2/owners' : '/v1/owners';
}
