/** Writes single values to the server. */
import { AttributeIds, DataType, Variant, VariantArrayType } from 'node-opcua-client';
import type { Clock } from '../base/clock.ts';
import { missingNamespace } from './namespaces.ts';
import type { WriteOrder } from './protocol.ts';
import { valueIdOf } from './readings.ts';
import type { Session } from './session.ts';
import { isGood } from './status-codes.ts';

/** Time within which the value must be sent, because the agent has checked the age of its cause before. */
const SEND_WITHIN_MS = 2_000;

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

/** Writes a number in the type of the current value. Rejects with the server's status code. */
export async function writeItem(session: Session, { node, raw }: WriteOrder, clock: Clock): Promise<void> {
  const startedMs = clock.monotonicMs();
  const nodeId = session.namespaces.nodeIdOf(node);
  if (nodeId === undefined) throw new Error(missingNamespace(node));
  const [current] = await session.read([valueIdOf(nodeId, {})]);
  const dataType = current?.value?.dataType ?? DataType.Null;
  const value = encoded(dataType, raw);
  if (value === undefined) throw new Error(`${raw} does not fit the type ${DataType[dataType]} of the node`);
  if (clock.monotonicMs() - startedMs > SEND_WITHIN_MS) throw new Error('the server responds too slowly for a write');
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
