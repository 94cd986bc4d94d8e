import { AttributeIds, resolveNodeId } from 'node-opcua-client';
import { NumericRange } from 'node-opcua-numeric-range';
import type { Item, ReadValue } from './protocol.ts';
import { readingOf } from './readings.ts';
import type { Session } from './session.ts';

/** Each item as it is now, in their order; `why` there is no number, where there is none. */
export async function readItems(
  session: Session,
  items: readonly Item[],
): Promise<(readonly [...ReadValue, why: string])[]> {
  const nodes = items.map(({ node, index }) => ({
    nodeId: resolveNodeId(node),
    attributeId: AttributeIds.Value,
    ...(index === undefined ? {} : { indexRange: new NumericRange(String(index)) }),
  }));
  const values = (await session.inBatches(nodes, (some) => session.raw.read([...some]))).flat();
  return values.map((value, at) => {
    const reading = readingOf(value);
    const why = reading[0] !== null ? '' : value.statusCode.isGood() ? 'it is no number' : value.statusCode.name;
    return [at, ...reading, why] as const;
  });
}
