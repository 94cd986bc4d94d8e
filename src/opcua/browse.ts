/** Browses a server for numeric variables, at a limited rate. */
import {
  AttributeIds,
  BrowseDirection,
  type BrowseResult,
  NodeClass,
  type ReferenceDescription,
  ResultMask,
  resolveNodeId,
} from 'node-opcua-client';
import type { Clock } from '../base/clock.ts';
import { missingNamespace } from './namespaces.ts';
import type { FoundNode } from './protocol.ts';
import { numbersIn } from './raw-values.ts';
import type { Session } from './session.ts';

type Step = { found: FoundNode } | { done: number; total: number };

interface Place {
  node: string;
  path: string;
  depth: number;
}

/** Limits browsing to ten requests per second. */
const PAUSE_MS = 100;
const MAX_DEPTH = 12;
const MAX_NODES = 20_000;
const OBJECTS = 'ns=0;i=85';
/** Contains thousands of nodes that describe the server itself, so it is browsed only if specified. */
const SERVER = 'ns=0;i=2253';
const HIERARCHICAL = 'i=33';
const SAMPLE_DIGITS = 9;

/** `from`: node IDs (`ns=2;s=Line1`) or paths below Objects (`Line1/Pump`). Default: everything below Objects. */
export async function* browseNodes(session: Session, from: readonly string[], clock: Clock): AsyncGenerator<Step> {
  const seen = new Set<string>();
  const pending: Place[] = [];
  for (const text of from) pending.push(await placeOf(session, text, clock));
  if (from.length === 0) pending.push({ node: OBJECTS, path: '', depth: 0 });
  for (const { node } of pending) seen.add(node);
  let done = 0;
  for (let place = pending.shift(); place !== undefined; place = pending.shift()) {
    await clock.sleep(PAUSE_MS);
    const children = await childrenOf(session, place.node, clock);
    yield* variablesOf(session, place, children, seen, clock);
    for (const child of children) {
      const node = child.nodeId.toString();
      if (seen.has(node) || node === SERVER || place.depth >= MAX_DEPTH || seen.size >= MAX_NODES) continue;
      seen.add(node);
      pending.push({ node, path: pathOf(place, child), depth: place.depth + 1 });
    }
    done++;
    yield { done, total: done + pending.length };
  }
}

async function* variablesOf(
  session: Session,
  place: Place,
  children: readonly ReferenceDescription[],
  seen: ReadonlySet<string>,
  clock: Clock,
): AsyncGenerator<Step> {
  const variables = children.filter(
    ({ nodeClass, nodeId }) => nodeClass === NodeClass.Variable && !seen.has(nodeId.toString()),
  );
  if (variables.length === 0) return;
  await clock.sleep(PAUSE_MS);
  const nodes = variables.map(({ nodeId }) => ({ nodeId, attributeId: AttributeIds.Value }));
  for (const [at, value] of (await session.read(nodes)).entries()) {
    const child = variables[at]!;
    const node = session.namespaces.textOf(child.nodeId);
    for (const { part, number } of numbersIn(value.value)) {
      const sample = String(Number(number.toPrecision(SAMPLE_DIGITS)));
      yield { found: { node, ...part, path: pathOf(place, child), sample } };
    }
  }
}

function pathOf({ path }: Place, { browseName }: ReferenceDescription): string {
  const name = browseName.name ?? '';
  return path === '' ? name : `${path}/${name}`;
}

async function childrenOf({ raw: session }: Session, node: string, clock: Clock): Promise<ReferenceDescription[]> {
  const found: ReferenceDescription[] = [];
  let result: BrowseResult = await session.browse({
    nodeId: resolveNodeId(node),
    browseDirection: BrowseDirection.Forward,
    referenceTypeId: resolveNodeId(HIERARCHICAL),
    includeSubtypes: true,
    nodeClassMask: NodeClass.Object | NodeClass.Variable,
    resultMask: ResultMask.BrowseName | ResultMask.NodeClass,
  });
  for (;;) {
    found.push(...(result.references ?? []));
    const { continuationPoint } = result;
    if (!continuationPoint || continuationPoint.length === 0) break;
    const isEnough = found.length >= MAX_NODES;
    await clock.sleep(PAUSE_MS);
    result = await session.browseNext(continuationPoint, isEnough);
    if (isEnough) break;
  }
  return found;
}

/** Resolves a path below Objects. */
async function placeOf(session: Session, text: string, clock: Clock): Promise<Place> {
  if (/^(ns=\d+;|nsu=[^;]+;)?[isgb]=/.test(text)) {
    const nodeId = session.namespaces.nodeIdOf(text);
    if (nodeId === undefined) throw new Error(missingNamespace(text));
    return { node: nodeId.toString(), path: '', depth: 0 };
  }
  const names = text.split('/').filter((name) => name !== '');
  let node = OBJECTS;
  for (const name of names) {
    await clock.sleep(PAUSE_MS);
    const child = (await childrenOf(session, node, clock)).find(({ browseName }) => browseName.name === name);
    if (child === undefined) throw new Error(`${name} not found in the path ${text}`);
    node = child.nodeId.toString();
  }
  return { node, path: names.join('/'), depth: 0 };
}
