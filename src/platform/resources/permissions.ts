import {
  type AssignableV1,
  type AssignableV2,
  PERMITABLE_TYPES,
  type PermissionCreateV1,
  type PermissionCreateV2,
  type PermissionRecordV1,
  type PermissionRecordV2,
  type Permitable,
} from '../../contract/permissions.ts';
import type { PlatformClient } from '../client.ts';
import { listEntries } from '../pages.ts';
import type { ResponseRecord } from '../response-record.ts';

/** Permissions, v2 (platform 4.2): one record per pair of assignable and permitable. */
export class PermissionsV2 {
  readonly #client: PlatformClient;

  constructor(client: PlatformClient) {
    this.#client = client;
  }

  /** `POST /v2/permissions`. Returns the JSON object in the response, whose format is not documented. */
  async create(body: PermissionCreateV2): Promise<object | undefined> {
    return this.#client.act({ method: 'POST', path: '/v2/permissions', body, kind: 'other' });
  }

  /** `GET /v2/permissions?permitable_id&permitable_type`. */
  list(permitable: Permitable, signal?: AbortSignal): AsyncIterable<PermissionRecordV2> {
    const query = { permitable_id: permitable.id, permitable_type: permitable.type };
    return listEntries(this.#client, '/v2/permissions', ['permissions'], readPermissionV2, { query, signal });
  }

  /** `GET /v2/permissions/{id}`. */
  async read(id: number): Promise<PermissionRecordV2> {
    const call = { method: 'GET', path: `/v2/permissions/${id}`, kind: 'other' } as const;
    return readPermissionV2(await this.#client.record(call, 'permission'));
  }

  /** `PATCH /v2/permissions/{id}`: replaces the permission types of the pair. */
  async change(id: number, types: readonly string[]): Promise<void> {
    const body = { permission_types: types };
    await this.#client.act({ method: 'PATCH', path: `/v2/permissions/${id}`, body, kind: 'other' });
  }

  /** `DELETE /v2/permissions/{id}`: deletes all permission types of the pair. */
  async delete(id: number): Promise<void> {
    await this.#client.act({ method: 'DELETE', path: `/v2/permissions/${id}`, kind: 'other' });
  }
}

/**
 * Permissions, v1 (platform 2.2, 4.2; deprecated, section 9). Each permission type has a record, whose ID is the ID of
 * the pair plus the offset of the permission type.
 */
export class PermissionsV1 {
  readonly #client: PlatformClient;

  constructor(client: PlatformClient) {
    this.#client = client;
  }

  /** `POST /v1/permissions`. */
  async create(body: PermissionCreateV1): Promise<unknown> {
    return this.#client.act({ method: 'POST', path: '/v1/permissions', body, kind: 'other' });
  }

  /** `GET /v1/permissions?permitable_id&permitable_type`. */
  list({ id, type }: Permitable): AsyncIterable<PermissionRecordV1> {
    const query = { permitable_id: id, permitable_type: type };
    return listEntries(this.#client, '/v1/permissions', ['permissions'], readPermissionV1, { query });
  }

  /** `GET /v1/permissions/{id}`. The ID includes the offset of the permission type. */
  async read(id: string): Promise<PermissionRecordV1> {
    const call = { method: 'GET', path: pathOf(id), kind: 'other' } as const;
    return readPermissionV1(await this.#client.record(call, 'permission'));
  }

  /**
   * `DELETE /v1/permissions/{id}`: deletes the permission type with this ID, or with `all` every permission type of the
   * pair.
   */
  async delete(id: string, all = false): Promise<void> {
    const query = all ? { all } : {};
    const call = { method: 'DELETE', path: pathOf(id), query, kind: 'other' } as const;
    await this.#client.act(call);
  }
}

function pathOf(id: string): string {
  return `/v1/permissions/${encodeURIComponent(id)}`;
}

/**
 * Reads a permission record in a response (platform 2.2). Assignable and permitable may be absent, because the
 * specification does not show a complete record.
 */
export function readPermissionV2(record: ResponseRecord): PermissionRecordV2 {
  const assignable = record.optional('assignable', record.record);
  return {
    id: record.integer('id'),
    permission_types: record.strings('permission_types'),
    ...(assignable === undefined ? {} : { assignable: readAssignable(assignable) }),
    ...permitableIn(record),
  };
}

export function readPermissionV1(record: ResponseRecord): PermissionRecordV1 {
  const assignable = record.optional('assignable', record.record);
  return {
    // According to the specification, a string of digits.
    id: String(record.integer('id')),
    permission_type: record.string('permission_type'),
    ...(assignable === undefined ? {} : { assignable: readAssignableById(assignable) }),
    ...permitableIn(record),
  };
}

function readAssignable(record: ResponseRecord): AssignableV2 | AssignableV1 {
  if (record.has('email')) return { email: record.string('email'), type: 'User' };
  return readAssignableById(record);
}

function readAssignableById(record: ResponseRecord): AssignableV1 {
  return { id: record.integer('id'), type: record.string('type') === 'Usergroup' ? 'Usergroup' : 'User' };
}

/** Reads the permitable. If its type is not listed in the specification, the permitable is treated as absent. */
function permitableIn(record: ResponseRecord): { permitable?: Permitable } {
  const permitable = record.optional('permitable', record.record);
  if (permitable === undefined) return {};
  const name = permitable.string('type');
  const type = PERMITABLE_TYPES.find((one) => one === name);
  return type === undefined ? {} : { permitable: { id: permitable.integer('id'), type } };
}
