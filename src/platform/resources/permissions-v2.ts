import type { PermissionCreateV2, PermissionRecordV2, PermissionType, Permitable } from '../../contract/permissions.ts';
import type { PlatformClient } from '../client.ts';
import { listEntries } from '../pages.ts';

/** Permissions, v2 (platform 4.2): one record for a pair of assignable and permitable. */
export class PermissionsV2 {
  readonly #client: PlatformClient;

  constructor(client: PlatformClient) {
    this.#client = client;
  }

  /** `POST /v2/permissions`. What the platform answers is not specified: the record where it gives one. */
  async create(body: PermissionCreateV2, signal?: AbortSignal): Promise<PermissionRecordV2 | undefined> {
    return this.#client.call({ method: 'POST', path: '/v2/permissions', body, kind: 'other', signal });
  }

  /** `GET /v2/permissions?permitable_id&permitable_type`. */
  list(permitable: Permitable, signal?: AbortSignal): AsyncIterable<PermissionRecordV2> {
    const query = { permitable_id: permitable.id, permitable_type: permitable.type };
    return listEntries(this.#client, '/v2/permissions', ['permissions'], { query, signal });
  }

  /** `GET /v2/permissions/{id}`. */
  async read(id: number, signal?: AbortSignal): Promise<PermissionRecordV2 | undefined> {
    return this.#client.call({ method: 'GET', path: `/v2/permissions/${id}`, kind: 'other', signal });
  }

  /** `PATCH /v2/permissions/{id}`: the pair has these types from now on. */
  async change(
    id: number,
    types: readonly PermissionType[],
    signal?: AbortSignal,
  ): Promise<PermissionRecordV2 | undefined> {
    const body = { permission_types: types };
    return this.#client.call({ method: 'PATCH', path: `/v2/permissions/${id}`, body, kind: 'other', signal });
  }

  /** `DELETE /v2/permissions/{id}`: takes away all types of the pair. */
  async delete(id: number, signal?: AbortSignal): Promise<void> {
    await this.#client.act({ method: 'DELETE', path: `/v2/permissions/${id}`, kind: 'other', signal });
  }
}
