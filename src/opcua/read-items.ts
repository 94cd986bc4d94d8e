import { AttributeIds, type ClientSession, resolveNodeId } from 'node-opcua-client';
import { NumericRange } from 'node-opcua-numeric-range';
import type { Item, ReadValue } from './protocol.ts';
import { readingOf } from './readings.ts';

const AT_ONCE = 100;

/** Each item as it is now, in their order; `why` there is no number, where there is none. */
export async function readItems(
  session: ClientSession,
  items: readonly Item[],
): Promise<(readonly [...ReadValue, why: string])[]> {
  const read: (readonly [...ReadValue, why: string])[] = [];
  for (let from = 0; from < items.length; from += AT_ONCE) {
    const some = items.slice(from, from + AT_ONCE);
    const nodesToRead = some.map(({ node, index }) => ({
      nodeId: resolveNodeId(node),
      attributeId: AttributeIds.Value,
      ...(index === undefined ? {} : { indexRange: new NumericRange(String(index)) }),
    }));
    const values = await session.read(nodesToRead);
    for (const [at, value] of values.entries()) {
      const reading = readingOf(value);
      const why = reading[0] !== null ? '' : value.statusCode.isGood() ? 'it is no number' : value.statusCode.name;
      read.push([from + at, ...reading, why]);
    }
  }
  return read;
}
