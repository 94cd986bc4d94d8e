import type { NewEvent } from '../events/event-changes.ts';
import type { SiteChanges } from '../events/site-changes.ts';
import { type Answer, type Call, idParam, isObject, objectBody } from '../http/call.ts';
import { notFound, refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import { mayBeNull, problemOf } from '../site/record-check.ts';
import { KINDS, type Kind, type Owner, type SiteRecords } from '../site/records.ts';
import type { SiteModel } from '../site/site-model.ts';
import { mustKnow } from './admin-body.ts';

type Body = Record<string, unknown>;
/** What a change does, and the members that it takes. */
interface Change {
  takes: readonly string[];
  make(changes: SiteChanges, body: Body): unknown;
}

const number = (body: Body, name: string): number => {
  if (!Number.isSafeInteger(body[name])) throw refusal(400, 'is no whole number', name);
  return body[name] as number;
};
const record = (body: Body, name: string): Body => {
  const value = body[name];
  if (!isObject(value)) throw refusal(400, 'is not an object', name);
  return value;
};

/** `POST /sandbox/changes/<name>`: what each needs, and what it does. */
const CHANGES: Readonly<Record<string, Change>> = {
  'update-asset': {
    takes: ['asset', 'changes'],
    make: (changes, body) => changes.updateAsset(number(body, 'asset'), record(body, 'changes')),
  },
  'update-edge-device': {
    takes: ['edge_device', 'changes'],
    make: (changes, body) => changes.updateEdgeDevice(number(body, 'edge_device'), record(body, 'changes')),
  },
  'edge-device-seen': {
    takes: ['edge_device'],
    make: (changes, body) => changes.edgeDevices.seen(number(body, 'edge_device')),
  },
  'add-software': {
    takes: ['asset', 'software'],
    make: (changes, body) => changes.addSoftware(number(body, 'asset'), number(body, 'software')),
  },
  associate: {
    takes: ['asset', 'instrumentation'],
    make: (changes, body) => changes.associate(number(body, 'asset'), number(body, 'instrumentation')),
  },
  dissociate: {
    takes: ['asset', 'instrumentation'],
    make: (changes, body) => changes.dissociate(number(body, 'asset'), number(body, 'instrumentation')),
  },
  'put-under-node': {
    takes: ['asset', 'node'],
    make: (changes, body) => changes.setUnderNode(number(body, 'asset'), number(body, 'node'), true),
  },
  'take-from-node': {
    takes: ['asset', 'node'],
    make: (changes, body) => changes.setUnderNode(number(body, 'asset'), number(body, 'node'), false),
  },
  'asset-specifications': {
    takes: ['asset', 'specifications'],
    make: (changes, body) => changes.setSpecifications('assets', number(body, 'asset'), record(body, 'specifications')),
  },
  'event-specifications': {
    takes: ['event', 'specifications'],
    make: (changes, body) => changes.setSpecifications('events', number(body, 'event'), record(body, 'specifications')),
  },
  'create-event': {
    takes: ['id', 'name', 'type', 'status', 'responsible', 'assets', 'instrumentations', 'documents'],
    make: (changes, body) => ({ id: changes.createEvent(body as unknown as NewEvent) }),
  },
  'add-document': {
    takes: ['event', 'document'],
    make: (changes, body) => changes.addDocument(number(body, 'event'), number(body, 'document')),
  },
  'health-conditions': {
    takes: ['asset', 'status', 'conditions'],
    make: (changes, body) => {
      if (!Array.isArray(body.conditions)) throw refusal(400, 'is no list', 'conditions');
      changes.setHealthConditions(number(body, 'asset'), number(body, 'status'), body.conditions);
    },
  },
  'product-status': {
    takes: ['product', 'status'],
    make: (changes, body) => changes.setProductStatus(number(body, 'product'), number(body, 'status')),
  },
  'link-add-on': {
    takes: ['add_on', 'node'],
    make: (changes, body) => changes.setAddOnLink(number(body, 'add_on'), number(body, 'node'), true),
  },
  'unlink-add-on': {
    takes: ['add_on', 'node'],
    make: (changes, body) => changes.setAddOnLink(number(body, 'add_on'), number(body, 'node'), false),
  },
};

/** Objects of every kind to read, make and destroy, and the changes that cause events. */
export function addChangeEndpoints(
  router: Router,
  site: SiteModel,
  changes: SiteChanges,
  owners: readonly Owner[],
): void {
  const none = { auth: 'none' } as const;
  router.add('GET', '/sandbox/changes', () => ({ status: 200, body: { changes: Object.keys(CHANGES) } }), none);
  router.add('POST', '/sandbox/changes/:name', (call) => makeChange(call, changes), none);
  router.add('GET', '/sandbox/objects', () => ({ status: 200, body: { kinds: kindsOf(site, owners) } }), none);
  // Owners have no ids; they are made and removed by /v1/owners and /v2/owners.
  router.add('GET', '/sandbox/objects/owners', () => ({ status: 200, body: { objects: owners } }), none);
  router.add(
    'GET',
    '/sandbox/objects/:kind',
    (call) => ({ status: 200, body: { objects: site.all(kindOf(call)) } }),
    none,
  );
  router.add('POST', '/sandbox/objects/:kind', (call) => makeObject(call, site, changes), none);
  router.add('PUT', '/sandbox/objects/:kind/:id', (call) => putObject(call, site, changes), none);
  router.add('PATCH', '/sandbox/objects/:kind/:id', (call) => patchObject(call, site, changes), none);
  router.add('DELETE', '/sandbox/objects/:kind/:id', (call) => destroyObject(call, site, changes), none);
}

function kindsOf(site: SiteModel, owners: readonly Owner[]) {
  return [
    ...KINDS.map((kind) => ({ kind: kind as string, count: site.all(kind).length })),
    { kind: 'owners', count: owners.length },
  ];
}

function makeChange(call: Call, changes: SiteChanges): Answer {
  const name = call.params.name ?? '';
  const change = Object.hasOwn(CHANGES, name) ? CHANGES[name] : undefined;
  if (!change) throw notFound(`the change ${call.params.name}`);
  const body = objectBody(call);
  mustKnow(body, change.takes);
  const result = change.make(changes, body);
  return result === undefined ? { status: 204 } : { status: 200, body: result };
}

function kindOf(call: Call): Kind {
  const kind = call.params.kind as Kind;
  if (!KINDS.includes(kind)) throw notFound(`the kind ${call.params.kind}`);
  return kind;
}

/** Makes one with an id of its own. */
function makeObject(call: Call, site: SiteModel, changes: SiteChanges): Answer {
  const { id: _ignored, ...members } = objectBody(call);
  const record = store(site, changes, kindOf(call), site.newId(), members, undefined);
  return { status: 201, body: record };
}

/** The record whole: members that are left out are gone, lists are empty. */
function putObject(call: Call, site: SiteModel, changes: SiteChanges): Answer {
  const kind = kindOf(call);
  const id = idParam(call, 'id');
  const before = site.get(kind, id);
  const record = store(site, changes, kind, id, objectBody(call), undefined);
  return { status: before ? 200 : 201, body: record };
}

/** Members that are left out keep their value; null takes one away. */
function patchObject(call: Call, site: SiteModel, changes: SiteChanges): Answer {
  const kind = kindOf(call);
  const id = idParam(call, 'id');
  const before = site.get(kind, id);
  if (!before) throw notFound(`${kind} ${id}`);
  return { status: 200, body: store(site, changes, kind, id, objectBody(call), before) };
}

function store(
  site: SiteModel,
  changes: SiteChanges,
  kind: Kind,
  id: number,
  members: Body,
  before: SiteRecords[Kind] | undefined,
) {
  const written = { ...site.emptyLists(kind), ...before, ...members, id };
  // A null takes an optional member of a record away; one that may be null itself keeps it.
  const record = Object.fromEntries(
    Object.entries(written).filter(([name, value]) => value !== null || before === undefined || mayBeNull(kind, name)),
  );
  const problem = problemOf(kind, record, site);
  if (problem) throw refusal(400, problem.message, problem.member);
  changes.put(kind, record as unknown as SiteRecords[Kind]);
  return record;
}

function destroyObject(call: Call, site: SiteModel, changes: SiteChanges): Answer {
  const kind = kindOf(call);
  const id = idParam(call, 'id');
  if (!site.get(kind, id)) throw notFound(`${kind} ${id}`);
  changes.destroy(kind, id);
  return { status: 204 };
}
