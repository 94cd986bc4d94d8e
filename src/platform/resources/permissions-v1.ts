import type { PermissionCreateV1, PermissionRecordV1, Permitable } from '../../contract/permissions.ts';
import type { PlatformClient } from '../client.ts';
import { listEntries } from '../pages.ts';
import { readPermissionV1 } from './permission-record.ts';

/** Permissions, v1 (platform 2.2, 4.2; deprecated, section 9): one record a type, its id the pair's id plus the type's offset. */
export class PermissionsV1 {
  readonly #client: PlatformClient;

  constructor(client: PlatformClient) {
    this.#client = client;
  }

  /** `POST /v1/permissions`. */
  async create(body: PermissionCreateV1, signal?: AbortSignal): Promise<unknown> {
    return this.#client.act({ method: 'POST', path: '/v1/permissions', body, kind: 'other', signal });
  }

  /** `GET /v1/permissions?permitable_id&permitable_type`. */
  list(permitable: Permitable, signal?: AbortSignal): AsyncIterable<PermissionRecordV1> {
    const query = { permitable_id: permitable.id, permitable_type: permitable.type };
    return listEntries(this.#client, '/v1/permissions', ['permissions'], readPermissionV1, { query, signal });
  }

  /** `GET /v1/permissions/{id}`; the id carries the type's offset. */
  async read(id: string, signal?: AbortSignal): Promise<PermissionRecordV1> {
    const call = { method: 'GET', path: pathOf(id), kind: 'other', signal } as const;
    return readPermissionV1(await this.#client.record(call, 'permission'));
  }

  /** `DELETE /v1/permissions/{id}`: the id's own type, or with `all` every type of the pair. */
  async delete(id: string, options: { all?: boolean; signal?: AbortSignal } = {}): Promise<void> {
    const query = options.all ? { all: true } : {};
    const call = { method: 'DELETE', path: pathOf(id), query, kind: 'other', signal: options.signal } as const;
    await this.#client.act(call);
  }
}

function pathOf(id: string): string {
  return `/v1/permissions/${encodeURIComponent(id)}`;
}
