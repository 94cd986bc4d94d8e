import type { PermissionCreateV2, PermissionRecordV2, Permitable } from '../../contract/permissions.ts';
import type { PlatformClient } from '../client.ts';
import { listEntries } from '../pages.ts';
import { readPermissionV2 } from './permission-record.ts';

/** Permissions, v2 (platform 4.2): one record for a pair of assignable and permitable. */
export class PermissionsV2 {
  readonly #client: PlatformClient;

  constructor(client: PlatformClient) {
    this.#client = client;
  }

  /** `POST /v2/permissions`. Returns the JSON object in the response, whose form is not documented. */
  async create(body: PermissionCreateV2, signal?: AbortSignal): Promise<object | undefined> {
    return this.#client.act({ method: 'POST', path: '/v2/permissions', body, kind: 'other', signal });
  }

  /** `GET /v2/permissions?permitable_id&permitable_type`. */
  list(permitable: Permitable, signal?: AbortSignal): AsyncIterable<PermissionRecordV2> {
    const query = { permitable_id: permitable.id, permitable_type: permitable.type };
    return listEntries(this.#client, '/v2/permissions', ['permissions'], readPermissionV2, { query, signal });
  }

  /** `GET /v2/permissions/{id}`. */
  async read(id: number, signal?: AbortSignal): Promise<PermissionRecordV2> {
    const call = { method: 'GET', path: `/v2/permissions/${id}`, kind: 'other', signal } as const;
    return readPermissionV2(await this.#client.record(call, 'permission'));
  }

  /** `PATCH /v2/permissions/{id}`: replaces the types of the pair. */
  async change(id: number, types: readonly string[], signal?: AbortSignal): Promise<void> {
    const body = { permission_types: types };
    await this.#client.act({ method: 'PATCH', path: `/v2/permissions/${id}`, body, kind: 'other', signal });
  }

  /** `DELETE /v2/permissions/{id}`: takes away all types of the pair. */
  async delete(id: number, signal?: AbortSignal): Promise<void> {
    await this.#client.act({ method: 'DELETE', path: `/v2/permissions/${id}`, kind: 'other', signal });
  }
}
