/**
 * Why a user sees an object (platform 2.2). A permission is direct, or inherited from a related object: the instrumentation that an asset
 * is assigned to, the node that it is under, the asset that it is a part of. The API lists the permissions on an object only: relations
 * come from tags.yaml and from the caller, and everything that the API does not list is reported as unknown.
 */
import { readTagsLeniently } from '../../config/configuration.ts';
import type { PermissionRecordV2, Permitable, PermitableType } from '../../contract/permissions.ts';
import { CallRefusal } from '../../platform/call-refusal.ts';
import type { PlatformClient } from '../../platform/client.ts';
import { allEntries } from '../../platform/pages.ts';
import { PermissionsV2 } from '../../platform/resources/permissions-v2.ts';
import { SOURCE_KINDS } from '../../sources/kinds.ts';
import { isSameAssignable, nameOfPermitable } from './named-objects.ts';

export interface Reason {
  /** The record, as `permissions take` names it. */
  id: number;
  types: string[];
  on: Permitable;
  /** From the object that the permission is on to the one that was asked about; empty where it is the same. */
  way: string[];
  /** The record is a user group's: it counts where the user is a member, which the API does not tell. */
  usergroup?: number;
}

export interface Explanation {
  user: string;
  object: Permitable;
  /** `unknown`: nothing that could be seen gives can_read, but not everything can be seen. */
  sees: 'yes' | 'if a member' | 'unknown';
  direct: Reason[];
  inherited: Reason[];
  /** What the API did not tell, as sentences. */
  unknowns: string[];
}

/** What the person who asks knows of the object's relations. */
export interface KnownRelations {
  instrumentation: readonly number[];
  node: readonly number[];
  parent: readonly number[];
}

interface Relation {
  to: Permitable;
  because: string;
}

interface Found {
  direct: Reason[];
  inherited: Reason[];
  unknowns: Set<string>;
}

export async function explain(
  reader: PlatformClient,
  user: string,
  object: Permitable,
  known: KnownRelations,
  directory: string,
): Promise<Explanation> {
  const found: Found = { direct: [], inherited: [], unknowns: new Set() };
  await lookAt(reader, user, { at: object, way: [] }, found);
  const name = nameOfPermitable(object);
  const seen = new Set([name]);
  for (const { to, because } of [...knownRelations(known), ...relationsOfTags(object, directory)]) {
    const related = nameOfPermitable(to);
    if (seen.has(related)) continue;
    seen.add(related);
    await lookAt(reader, user, { at: to, way: [`${name} ${because} ${related}`] }, found);
  }
  if (object.type === 'Asset') {
    found.unknowns.add(
      `Other relations of ${name}: the API does not list them. Use --instrumentation, --node or --parent.`,
    );
  }
  found.unknowns.add('Owners: the API has no call that lists them.');
  const { direct, inherited } = found;
  return {
    user,
    object,
    sees: verdict([...direct, ...inherited]),
    direct,
    inherited,
    unknowns: [...found.unknowns],
  };
}

function verdict(reasons: readonly Reason[]): Explanation['sees'] {
  const reading = reasons.filter((reason) => reason.types.includes('can_read'));
  if (reading.some((reason) => reason.usergroup === undefined)) return 'yes';
  return reading.length > 0 ? 'if a member' : 'unknown';
}

async function lookAt(
  reader: PlatformClient,
  user: string,
  { at, way }: { at: Permitable; way: string[] },
  found: Found,
): Promise<void> {
  let records: PermissionRecordV2[];
  try {
    records = await allEntries(new PermissionsV2(reader).list(at));
  } catch (error) {
    if (way.length === 0 || !isRefusal(error)) throw error;
    found.unknowns.add(`Permissions on ${nameOfPermitable(at)}: you may not see them (${error.status}).`);
    return;
  }
  for (const record of records) {
    const reason = reasonOf(record, user, at, way);
    if (reason === undefined) continue;
    (way.length === 0 ? found.direct : found.inherited).push(reason);
    if (reason.usergroup !== undefined) {
      found.unknowns.add(`Whether ${user} is in usergroup/${reason.usergroup}: the API does not list members.`);
    }
  }
}

function reasonOf(record: PermissionRecordV2, user: string, on: Permitable, way: string[]): Reason | undefined {
  const { id, assignable, permission_types: types } = record;
  const base = { id, types, on, way };
  if (assignable?.type === 'Usergroup') return { ...base, usergroup: assignable.id };
  return isSameAssignable(assignable, { email: user, type: 'User' }) ? base : undefined;
}

function knownRelations({ instrumentation, node, parent }: KnownRelations): Relation[] {
  return [
    ...instrumentation.map((id) => relation('Instrumentation', id)),
    ...node.map((id) => relation('Node', id)),
    ...parent.map((id) => relation('Asset', id)),
  ];
}

const BECAUSE: Partial<Record<PermitableType, string>> = {
  Instrumentation: 'is assigned to',
  Node: 'is under',
  Asset: 'is a part of',
};

function relation(type: PermitableType, id: number): Relation {
  return { to: { type, id }, because: BECAUSE[type] ?? 'belongs to' };
}

/** tags.yaml names the instrumentation of an asset; what is wrong with the file is `check`'s business. */
function relationsOfTags(object: Permitable, directory: string): Relation[] {
  if (object.type !== 'Asset') return [];
  return [...readTagsLeniently({ directory, environment: process.env, kinds: SOURCE_KINDS }).tags.values()].flatMap(
    (tag) =>
      tag.asset === object.id && tag.instrumentation !== undefined
        ? [relation('Instrumentation', tag.instrumentation)]
        : [],
  );
}

/** Answers that mean "not for you" or "there is no such call": anything else is a failure. */
function isRefusal(error: unknown): error is CallRefusal {
  return error instanceof CallRefusal && [400, 403, 404, 405, 410, 422, 501].includes(error.status);
}
