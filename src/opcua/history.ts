/** Reads past values of a node from the server's history (OPC 10000-11). */
import {
  AccessLevelFlag,
  AttributeIds,
  HistoryData,
  HistoryReadRequest,
  type NodeId,
  ReadRawModifiedDetails,
  TimestampsToReturn,
} from 'node-opcua-client';
import { missingNamespace } from './namespaces.ts';
import type { HistoryPage, HistorySpan, Item } from './protocol.ts';
import { readingOf, valueIdOf } from './readings.ts';
import type { Session } from './session.ts';
import { isGood, statusText } from './status-codes.ts';

/** Maximum number of values per page, which requires about 40 kB. */
const MAX_VALUES = 1_000;
/**
 * Maximum number of values per page for elements and members, because a server may return complete arrays or
 * structures.
 */
const MAX_PARTS = 100;

/** Returns the indices of items whose history this user is allowed to read. */
export async function itemsWithHistory(session: Session, items: readonly Item[]): Promise<number[]> {
  const nodes = new Map<string, { nodeId: NodeId; attributeId: AttributeIds; places: number[] }>();
  for (const [place, { node }] of items.entries()) {
    const nodeId = session.namespaces.nodeIdOf(node);
    if (nodeId === undefined) continue;
    const known = nodes.get(nodeId.toString());
    if (known) known.places.push(place);
    else nodes.set(nodeId.toString(), { nodeId, attributeId: AttributeIds.UserAccessLevel, places: [place] });
  }
  const all = [...nodes.values()];
  const levels = await session.read(all.map(({ nodeId, attributeId }) => ({ nodeId, attributeId })));
  return all.flatMap(({ places }, at) => ((levels[at]?.value?.value ?? 0) & AccessLevelFlag.HistoryRead ? places : []));
}

/** Reads the next page of values after `fromMs` and before `untilMs`. */
export async function readHistory(session: Session, span: HistorySpan): Promise<HistoryPage> {
  const { item, fromMs, untilMs, point } = span;
  const nodeId = session.namespaces.nodeIdOf(item.node);
  if (nodeId === undefined) return { past: [], problem: missingNamespace(item.node) };
  const { indexRange } = valueIdOf(nodeId, item);
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
