import { LENGTH_OF_TYPE, type ModbusRegister } from './register.ts';

/** One register after the other is put in order here: nothing is made anew for each of thousands a second. */
const scratch = new DataView(new ArrayBuffer(8));

/**
 * The value at `offset` registers into what a device answered; NaN where it has none (a float that is no number). 64 bits beyond
 * 2^53 come as the nearest double, which is all that the platform takes.
 */
export function decodeRegister(answer: Uint8Array, offset: number, register: ModbusRegister): number {
  const { type, wordsReversed, bytesSwapped, bit } = register;
  const words = LENGTH_OF_TYPE[type];
  for (let at = 0; at < words * 2; at++) {
    const word = wordsReversed ? words - 1 - (at >> 1) : at >> 1;
    scratch.setUint8(at, answer[(offset + word) * 2 + (bytesSwapped ? 1 - (at & 1) : at & 1)]!);
  }
  return bit === undefined ? readAs(scratch, type) : (scratch.getUint16(0) >> bit) & 1;
}

/** The bit at `offset` into what a device answered for coils: the first is the lowest of the first byte. */
export function decodeBit(answer: Uint8Array, offset: number): number {
  return (answer[offset >> 3]! >> (offset & 7)) & 1;
}

function readAs(view: DataView, type: ModbusRegister['type']): number {
  switch (type) {
    case 'bool':
    case 'uint16':
      return view.getUint16(0);
    case 'int16':
      return view.getInt16(0);
    case 'int32':
      return view.getInt32(0);
    case 'uint32':
      return view.getUint32(0);
    case 'int64':
      return Number(view.getBigInt64(0));
    case 'uint64':
      return Number(view.getBigUint64(0));
    case 'float32':
      return shortest(view.getFloat32(0));
    case 'float64':
      return view.getFloat64(0);
  }
}

/**
 * The shortest decimal that is the same 32-bit number: 12.3, not 12.300000190734863. Nothing is lost, and it costs a third of the
 * bytes in the buffer and on the wire.
 */
function shortest(single: number): number {
  if (!Number.isFinite(single)) return Number.NaN;
  for (let digits = 6; digits <= 9; digits++) {
    const short = Number(single.toPrecision(digits));
    if (Object.is(Math.fround(short), single)) return short;
  }
  return single;
}
