import type { ModbusRegister } from '../config/tags.ts';

/** What a technician calls a register, as the protocol sees it. */
export interface Place {
  /** From 0, as it goes over the wire. */
  address: number;
  /** Registers, or bits of coils and discrete inputs. */
  length: number;
}

/** One read of a slave. */
export interface Block<P> extends Place {
  table: ModbusRegister['table'];
  points: P[];
}

/** Where numbering in the manner of Modicon starts: 40001 is the first holding register, with 5 digits or 6. */
const FIRST_OF_TABLE = { holding: 4, input: 3, discrete: 1 } as const;

/** The protocol allows 125 registers and 2,000 bits; some slaves fewer. */
const MOST_REGISTERS = 120;
const MOST_BITS = 1_920;
/** Reading over a gap is cheaper than another request, until a slave refuses the registers in it. */
const WIDEST_GAP = 8;

const LENGTH_OF_TYPE = { bool: 1, int16: 1, uint16: 1, int32: 2, uint32: 2, float32: 2, float64: 4 } as const;

/**
 * 40001 to 49999 and 400001 to 465536 of `holding` are numbers in the manner of Modicon, which start at 1 behind the digit of
 * their table; so are 3… of `input` and 1… of `discrete`. Every other number is the address as it goes over the wire.
 */
export function placeOf({ table, address, type }: ModbusRegister): Place {
  const isBits = table === 'coil' || table === 'discrete';
  const length = isBits ? 1 : LENGTH_OF_TYPE[type];
  if (table === 'coil') return { address, length };
  const digit = FIRST_OF_TABLE[table];
  const five = address - digit * 10_000 - 1;
  const six = address - digit * 100_000 - 1;
  if (five >= 0 && five < 9_999) return { address: five, length };
  if (six >= 0 && six < 65_536) return { address: six, length };
  return { address, length };
}

/** Puts registers that lie near each other into one read. `alone` are read by themselves. */
export function blocksOf<P extends { origin: { register: ModbusRegister } }>(
  points: readonly P[],
  alone: ReadonlySet<P> = new Set(),
): Block<P>[] {
  const blocks: Block<P>[] = [];
  const placed = points.map((point) => ({ point, ...placeOf(point.origin.register) }));
  placed.sort((a, b) => a.address - b.address || a.length - b.length);
  const open = new Map<string, Block<P>>();
  for (const { point, address, length } of placed) {
    const { table } = point.origin.register;
    const most = table === 'coil' || table === 'discrete' ? MOST_BITS : MOST_REGISTERS;
    const block = open.get(table);
    const end = Math.max(block ? block.address + block.length : 0, address + length);
    const isNear = block !== undefined && address - (block.address + block.length) <= WIDEST_GAP;
    if (isNear && end - block.address <= most && !alone.has(point)) {
      block.length = end - block.address;
      block.points.push(point);
      continue;
    }
    const fresh = { table, address, length, points: [point] };
    blocks.push(fresh);
    if (!alone.has(point)) open.set(table, fresh);
  }
  return blocks;
}

/** The value at `offset` registers into what a slave answered, scaled; NaN where the slave has none (a float that is no number). */
export function decodeRegisters(answer: Uint8Array, offset: number, register: ModbusRegister): number {
  const { type, wordOrder, scale } = register;
  const words = LENGTH_OF_TYPE[type];
  const bytes = new Uint8Array(words * 2);
  for (let word = 0; word < words; word++) {
    const from = (offset + (wordOrder === 'little' ? words - 1 - word : word)) * 2;
    bytes.set(answer.subarray(from, from + 2), word * 2);
  }
  const view = new DataView(bytes.buffer);
  return scaled(readAs(view, type), scale);
}

function readAs(view: DataView, type: ModbusRegister['type']): number {
  switch (type) {
    case 'bool':
      return view.getUint16(0) === 0 ? 0 : 1;
    case 'int16':
      return view.getInt16(0);
    case 'uint16':
      return view.getUint16(0);
    case 'int32':
      return view.getInt32(0);
    case 'uint32':
      return view.getUint32(0);
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

/** 3 × 0.1 is 0.3 to a technician. */
export function scaled(raw: number, scale: number): number {
  return scale === 1 || Number.isNaN(raw) ? raw : Number((raw * scale).toPrecision(15));
}
