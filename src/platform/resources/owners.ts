import type { OwnerV1, OwnerV2 } from '../../contract/permissions.ts';
import type { PlatformClient } from '../client.ts';

/** Owners (platform 4.2): v2 names the user by e-mail, v1 (deprecated) by id. Answers are not specified. */
export class Owners {
  readonly #client: PlatformClient;

  constructor(client: PlatformClient) {
    this.#client = client;
  }

  async add(body: OwnerV2, signal?: AbortSignal): Promise<void> {
    await this.#client.act({ method: 'POST', path: '/v2/owners', body, kind: 'other', signal });
  }

  async remove(body: OwnerV2, signal?: AbortSignal): Promise<void> {
    await this.#client.act({ method: 'DELETE', path: '/v2/owners', body, kind: 'other', signal });
  }

  async addV1(body: OwnerV1, signal?: AbortSignal): Promise<void> {
    await this.#client.act({ method: 'POST', path: '/v1/owners', body, kind: 'other', signal });
  }

  async removeV1(body: OwnerV1, signal?: AbortSignal): Promise<void> {
    await this.#client.act({ method: 'DELETE', path: '/v1/owners', body, kind: 'other', signal });
  }
}
