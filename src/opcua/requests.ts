/** Requests of the agent apart from the subscription: single reads, history, writes, and browsing. */
import * as ua from 'node-opcua-client';
import type { Clock } from '../base/clock.ts';
import type { AnswerLine, Endpoint, HistoryPage, HistorySpan, Item, Reading } from './protocol.ts';
import { Session } from './session.ts';
import { isGood, NodeRejection, numbersIn, readingOf, statusText, valueIdOf } from './values.ts';

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

export async function readItem(session: Session, item: Item): Promise<Reading> {
  const [value] = await session.read([valueIdOf(session.nodeIdOf(item.node), item)]);
  return readingOf(value!, item);
}

/** Reads the next page of values after `fromMs` and before `untilMs` (OPC 10000-11). */
export async function readHistory(
  session: Session,
  { item, fromMs, untilMs, point }: HistorySpan,
): Promise<HistoryPage> {
  const { nodeId, indexRange } = valueIdOf(session.nodeIdOf(item.node), item);
  const request = new ua.HistoryReadRequest({
    historyReadDetails: new ua.ReadRawModifiedDetails({
      isReadModified: false,
      startTime: new Date(fromMs + 1),
      endTime: new Date(untilMs),
      numValuesPerNode: item.index === undefined && item.member === undefined ? MAX_VALUES : MAX_PARTS,
      returnBounds: false,
    }),
    timestampsToReturn: ua.TimestampsToReturn.Both,
    releaseContinuationPoints: false,
    nodesToRead: [
      {
        nodeId,
        ...(indexRange === undefined ? {} : { indexRange }),
        ...(point === undefined ? {} : { continuationPoint: Buffer.from(point, 'base64') }),
      },
    ],
  });
  const [result] = (await session.raw.historyRead(request)).results ?? [];
  if (!result) return { past: [], problem: 'the server did not respond with a history' };
  const { statusCode, historyData, continuationPoint } = result;
  if (!isGood(statusCode)) return { past: [], problem: statusText(statusCode) };
  const values = historyData instanceof ua.HistoryData ? (historyData.dataValues ?? []) : [];
  await session.decodeStructures(values);
  return {
    past: values.map((value) => readingOf(value, item)),
    ...(continuationPoint?.length ? { point: continuationPoint.toString('base64') } : {}),
  };
}

/** Writes a number in the type of the current value. Rejects with the server's status code. */
export async function writeItem(session: Session, node: string, raw: number, clock: Clock): Promise<void> {
  const startedMs = clock.monotonicMs();
  const nodeId = session.nodeIdOf(node);
  const [current] = await session.read([valueIdOf(nodeId, {})]);
  const dataType = current!.value?.dataType ?? ua.DataType.Null;
  if (dataType === ua.DataType.Null)
    throw new NodeRejection(`the type of the node is unknown: ${statusText(current!.statusCode)}`);
  const value = encoded(dataType, raw);
  if (value === undefined) throw new Error(`${raw} does not fit the type ${ua.DataType[dataType]} of the node`);
  if (clock.monotonicMs() - startedMs > WRITE_WITHIN_MS) throw new Error('the server responds too slowly for a write');
  const variant = new ua.Variant({ dataType, arrayType: ua.VariantArrayType.Scalar, value });
  const status = await session.raw.write({ nodeId, attributeId: ua.AttributeIds.Value, value: { value: variant } });
  if (!isGood(status)) throw new NodeRejection(`the server rejected the write: ${statusText(status)}`);
}

/** Returns the number as the type represents it, or `undefined` if it does not fit. Numbers are not rounded. */
function encoded(dataType: ua.DataType, raw: number): number | boolean | [number, number] | undefined {
  if (dataType === ua.DataType.Double) return raw;
  if (dataType === ua.DataType.Float) return Number.isFinite(Math.fround(raw)) ? raw : undefined;
  if (dataType === ua.DataType.Boolean) return raw === 0 || raw === 1 ? raw === 1 : undefined;
  if (dataType === ua.DataType.Int64 || dataType === ua.DataType.UInt64) {
    const fits = Number.isSafeInteger(raw) && (raw >= 0 || dataType === ua.DataType.Int64);
    const bits = fits ? BigInt.asUintN(64, BigInt(raw)) : 0n;
    return fits ? [Number(bits >> 32n), Number(bits & 0xffff_ffffn)] : undefined;
  }
  const isInteger = dataType >= ua.DataType.SByte && dataType <= ua.DataType.UInt32 && Number.isInteger(raw);
  return isInteger && ua.isValidVariant(ua.VariantArrayType.Scalar, dataType, raw) ? raw : undefined;
}

