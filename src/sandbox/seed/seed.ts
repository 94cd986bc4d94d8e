import type { PermissionType, PermitableType } from '../../contract/permissions.ts';
import { withoutKey } from '../site/api-keys.ts';
import type { ApiKey, Application, Grant, Kind, Owner, SiteRecords, User } from '../site/records.ts';
import { EMPTY_LISTS, type SiteSnapshot } from '../site/site-model.ts';

/**
 * What a sandbox starts with, as a seed file writes it: every kind of `site/records.ts` as a list of records, with
 * four conveniences. A user may be named by e-mail, a permission needs no id and names user, object and types,
 * relations that are left out are empty, a client application may hold its first API key.
 */
export interface SandboxSeed
  extends Partial<{
    [K in Exclude<Kind, 'users' | 'permissions' | 'client_applications' | 'instrumentations' | 'nodes'>]: Loose<
      SiteRecords[K]
    >[];
  }> {
  users?: (Omit<User, 'technical'> & { technical?: boolean })[];
  instrumentations?: { id: number; tag: string; assets?: number[] }[];
  nodes?: { id: number; name: string; tag?: string; assets?: number[] }[];
  client_applications?: (Omit<Application, 'technical_user'> &
    Partial<Pick<ApiKey, 'client_id' | 'client_secret'>> & { technical_user: number | string })[];
  permissions?: SeedPermission[];
  owners?: { user: number | string; on: SeedPermission['on'] }[];
}

type Loose<Record> = { [Field in keyof Record as Record[Field] extends unknown[] ? never : Field]: Record[Field] } & {
  [Field in keyof Record as Record[Field] extends unknown[] ? Field : never]?: Record[Field];
};

interface SeedPermission {
  /** E-mail or id; or `usergroup`. */
  user?: number | string;
  usergroup?: number;
  /** `{ Asset: 881 }` or `{ Asset: [881, 900] }`, several types at once. */
  on: Partial<Record<PermitableType, number | number[]>>;
  types: PermissionType[];
}

/** Returns a seed as records of the site, permissions `idDistance` apart. Throws `Error` for a user that the seed does not contain. */
export function siteOf(seed: SandboxSeed, idDistance = 8): { site: SiteSnapshot; owners: Owner[] } {
  const users = (seed.users ?? []).map((user) => ({ ...user, technical: user.technical ?? false }));
  const idOf = (user: number | string): number => {
    const found = users.find((one) => one.id === user || one.email === user);
    if (!found) throw new Error(`the seed names the user ${JSON.stringify(user)}, which is not under users`);
    return found.id;
  };
  const site: Record<string, unknown> = {};
  for (const [kind, records] of Object.entries(seed)) {
    if (kind === 'owners' || kind === 'permissions') continue;
    site[kind] = (records as object[]).map((record) => ({
      ...Object.fromEntries((EMPTY_LISTS[kind as Kind] ?? []).map((field) => [field, []])),
      ...record,
    }));
  }
  site.users = users;
  const applications = (seed.client_applications ?? []).map((written) =>
    withoutKey({ ...written, technical_user: idOf(written.technical_user) }),
  );
  site.client_applications = applications.map(({ application }) => application);
  site.api_keys = [...applications.flatMap(({ key }) => key ?? []), ...(seed.api_keys ?? [])];
  let nextId = idDistance;
  const grants: Grant[] = [];
  for (const permission of seed.permissions ?? []) {
    const assignable =
      permission.usergroup === undefined
        ? ({ type: 'User', id: idOf(permission.user ?? '') } as const)
        : ({ type: 'Usergroup', id: permission.usergroup } as const);
    for (const permitable of objectsOf(permission.on)) {
      grants.push({ id: nextId, assignable, permitable, types: [...permission.types] });
      nextId += idDistance;
    }
  }
  site.permissions = grants;
  const owners = (seed.owners ?? []).flatMap((owner) =>
    objectsOf(owner.on).map((permitable) => ({ user: idOf(owner.user), permitable })),
  );
  return { site: site as SiteSnapshot, owners };
}

function objectsOf(on: SeedPermission['on']): { type: PermitableType; id: number }[] {
  return Object.entries(on).flatMap(([type, ids]) =>
    [ids].flat().map((id) => ({ type: type as PermitableType, id: id as number })),
  );
}
