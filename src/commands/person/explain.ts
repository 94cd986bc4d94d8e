import { plain } from '../../base/foreign-text.ts';
import { table } from '../../base/table.ts';
import { readTagsLeniently } from '../../config/configuration.ts';
import type { PermissionRecordV2, Permitable, PermitableType } from '../../contract/permissions.ts';
import type { PlatformClient } from '../../platform/client.ts';
import { listPermissions } from '../../platform/resources/permissions.ts';
import { CallRefusal } from '../../platform/response-meanings.ts';
import { SOURCE_KINDS } from '../../sources/kinds.ts';
import { isSameAssignable, nameOfPermitable } from './named-objects.ts';

/**
 * Reason why a user can see an object (platform 2.2). A permission is direct or inherited from a related object: an
 * asset's instrumentation, its parent node, or the asset that it is part of. The API lists only an object's direct
 * permissions. Relations come from tags.yaml and from the caller. Everything that the API does not list is reported as
 * unknown.
 */

interface Reason {
  /** Permission record ID. */
  id: number;
  types: string[];
  on: Permitable;
  /** Relations between the object of the permission and the requested object; empty if both are the same. */
  way: string[];
  /** User group in the record. The record applies only to group members, whom the API does not list. */
  usergroup?: number;
}

export interface Explanation {
  user: string;
  object: Permitable;
  /** `unknown`: no visible permission includes can_read, but some permissions may not be visible. */
  sees: 'yes' | 'if a member' | 'unknown';
  direct: Reason[];
  inherited: Reason[];
  /** Sentences about facts that the API does not provide. */
  unknowns: string[];
}

/** Relations of the object, as specified by command-line options. */
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
  await collectReasons(reader, user, { at: object, way: [] }, found);
  const name = nameOfPermitable(object);
  const seen = new Set([name]);
  for (const { to, because } of [...knownRelations(known), ...relationsOfTags(object, directory)]) {
    const related = nameOfPermitable(to);
    if (seen.has(related)) continue;
    seen.add(related);
    await collectReasons(reader, user, { at: to, way: [`${name} ${because} ${related}`] }, found);
  }
  if (object.type === 'Asset') {
    found.unknowns.add(
      `The API does not list other relations of ${name}. Specify them with --instrumentation, --node or --parent.`,
    );
  }
  found.unknowns.add('The API has no call to list owners.');
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

async function collectReasons(
  reader: PlatformClient,
  user: string,
  { at, way }: { at: Permitable; way: string[] },
  found: Found,
): Promise<void> {
  let records: PermissionRecordV2[];
  try {
    records = await Array.fromAsync(listPermissions(reader, 2, at));
  } catch (error) {
    if (way.length === 0 || !isRefusal(error)) throw error;
    found.unknowns.add(`You cannot view the permissions on ${nameOfPermitable(at)} (${error.status}).`);
    return;
  }
  for (const record of records) {
    const reason = reasonOf(record, user, at, way);
    if (reason === undefined) continue;
    (way.length === 0 ? found.direct : found.inherited).push(reason);
    if (reason.usergroup !== undefined) {
      found.unknowns.add(`The API does not report whether ${user} is a member of usergroup/${reason.usergroup}.`);
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

/** Returns an asset's relations to instrumentations in tags.yaml. */
function relationsOfTags(object: Permitable, directory: string): Relation[] {
  if (object.type !== 'Asset') return [];
  return [...readTagsLeniently({ directory, environment: process.env, kinds: SOURCE_KINDS }).tags.values()].flatMap(
    (tag) =>
      tag.asset === object.id && tag.instrumentation !== undefined
        ? [relation('Instrumentation', tag.instrumentation)]
        : [],
  );
}

/** Returns whether the platform denied access or does not support the call. Other errors are failures. */
function isRefusal(error: unknown): error is CallRefusal {
  return error instanceof CallRefusal && [400, 403, 404, 405, 410, 422, 501].includes(error.status);
}

export function explanationText(explanation: Explanation): string {
  const { user, object, sees, direct, inherited, unknowns } = explanation;
  const name = nameOfPermitable(object);
  const verdicts = {
    yes: `${user} sees ${name}.`,
    'if a member': `${user} sees ${name} only as a member of a user group that has the permission.`,
    unknown: `No visible permission lets ${user} see ${name}.`,
  };
  return [
    verdicts[sees],
    ...section('Direct', direct, () => `on ${name}`),
    ...section('Inherited', inherited, ({ way }) => way.toReversed().join(', ')),
    ...(unknowns.length === 0 ? [] : ['', 'Unknown', ...unknowns.map((one) => `  ${plain(one)}`)]),
  ].join('\n');
}

function section(title: string, reasons: readonly Reason[], words: (reason: Reason) => string): string[] {
  if (reasons.length === 0) return ['', title, '  none'];
  const rows = reasons.map((reason) => [
    `  permission ${reason.id}`,
    plain(reason.types.join(', ')),
    `${words(reason)}${reason.usergroup === undefined ? '' : `, for usergroup/${reason.usergroup}`}`,
  ]);
  return ['', title, table(rows)];
}
