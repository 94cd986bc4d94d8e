/** What a technician calls a register, read into what goes over the wire. */

export type ModbusTable = 'holding' | 'input' | 'coil' | 'discrete';

export const REGISTER_TYPES = [
  'int16',
  'uint16',
  'int32',
  'uint32',
  'int64',
  'uint64',
  'float32',
  'float64',
  'bool',
] as const;
export type RegisterType = (typeof REGISTER_TYPES)[number];

export interface ModbusRegister {
  table: ModbusTable;
  /** From 0, as it goes over the wire. */
  address: number;
  type: RegisterType;
  /** The second register comes first, the fourth before the third, …: CDAB and DCBA. */
  wordsReversed: boolean;
  /** The low byte of each register comes first: BADC and DCBA. */
  bytesSwapped: boolean;
  /** One bit of a register, 0 being the lowest. Its type is `bool`. */
  bit?: number;
}

/** What tags.yaml says of a register. */
export interface WrittenRegister {
  register: string | number;
  type?: RegisterType | undefined;
  byte_order?: string | undefined;
  bit?: number | undefined;
}

/** Why it cannot be read, and at which member. */
export interface RegisterProblem {
  member: keyof WrittenRegister;
  reason: string;
  instead: string;
}

/** Registers, or bits of coils and discrete inputs, that a value takes. */
export const LENGTH_OF_TYPE: Readonly<Record<RegisterType, number>> = {
  bool: 1,
  int16: 1,
  uint16: 1,
  int32: 2,
  uint32: 2,
  float32: 2,
  int64: 4,
  uint64: 4,
  float64: 4,
};

const LAST_ADDRESS = 65_535;
/** In the manner of Modicon the first digit names the table, and the rest counts from 1. */
const TABLE_OF_DIGIT: Readonly<Record<string, ModbusTable>> = { 1: 'discrete', 3: 'input', 4: 'holding' };
const EXAMPLES = 'holding 0 (the address on the wire), or 40001 (in the manner of Modicon)';

/** The orders of 32 bits; those of 64 bits say the same of four registers. */
const ORDERS: Readonly<Record<string, { words: boolean; bytes: boolean; bits?: 64 }>> = {
  ABCD: { words: false, bytes: false },
  CDAB: { words: true, bytes: false },
  BADC: { words: false, bytes: true },
  DCBA: { words: true, bytes: true },
  ABCDEFGH: { words: false, bytes: false, bits: 64 },
  GHEFCDAB: { words: true, bytes: false, bits: 64 },
  BADCFEHG: { words: false, bytes: true, bits: 64 },
  HGFEDCBA: { words: true, bytes: true, bits: 64 },
};

export const BYTE_ORDERS = Object.keys(ORDERS);

/**
 * `holding 40070` is address 40070 on the wire: SunSpec and most modern manuals count so. A bare number is in the manner of Modicon:
 * `40001` and `400001` are `holding 0`, `30001` `input 0`, `10001` `discrete 0`, `1` to `9999` coils.
 */
export function readRegister(written: WrittenRegister): ModbusRegister | RegisterProblem {
  const place = readPlace(written.register);
  if ('reason' in place) return { member: 'register', ...place };
  const { table, address } = place;
  const isBits = table === 'coil' || table === 'discrete';
  const { bit } = written;
  if (bit !== undefined && isBits) {
    return { member: 'bit', reason: `means nothing for ${table}, which is one bit already`, instead: 'remove it' };
  }
  const type = written.type ?? (isBits || bit !== undefined ? 'bool' : 'uint16');
  if (isBits && type !== 'bool') {
    const reason = `does not fit ${table} registers, which hold one bit`;
    return { member: 'type', reason, instead: 'write bool, or leave it out' };
  }
  if (!isBits && type === 'bool' && bit === undefined) {
    const reason = `does not fit ${table} registers, which hold 16 bits`;
    return { member: 'type', reason, instead: 'add bit: 0 to 15, or write uint16' };
  }
  if (bit !== undefined && type !== 'bool' && LENGTH_OF_TYPE[type] !== 1) {
    return { member: 'type', reason: 'does not fit one bit of one register', instead: 'leave it out' };
  }
  const order = ORDERS[written.byte_order ?? 'ABCD'];
  if (order === undefined || (order.bits === 64 && LENGTH_OF_TYPE[type] !== 4)) {
    const reason = order === undefined ? 'is no order of bytes' : `has eight bytes, and ${type} has fewer`;
    return { member: 'byte_order', reason, instead: 'write one of ABCD, CDAB, BADC, DCBA' };
  }
  if (address + LENGTH_OF_TYPE[type] - 1 > LAST_ADDRESS) {
    return { member: 'register', reason: `lies beyond the last address ${LAST_ADDRESS}`, instead: `write ${EXAMPLES}` };
  }
  return {
    table,
    address,
    type: bit === undefined ? type : 'bool',
    wordsReversed: order.words,
    bytesSwapped: order.bytes,
    ...(bit === undefined ? {} : { bit }),
  };
}

/** As people write it: `holding 1013`, `holding 7 bit 3`. */
export function registerText({ table, address, bit }: Pick<ModbusRegister, 'table' | 'address' | 'bit'>): string {
  return `${table} ${address}${bit === undefined ? '' : ` bit ${bit}`}`;
}

function readPlace(
  written: string | number,
): Pick<ModbusRegister, 'table' | 'address'> | { reason: string; instead: string } {
  const text = String(written).trim();
  const named = /^(holding|input|coil|discrete)\s+(\d{1,6})$/i.exec(text);
  if (named) {
    const address = Number(named[2]);
    if (address <= LAST_ADDRESS) return { table: named[1]!.toLowerCase() as ModbusTable, address };
    // Six digits are most likely a number in the manner of Modicon, which stands alone.
    const reason = `lies beyond the last address ${LAST_ADDRESS}`;
    return { reason, instead: `write the address on the wire, or the number alone, without "${named[1]}"` };
  }
  if (!/^\d{1,6}$/.test(text)) return { reason: 'is not a Modbus register', instead: `write for example ${EXAMPLES}` };
  return modicon(Number(text)) ?? notModicon(text);
}

/** `40001` with five digits, `400001` with six; fewer are coils. */
function modicon(number: number): Pick<ModbusRegister, 'table' | 'address'> | undefined {
  if (number >= 1 && number <= 9_999) return { table: 'coil', address: number - 1 };
  const span = number >= 100_000 ? 100_000 : 10_000;
  const table = TABLE_OF_DIGIT[String(Math.floor(number / span))];
  const count = number % span;
  const last = span === 100_000 ? LAST_ADDRESS + 1 : 9_999;
  return table !== undefined && count >= 1 && count <= last ? { table, address: count - 1 } : undefined;
}

function notModicon(text: string): { reason: string; instead: string } {
  return {
    reason: 'is no number in the manner of Modicon (40001, 30001, 10001, 1 to 9999; with six digits 400001)',
    instead: `write the table and the address on the wire: holding ${Number(text) <= LAST_ADDRESS ? Number(text) : 0}`,
  };
}
