/** Requests of the agent apart from the subscription: single reads, history, writes, and browsing. */
import {
  AccessLevelFlag,
  AttributeIds,
  BrowseDirection,
  DataType,
  HistoryData,
  HistoryReadRequest,
  NodeClass,
  type NodeId,
  ReadRawModifiedDetails,
  type ReferenceDescription,
  ResultMask,
  resolveNodeId,
  TimestampsToReturn,
  Variant,
  VariantArrayType,
} from 'node-opcua-client';
import type { Clock } from '../base/clock.ts';
import type { FoundNode, HistoryPage, HistorySpan, Item, Reading } from './protocol.ts';
import type { Session } from './session.ts';
import { isGood, numbersIn, readingOf, statusText, valueIdOf } from './values.ts';

/** Maximum number of values per page of history, which requires about 40 kB. */
const MAX_VALUES = 1_000;
/** The same for elements and members, because a server may return complete arrays or structures. */
const MAX_PARTS = 100;
/** Time within which a value must be written, because the agent has checked the age of its cause before. */
const WRITE_WITHIN_MS = 2_000;
/** Limits browsing to ten requests per second. */
const BROWSE_PAUSE_MS = 100;
const MAX_DEPTH = 12;
const MAX_NODES = 20_000;
const OBJECTS = 'ns=0;i=85';
/** Contains thousands of nodes that describe the server itself, so it is browsed only if specified. */
const SERVER = 'ns=0;i=2253';
const HIERARCHICAL = 'i=33';
const SAMPLE_DIGITS = 9;

/** Limits of the integer types. 64-bit values are limited to exact doubles. */
const INTEGERS: Partial<Record<DataType, readonly [min: number, max: number]>> = {
  [DataType.SByte]: [-128, 127],
  [DataType.Byte]: [0, 255],
  [DataType.Int16]: [-32_768, 32_767],
  [DataType.UInt16]: [0, 65_535],
  [DataType.Int32]: [-2_147_483_648, 2_147_483_647],
  [DataType.UInt32]: [0, 4_294_967_295],
  [DataType.Int64]: [Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER],
  [DataType.UInt64]: [0, Number.MAX_SAFE_INTEGER],
};

export async function readItem(session: Session, item: Item): Promise<Reading> {
  const [value] = await session.read([valueIdOf(session.namespaces.existing(item.node), item)]);
  return readingOf(value!, item);
}

/** Returns the indices of items whose history this user is allowed to read. */
export async function itemsWithHistory(session: Session, items: readonly Item[]): Promise<number[]> {
  const found = items.map(({ node }) => session.namespaces.nodeIdOf(node));
  const nodes = new Map(found.flatMap((nodeId) => (nodeId === undefined ? [] : [[nodeId.toString(), nodeId]])));
  const ids = [...nodes.values()].map((nodeId) => ({ nodeId, attributeId: AttributeIds.UserAccessLevel }));
  const levels = await session.read(ids);
  const readable = [...nodes.keys()].filter((_, at) => (levels[at]?.value?.value ?? 0) & AccessLevelFlag.HistoryRead);
  const names = new Set(readable);
  return [...items.keys()].filter((item) => names.has(String(found[item])));
}

/** Reads the next page of values after `fromMs` and before `untilMs` (OPC 10000-11). */
export async function readHistory(session: Session, span: HistorySpan): Promise<HistoryPage> {
  const { item, fromMs, untilMs, point } = span;
  const { nodeId, indexRange } = valueIdOf(session.namespaces.existing(item.node), item);
  const request = new HistoryReadRequest({
    historyReadDetails: new ReadRawModifiedDetails({
      isReadModified: false,
      startTime: new Date(fromMs + 1),
      endTime: new Date(untilMs),
      numValuesPerNode: item.index === undefined && item.member === undefined ? MAX_VALUES : MAX_PARTS,
      returnBounds: false,
    }),
    timestampsToReturn: TimestampsToReturn.Both,
    releaseContinuationPoints: false,
    nodesToRead: [
      {
        nodeId,
        ...(indexRange === undefined ? {} : { indexRange }),
        ...(point === undefined ? {} : { continuationPoint: Buffer.from(point, 'base64') }),
      },
    ],
  });
  const { results } = await session.raw.historyRead(request);
  const result = results?.[0];
  if (!result) return { past: [], problem: 'the server did not respond with a history' };
  const { statusCode, historyData, continuationPoint } = result;
  if (!isGood(statusCode)) return { past: [], problem: statusText(statusCode) };
  const values = historyData instanceof HistoryData ? (historyData.dataValues ?? []) : [];
  await session.decodeStructures(values);
  return {
    past: values.map((value) => readingOf(value, item)),
    ...(continuationPoint?.length ? { point: continuationPoint.toString('base64') } : {}),
  };
}

