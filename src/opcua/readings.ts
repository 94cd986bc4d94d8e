/** Reads and converts server values. */
import { AttributeIds, type DataValue, type NodeId } from 'node-opcua-client';
import { NumericRange } from 'node-opcua-numeric-range';
import { missingNamespace } from './namespaces.ts';
import type { Item, Reading, ReadValue } from './protocol.ts';
import { type Part, rawIn } from './raw-values.ts';
import type { Session } from './session.ts';
import { severityOf, statusText } from './status-codes.ts';

/** Bits that report a queue overflow on the server. */
const OVERFLOW = 0x480;

/** Returns the node attribute and index range to read or monitor for an item. */
export function valueIdOf(nodeId: NodeId, { index }: Pick<Item, 'index'>) {
  return {
    nodeId,
    attributeId: AttributeIds.Value,
    ...(index === undefined ? {} : { indexRange: new NumericRange(String(index)) }),
  };
}

/** Reads each item once, in order. */
export async function readItems(session: Session, items: readonly Item[]): Promise<ReadValue[]> {
  const found = items.flatMap((item, at) => {
    const nodeId = session.namespaces.nodeIdOf(item.node);
    return nodeId === undefined ? [] : [{ at, valueId: valueIdOf(nodeId, item) }];
  });
  const values = await session.read(found.map(({ valueId }) => valueId));
  const byItem = new Map(values.map((value, place) => [found[place]!.at, value]));
  return items.map((item, at) => {
    const value = byItem.get(at);
    return value === undefined
      ? [at, null, null, 2, { problem: missingNamespace(item.node) }]
      : [at, ...readingOf(value, item)];
  });
}

export function readingOf(value: DataValue, part: Part): Reading {
  const { statusCode, sourceTimestamp, serverTimestamp } = value;
  const timeMs = timeOf(sourceTimestamp) ?? timeOf(serverTimestamp);
  const status = severityOf(statusCode);
  const found = rawIn(value.value, part);
  const overflow = (statusCode.value & OVERFLOW) === OVERFLOW ? { overflow: true as const } : undefined;
  if (typeof found !== 'object') return overflow ? [found, timeMs, status, overflow] : [found, timeMs, status];
  return [null, timeMs, status, { ...(status === 0 ? found : { problem: statusText(statusCode) }), ...overflow }];
}

/** A time in the year 1601 means that there is no timestamp. */
function timeOf(date: Date | null | undefined): number | null {
  const ms = date?.getTime() ?? Number.NaN;
  return ms >= 0 ? Math.floor(ms) : null;
}
