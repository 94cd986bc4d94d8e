import { PlatformError } from '../../base/errors.ts';
import {
  composePermissionIdV1,
  type PermissionCreateV1,
  type PermissionRecordV1,
  type PermissionType,
  type Permitable,
} from '../../contract/permissions.ts';
import type { PlatformClient } from '../client.ts';
import { listEntries } from '../pages.ts';

/** Permissions, v1 (platform 2.2, 4.2; deprecated, section 9): one record a type, its id the pair's id plus the type's offset. */
export class PermissionsV1 {
  readonly #client: PlatformClient;

  constructor(client: PlatformClient) {
    this.#client = client;
  }

  /** `POST /v1/permissions`. */
  async create(body: PermissionCreateV1, signal?: AbortSignal): Promise<unknown> {
    return this.#client.call({ method: 'POST', path: '/v1/permissions', body, kind: 'other', signal });
  }

  /** `GET /v1/permissions?permitable_id&permitable_type`. */
  list(permitable: Permitable, signal?: AbortSignal): AsyncIterable<PermissionRecordV1> {
    const query = { permitable_id: permitable.id, permitable_type: permitable.type };
    return listEntries(this.#client, '/v1/permissions', ['permissions'], { query, signal });
  }

  /** `GET /v1/permissions/{id}`; the id carries the type's offset. */
  async read(id: string, signal?: AbortSignal): Promise<PermissionRecordV1 | undefined> {
    return this.#client.call({ method: 'GET', path: pathOf(id), kind: 'other', signal });
  }

  /** `DELETE /v1/permissions/{id}`: the id's own type, or with `all` every type of the pair. */
  async delete(id: string, options: { all?: boolean; signal?: AbortSignal } = {}): Promise<void> {
    const query = options.all ? { all: true } : {};
    const call = { method: 'DELETE', path: pathOf(id), query, kind: 'other', signal: options.signal } as const;
    await this.#client.act(call);
  }

  /**
   * Deletes one type of a pair by the pair's id. `can_permit` cannot be named so, because its offset is not known: take
   * the id from `list`.
   */
  async deleteType(pairId: number, type: PermissionType, signal?: AbortSignal): Promise<void> {
    const id = composePermissionIdV1(pairId, type);
    if (id === undefined) {
      throw new PlatformError(`the v1 id of ${type} cannot be composed: its offset is not known`, {
        code: 'platform.unknown_offset',
        hint: 'List the permissions of the object and use the id that stands there, or use v2.',
      });
    }
    await this.delete(id, signal === undefined ? {} : { signal });
  }
}

function pathOf(id: string): string {
  return `/v1/permissions/${encodeURIComponent(id)}`;
}