/** Writes a number in the type of the current value. Rejects with the server's status code. */
export async function writeItem(session: Session, node: string, raw: number, clock: Clock): Promise<void> {
  const startedMs = clock.monotonicMs();
  const nodeId = session.namespaces.existing(node);
  const [current] = await session.read([valueIdOf(nodeId, {})]);
  const dataType = current?.value?.dataType ?? DataType.Null;
  const value = encoded(dataType, raw);
  if (value === undefined) throw new Error(`${raw} does not fit the type ${DataType[dataType]} of the node`);
  if (clock.monotonicMs() - startedMs > WRITE_WITHIN_MS) throw new Error('the server responds too slowly for a write');
  const variant = new Variant({ dataType, arrayType: VariantArrayType.Scalar, value });
  const status = await session.raw.write({ nodeId, attributeId: AttributeIds.Value, value: { value: variant } });
  if (!isGood(status)) throw new Error(`the server rejected the write (${status.name})`);
}

/** Returns the number as the type represents it, or `undefined` if it does not fit. Numbers are not rounded. */
function encoded(dataType: DataType, raw: number): number | boolean | [number, number] | undefined {
  if (dataType === DataType.Double) return raw;
  if (dataType === DataType.Float) return Number.isFinite(Math.fround(raw)) ? raw : undefined;
  if (dataType === DataType.Boolean) return raw === 0 || raw === 1 ? raw === 1 : undefined;
  const limits = INTEGERS[dataType];
  if (limits === undefined || !Number.isInteger(raw) || raw < limits[0] || raw > limits[1]) return undefined;
  if (dataType !== DataType.Int64 && dataType !== DataType.UInt64) return raw;
  const bits = BigInt.asUintN(64, BigInt(raw));
  return [Number(bits >> 32n), Number(bits & 0xffff_ffffn)];
}

interface Place {
  nodeId: NodeId;
  path: string;
  depth: number;
}

/**
 * Finds numeric variables, at a limited rate. `below`: node IDs (`ns=2;s=Line1`) or paths below Objects (`Line1/Pump`).
 * Default: everything below Objects.
 */
export async function* browse(
  session: Session,
  below: readonly string[],
  clock: Clock,
): AsyncGenerator<{ found: FoundNode } | { done: number; total: number }> {
  const pending: Place[] = [];
  for (const text of below.length === 0 ? [''] : below) pending.push(await placeOf(session, text, clock));
  const seen = new Set(pending.map(({ nodeId }) => nodeId.toString()));
  let done = 0;
  for (let place = pending.shift(); place !== undefined; place = pending.shift()) {
    const { path, depth } = place;
    const children = (await childrenOf(session, place.nodeId, clock))
      .filter(({ nodeId }) => !seen.has(nodeId.toString()))
      .map(({ nodeId, nodeClass, browseName: { name } }) => {
        return { nodeId, nodeClass, path: path === '' ? (name ?? '') : `${path}/${name ?? ''}`, depth: depth + 1 };
      });
    const variables = children.filter(({ nodeClass }) => nodeClass === NodeClass.Variable);
    for (const found of await numbersOf(session, variables, clock)) yield { found };
    for (const child of children) {
      const node = child.nodeId.toString();
      if (seen.has(node) || node === SERVER || depth >= MAX_DEPTH || seen.size >= MAX_NODES) continue;
      seen.add(node);
      pending.push(child);
    }
    done++;
    yield { done, total: done + pending.length };
  }
}

async function numbersOf(session: Session, variables: readonly Place[], clock: Clock): Promise<FoundNode[]> {
  if (variables.length === 0) return [];
  await clock.sleep(BROWSE_PAUSE_MS);
  const values = await session.read(variables.map(({ nodeId }) => ({ nodeId, attributeId: AttributeIds.Value })));
  return variables.flatMap(({ nodeId, path }, at) => {
    const node = session.namespaces.textOf(nodeId);
    return numbersIn(values[at]!.value).map(({ part, number }) => {
      return { node, ...part, path, sample: String(Number(number.toPrecision(SAMPLE_DIGITS))) };
    });
  });
}

async function childrenOf({ raw: session }: Session, nodeId: NodeId, clock: Clock): Promise<ReferenceDescription[]> {
  await clock.sleep(BROWSE_PAUSE_MS);
  let result = await session.browse({
    nodeId: resolveNodeId(nodeId.toString()),
    browseDirection: BrowseDirection.Forward,
    referenceTypeId: resolveNodeId(HIERARCHICAL),
    includeSubtypes: true,
    nodeClassMask: NodeClass.Object | NodeClass.Variable,
    resultMask: ResultMask.BrowseName | ResultMask.NodeClass,
  });
  const found = [...(result.references ?? [])];
  while (result.continuationPoint?.length) {
    await clock.sleep(BROWSE_PAUSE_MS);
    const isEnough = found.length >= MAX_NODES;
    result = await session.browseNext(result.continuationPoint, isEnough);
    if (isEnough) break;
    found.push(...(result.references ?? []));
  }
  return found;
}

async function placeOf(session: Session, text: string, clock: Clock): Promise<Place> {
  if (/^(ns=\d+;|nsu=[^;]+;)?[isgb]=/.test(text))
    return { nodeId: session.namespaces.existing(text), path: '', depth: 0 };
  const names = text.split('/').filter((name) => name !== '');
  let nodeId = resolveNodeId(OBJECTS);
  for (const name of names) {
    const child = (await childrenOf(session, nodeId, clock)).find(({ browseName }) => browseName.name === name);
    if (child === undefined) throw new Error(`${name} not found in the path ${text}`);
    nodeId = child.nodeId;
  }
  return { nodeId, path: names.join('/'), depth: 0 };
}
