/** What a server has below some nodes: each variable that holds a number, by its path. Slow by intent. */
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
import type { FoundNode } from './protocol.ts';
import { readingOf } from './readings.ts';
import type { Session } from './session.ts';

type Step = { found: FoundNode } | { done: number; total: number };

interface Place {
  node: string;
  path: string;
  depth: number;
}

/** Ten requests a second. */
const PAUSE_MS = 100;
const MAX_DEPTH = 12;
const MAX_NODES = 20_000;
const OBJECTS = 'i=85';
/** What a server says of itself, thousands of nodes: only where it is named. */
const SERVER = 'i=2253';
const HIERARCHICAL = 'i=33';
const SAMPLE_DIGITS = 9;

/** `from`: node ids (`ns=2;s=Line1`) or paths below Objects (`Line1/Pump`); everything where none is named. */
export async function* browseNodes(session: Session, from: readonly string[], clock: Clock): AsyncGenerator<Step> {
  const seen = new Set<string>();
  const waiting: Place[] = [];
  for (const one of from) waiting.push(await placeOf(session, one, clock));
  if (from.length === 0) waiting.push({ node: OBJECTS, path: '', depth: 0 });
  for (const { node } of waiting) seen.add(node);
  let done = 0;
  for (let place = waiting.shift(); place !== undefined; place = waiting.shift()) {
    await clock.sleep(PAUSE_MS);
    const below = await childrenOf(session, place.node, clock);
    yield* variablesOf(session, place, below, seen, clock);
    for (const child of below) {
      const node = child.nodeId.toString();
      if (seen.has(node) || node === SERVER || place.depth >= MAX_DEPTH || seen.size >= MAX_NODES) continue;
      seen.add(node);
      waiting.push({ node, path: pathOf(place, child), depth: place.depth + 1 });
    }
    done++;
    yield { done, total: done + waiting.length };
  }
}

async function* variablesOf(
  session: Session,
  place: Place,
  below: readonly ReferenceDescription[],
  seen: ReadonlySet<string>,
  clock: Clock,
): AsyncGenerator<Step> {
  const variables = below.filter(
    ({ nodeClass, nodeId }) => nodeClass === NodeClass.Variable && !seen.has(nodeId.toString()),
  );
  if (variables.length === 0) return;
  await clock.sleep(PAUSE_MS);
  const nodes = variables.map(({ nodeId }) => ({ nodeId, attributeId: AttributeIds.Value }));
  const values = (await session.inBatches(nodes, (some) => session.raw.read([...some]))).flat();
  for (const [at, value] of values.entries()) {
    const [raw] = readingOf(value);
    const child = variables[at]!;
    if (raw === null) continue;
    const sample = String(Number(raw.toPrecision(SAMPLE_DIGITS)));
    yield { found: { node: child.nodeId.toString(), path: pathOf(place, child), sample } };
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

/** Names are followed from Objects down. */
async function placeOf(session: Session, text: string, clock: Clock): Promise<Place> {
  if (/^(ns=\d+;)?[isgb]=/.test(text)) return { node: resolveNodeId(text).toString(), path: '', depth: 0 };
  const names = text.split('/').filter((name) => name !== '');
  let node = OBJECTS;
  for (const name of names) {
    await clock.sleep(PAUSE_MS);
    const child = (await childrenOf(session, node, clock)).find(({ browseName }) => browseName.name === name);
    if (child === undefined) throw new Error(`there is no ${name} on the way to ${text}`);
    node = child.nodeId.toString();
  }
  return { node, path: names.join('/'), depth: 0 };
}
