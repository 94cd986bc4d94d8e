import { readEventRequest, triggerEvent } from '../causes/trigger.ts';
import type { SiteChanges } from '../events/site-changes.ts';
import { type Answer, type Call, idParam, objectBody } from '../http/call.ts';
import { notFound, refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import { isNullable, problemOf } from '../site/record-check.ts';
import { emptyRelations, KINDS, type Kind, type SiteRecords } from '../site/records.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { Stage } from '../stage.ts';

/**
 * Adds the endpoints that change the site: event triggers and access to records of all kinds.
 */
export function addSiteEndpoints(router: Router, stage: Stage): void {
  const { site, changes, permissions } = stage;
  const add = (method: string, path: string, handle: (call: Call) => Answer) =>
    router.add(method, `/sandbox/${path}`, handle, { auth: 'none' });

  add('POST', 'causes/:type', (call) => {
    const request = call.raw.length === 0 ? {} : readEventRequest(objectBody(call));
    return { status: 200, body: triggerEvent(stage, call.params.type ?? '', request) };
  });

  add('POST', 'objects/edge_devices/:id/seen', (call) => {
    changes.edgeDeviceSeen(idParam(call, 'id'));
    return { status: 204 };
  });

  // Owners have no IDs and can be changed only with /v1/owners and /v2/owners.
  add('GET', 'objects/owners', () => ({ status: 200, body: { objects: permissions.owners } }));
  add('GET', 'objects/:kind', (call) => ({ status: 200, body: { objects: site.all(kindOf(call)) } }));
  add('POST', 'objects/:kind', (call) => {
    const { id: _ignored, ...members } = objectBody(call);
    return { status: 201, body: store(stage, kindOf(call), site.newId(), members) };
  });
  // PUT replaces a record, so omitted members are removed. PATCH changes members; null removes a member.
  add('PUT', 'objects/:kind/:id', (call) => {
    const [kind, id] = [kindOf(call), idParam(call, 'id')];
    const status = site.get(kind, id) ? 200 : 201;
    return { status, body: store(stage, kind, id, objectBody(call)) };
  });
  add('PATCH', 'objects/:kind/:id', (call) => {
    const [kind, id] = [kindOf(call), idParam(call, 'id')];
    return { status: 200, body: store(stage, kind, id, objectBody(call), site.found(kind, id)) };
  });
  add('DELETE', 'objects/:kind/:id', (call) => {
    changes.destroy(kindOf(call), idParam(call, 'id'));
    return { status: 204 };
  });
}

function kindOf(call: Call): Kind {
  const kind = call.params.kind as Kind;
  if (!KINDS.includes(kind)) throw notFound(`the kind ${call.params.kind}`);
  return kind;
}

function store(
  stage: Pick<Stage, 'site' | 'changes'>,
  kind: Kind,
  id: number,
  members: object,
  before?: object,
): object {
  const { site, changes }: { site: SiteModel; changes: SiteChanges } = stage;
  const written = { ...emptyRelations(kind), ...before, ...members, id };
  // Null removes a member, unless null is a valid value for it.
  const record = Object.fromEntries(
    Object.entries(written).filter(([name, value]) => value !== null || before === undefined || isNullable(kind, name)),
  );
  const problem = problemOf(kind, record, site);
  if (problem) throw refusal(400, problem.message, problem.member);
  changes.put(kind, record as unknown as SiteRecords[Kind]);
  return record;
}
