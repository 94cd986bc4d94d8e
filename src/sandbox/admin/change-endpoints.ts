import type { NewEvent } from '../events/event-changes.ts';
import type { PlantChanges } from '../events/plant-changes.ts';
import { type Answer, type Call, idParam, isObject, objectBody } from '../http/call.ts';
import { notFound, refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import type { Plant } from '../plant/plant.ts';
import { problemOf } from '../plant/record-check.ts';
import { KINDS, type Kind, type Owner, type PlantRecords } from '../plant/records.ts';

type Body = Record<string, unknown>;
type Change = (changes: PlantChanges, body: Body) => unknown;

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
  'update-asset': (changes, body) => changes.updateAsset(number(body, 'asset'), record(body, 'changes')),
  'update-edge-device': (changes, body) =>
    changes.updateEdgeDevice(number(body, 'edge_device'), record(body, 'changes')),
  'edge-device-seen': (changes, body) => changes.edgeDevices.seen(number(body, 'edge_device')),
  'add-software': (changes, body) => changes.addSoftware(number(body, 'asset'), number(body, 'software')),
  associate: (changes, body) => changes.associate(number(body, 'asset'), number(body, 'instrumentation')),
  dissociate: (changes, body) => changes.dissociate(number(body, 'asset'), number(body, 'instrumentation')),
  'put-under-node': (changes, body) => changes.setUnderNode(number(body, 'asset'), number(body, 'node'), true),
  'take-from-node': (changes, body) => changes.setUnderNode(number(body, 'asset'), number(body, 'node'), false),
  'asset-specifications': (changes, body) =>
    changes.setSpecifications('assets', number(body, 'asset'), record(body, 'specifications')),
  'event-specifications': (changes, body) =>
    changes.setSpecifications('events', number(body, 'event'), record(body, 'specifications')),
  'create-event': (changes, body) => ({ id: changes.createEvent(body as unknown as NewEvent) }),
  'add-document': (changes, body) => changes.addDocument(number(body, 'event'), number(body, 'document')),
  'health-conditions': (changes, body) => {
    if (!Array.isArray(body.conditions)) throw refusal(400, 'is no list', 'conditions');
    changes.setHealthConditions(number(body, 'asset'), number(body, 'status'), body.conditions);
  },
  'product-status': (changes, body) => changes.setProductStatus(number(body, 'product'), number(body, 'status')),
  'link-add-on': (changes, body) => changes.setAddOnLink(number(body, 'add_on'), number(body, 'node'), true),
  'unlink-add-on': (changes, body) => changes.setAddOnLink(number(body, 'add_on'), number(body, 'node'), false),
};

/** Objects of every kind to read, make and destroy, and the changes that cause events. */
export function addChangeEndpoints(
  router: Router,
  plant: Plant,
  changes: PlantChanges,
  owners: readonly Owner[],
): void {
  const none = { auth: 'none' } as const;
  router.add('GET', '/sandbox/changes', () => ({ status: 200, body: { changes: Object.keys(CHANGES) } }), none);
  router.add('POST', '/sandbox/changes/:name', (call) => makeChange(call, changes), none);
  router.add('GET', '/sandbox/objects', () => ({ status: 200, body: { kinds: kindsOf(plant, owners) } }), none);
  // Owners have no ids; they are made and removed by /v1/owners and /v2/owners.
  router.add('GET', '/sandbox/objects/owners', () => ({ status: 200, body: { objects: owners } }), none);
  router.add(
    'GET',
    '/sandbox/objects/:kind',
    (call) => ({ status: 200, body: { objects: plant.all(kindOf(call)) } }),
    none,
  );
  router.add('POST', '/sandbox/objects/:kind', (call) => makeObject(call, plant, changes), none);
  router.add('PUT', '/sandbox/objects/:kind/:id', (call) => putObject(call, plant, changes), none);
  router.add('DELETE', '/sandbox/objects/:kind/:id', (call) => destroyObject(call, plant, changes), none);
}

function kindsOf(plant: Plant, owners: readonly Owner[]) {
  return [
    ...KINDS.map((kind) => ({ kind: kind as string, count: plant.all(kind).length })),
    { kind: 'owners', count: owners.length },
  ];
}

function makeChange(call: Call, changes: PlantChanges): Answer {
  const name = call.params.name ?? '';
  const change = Object.hasOwn(CHANGES, name) ? CHANGES[name] : undefined;
  if (!change) throw notFound(`the change ${call.params.name}`);
  const result = change(changes, objectBody(call));
  return result === undefined ? { status: 204 } : { status: 200, body: result };
}

function kindOf(call: Call): Kind {
  const kind = call.params.kind as Kind;
  if (!KINDS.includes(kind)) throw notFound(`the kind ${call.params.kind}`);
  return kind;
}

/** Makes one with an id of its own. */
function makeObject(call: Call, plant: Plant, changes: PlantChanges): Answer {
  const { id: _ignored, ...members } = objectBody(call);
  const record = store(plant, changes, kindOf(call), plant.newId(), members, undefined);
  return { status: 201, body: record };
}

/** Members that are left out keep their value, or are empty lists where the kind has lists. */
function putObject(call: Call, plant: Plant, changes: PlantChanges): Answer {
  const kind = kindOf(call);
  const id = idParam(call, 'id');
  const before = plant.get(kind, id);
  const record = store(plant, changes, kind, id, objectBody(call), before);
  return { status: before ? 200 : 201, body: record };
}

function store(
  plant: Plant,
  changes: PlantChanges,
  kind: Kind,
  id: number,
  members: Body,
  before: PlantRecords[Kind] | undefined,
) {
  const record = { ...plant.emptyLists(kind), ...before, ...members, id };
  const problem = problemOf(kind, record, plant);
  if (problem) throw refusal(400, problem.message, problem.member);
  changes.put(kind, record as unknown as PlantRecords[Kind]);
  return record;
}

function destroyObject(call: Call, plant: Plant, changes: PlantChanges): Answer {
  const kind = kindOf(call);
  const id = idParam(call, 'id');
  if (!plant.get(kind, id)) throw notFound(`${kind} ${id}`);
  changes.destroy(kind, id);
  return { status: 204 };
}
