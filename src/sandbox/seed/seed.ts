import { readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { messageOf, UsageError } from '../../base/errors.ts';
import type { PermissionType, PermitableType } from '../../contract/permissions.ts';
import { isObject } from '../http/call.ts';
import { problemOf } from '../site/record-check.ts';
import {
  type Application,
  emptyRelations,
  type Grant,
  KINDS,
  type Kind,
  type Owner,
  type SeedRecords,
  withoutKey,
} from '../site/records.ts';
import { ID_DISTANCE, type SiteSnapshot } from '../site/site-model.ts';

type SeedApplication = Omit<Application, 'technical_user'> & { technical_user: number | string };

/**
 * Initial state of a sandbox in the format of a seed file: a list of records for every kind in `site/records.ts`. Users
 * can be identified by e-mail address. A permission requires no ID; it specifies the user, the objects and the
 * permission types. Omitted relations are empty. A client application can contain its first API key.
 */
export interface SandboxSeed
  extends Partial<{ [K in Exclude<Kind, 'permissions' | 'client_applications'>]: SeedRecords[K][] }> {
  client_applications?: SeedApplication[];
  permissions?: SeedPermission[];
  owners?: { user: number | string; on: SeedPermission['on'] }[];
}

interface SeedPermission {
  /** E-mail address or ID. Alternatively, `usergroup` is specified. */
  user?: number | string;
  usergroup?: number;
  /** Objects by type, for example `{ Asset: 881 }` or `{ Asset: [881, 900] }`. */
  on: Partial<Record<PermitableType, number | number[]>>;
  types: PermissionType[];
}

/**
 * Converts a seed to site records. Permission IDs are `ID_DISTANCE` apart. Throws an `Error` for a user that the seed
 * does not contain.
 */
export function siteOf(seed: SandboxSeed): { site: SiteSnapshot; owners: Owner[] } {
  const { owners = [], permissions = [], client_applications = [], ...kinds } = seed;
  const idOf = (user: number | string = ''): number => {
    const found = seed.users?.find((one) => one.id === user || one.email === user);
    if (!found) throw new Error(`user ${JSON.stringify(user)} is not defined in the seed`);
    return found.id;
  };
  const site: Record<string, object[]> = {};
  for (const [kind, records] of Object.entries(kinds)) {
    site[kind] = records.map((record) => ({ ...emptyRelations(kind as Kind), ...record }));
  }
  const applications = client_applications.map((one) =>
    withoutKey({ ...one, technical_user: idOf(one.technical_user) }),
  );
  site.client_applications = applications.map(({ application }) => application);
  site.api_keys = [...applications.flatMap(({ key }) => key ?? []), ...(seed.api_keys ?? [])];
  site.permissions = permissions
    .flatMap(({ user, usergroup, on, types }) => {
      const assignable: Grant['assignable'] =
        usergroup === undefined ? { type: 'User', id: idOf(user) } : { type: 'Usergroup', id: usergroup };
      return objectsOf(on).map((permitable) => ({ assignable, permitable, types: [...types] }));
    })
    .map((grant, index) => ({ id: (index + 1) * ID_DISTANCE, ...grant }));
  return {
    site: site as SiteSnapshot,
    owners: owners.flatMap(({ user, on }) => objectsOf(on).map((permitable) => ({ user: idOf(user), permitable }))),
  };
}

function objectsOf(on: SeedPermission['on']): Owner['permitable'][] {
  return Object.entries(on).flatMap(([type, ids]) => [ids].flat().map((id) => ({ type: type as PermitableType, id })));
}

/** Reads a seed from a YAML or JSON file. Throws `UsageError` if the file cannot be read or is invalid. */
export function readSeedFile(file: string): SandboxSeed {
  let seed: unknown;
  try {
    seed = parse(readFileSync(file, 'utf8'));
  } catch (error) {
    throw new UsageError(`cannot read the seed ${file}: ${messageOf(error)}`);
  }
  const hint = `Known members: ${[...KINDS, 'owners'].join(', ')}.`;
  if (!isObject(seed)) throw new UsageError(`the seed ${file} must be a map of lists`, hint);
  for (const [name, records] of Object.entries(seed)) {
    const isKind = (KINDS as readonly string[]).includes(name);
    if (!isKind && name !== 'owners') throw new UsageError(`unknown member ${name} in the seed ${file}`, hint);
    if (!Array.isArray(records)) throw new UsageError(`${name} in the seed ${file} must be a list`);
    if (isKind && name !== 'permissions') for (const record of records) checkRecord(file, name as Kind, record);
  }
  try {
    siteOf(seed);
  } catch (error) {
    throw new UsageError(`${messageOf(error)} (${file})`);
  }
  return seed;
}

function checkRecord(file: string, kind: Kind, record: unknown): void {
  if (!isObject(record) || !Number.isInteger(record.id)) {
    throw new UsageError(`an entry of ${kind} in the seed ${file} has no ID`);
  }
  // A seed can identify the technical user by e-mail address.
  const checked = kind === 'client_applications' ? { ...record, technical_user: 0 } : record;
  const problem = problemOf(kind, checked);
  if (problem) throw new UsageError(`${problem.member} of ${kind} ${record.id} in the seed ${file} ${problem.message}`);
}