type ScanPart = Pick<AnswerLine, 'found' | 'progress'>;

/** Node to browse. */
interface Place {
  nodeId: ua.NodeId;
  path: string;
  depth: number;
}

/**
 * Finds numeric variables in a separate session, at a limited rate. `below`: node IDs (`ns=2;s=Line1`) or paths below
 * Objects (`Line1/Pump`). Default: everything below Objects.
 */
export async function* scan(endpoint: Endpoint, below: readonly string[], clock: Clock): AsyncGenerator<ScanPart> {
  const session = await Session.open(endpoint);
  try {
    yield* browse(session, below.length === 0 ? [''] : below, clock);
  } finally {
    await session.close(true);
  }
}

async function* browse(session: Session, below: readonly string[], clock: Clock): AsyncGenerator<ScanPart> {
  const places: Place[] = [];
  for (const text of below) places.push(await placeOf(session, text, clock));
  const seen = new Set(places.map(({ nodeId }) => String(nodeId)));
  // The loop also visits places that are appended while it runs.
  for (const [at, { nodeId, path, depth }] of places.entries()) {
    const children = (await childrenOf(session, nodeId, clock)).filter((child) => !seen.has(String(child.nodeId)));
    const pathOf = ({ browseName: { name } }: ua.ReferenceDescription) => (path === '' ? `${name}` : `${path}/${name}`);
    const variables = children.filter(({ nodeClass }) => nodeClass === ua.NodeClass.Variable);
    if (variables.length > 0) await clock.sleep(BROWSE_PAUSE_MS);
    const values = await session.read(variables.map((variable) => valueIdOf(variable.nodeId, {})));
    for (const [number, variable] of variables.entries()) {
      for (const { part, sample } of numbersIn(values[number]!.value)) {
        const found = { node: session.textOf(variable.nodeId), ...part, path: pathOf(variable) };
        yield { found: { ...found, sample: String(Number(sample.toPrecision(SAMPLE_DIGITS))) } };
      }
    }
    for (const child of children) {
      const node = String(child.nodeId);
      if (seen.has(node) || node === SERVER || depth >= MAX_DEPTH || seen.size >= MAX_NODES) continue;
      seen.add(node);
      places.push({ nodeId: child.nodeId, path: pathOf(child), depth: depth + 1 });
    }
    yield { progress: { done: at + 1, total: places.length } };
  }
}

async function childrenOf({ raw }: Session, nodeId: ua.NodeId, clock: Clock): Promise<ua.ReferenceDescription[]> {
  await clock.sleep(BROWSE_PAUSE_MS);
  let result = await raw.browse({
    nodeId: ua.resolveNodeId(nodeId.toString()),
    browseDirection: ua.BrowseDirection.Forward,
    referenceTypeId: ua.resolveNodeId(HIERARCHICAL),
    includeSubtypes: true,
    nodeClassMask: ua.NodeClass.Object | ua.NodeClass.Variable,
    resultMask: ua.ResultMask.BrowseName | ua.ResultMask.NodeClass,
  });
  const found = [...(result.references ?? [])];
  while (result.continuationPoint?.length && found.length < MAX_NODES) {
    await clock.sleep(BROWSE_PAUSE_MS);
    result = await raw.browseNext(result.continuationPoint, false);
    found.push(...(result.references ?? []));
  }
  return found;
}

async function placeOf(session: Session, text: string, clock: Clock): Promise<Place> {
  if (/^(ns=\d+;|nsu=[^;]+;)?[isgb]=/.test(text)) return { nodeId: session.nodeIdOf(text), path: '', depth: 0 };
  const names = text.split('/').filter((name) => name !== '');
  let nodeId = ua.resolveNodeId(OBJECTS);
  for (const name of names) {
    const child = (await childrenOf(session, nodeId, clock)).find(({ browseName }) => browseName.name === name);
    if (child === undefined) throw new Error(`${name} not found in the path ${text}`);
    nodeId = child.nodeId;
  }
  return { nodeId, path: names.join('/'), depth: 0 };
}
