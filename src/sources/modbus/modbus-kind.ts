import { DURATION_SCHEMA } from '../../config/duration-schema.ts';
import { printable, printableAddress, shown } from '../../config/problem.ts';
import type { ComparedSource, MemberReport, Members } from '../../config/source-kinds.ts';
import { readDurationMember } from '../duration-member.ts';
import type { SourceKind } from '../source-kind.ts';
import { lineNameOf, type ModbusAddress, type ModbusSpec } from './line-spec.ts';
import {
  isBits,
  type ModbusRegister,
  type ModbusTable,
  type ModbusValue,
  noValueOf,
  REGISTER_TYPES,
  type RegisterType,
  registersOf,
  registerText,
  storedNumber,
  writeProblem,
} from './register.ts';

/** Defaults according to "MODBUS over Serial Line", section 2.5. */
const BAUD = 19_200;
const PARITY = 'even';
const TIMEOUT_MS = { tcp: 3_000, rtu: 1_000 };
const TIMEOUT = { minMs: 20, maxMs: 60_000, range: 'between 20ms and 60s', example: '1s' };
const SETTLE = { minMs: 0, maxMs: 60_000, range: 'at most 60s', example: '2s' };
const PAUSE = { minMs: 0, maxMs: 10_000, range: 'at most 10s', example: '50ms' };
/** The protocol allows 125 registers; some devices support slightly fewer. */
const MAX_REGISTERS = 120;
/** Members that are accepted for only one of the two transports. */
const ONLY = {
  tcp: ['connections', 'framing', 'close_after_poll', 'any_unit'],
  rtu: ['baud', 'parity', 'stop_bits'],
} as const;
const EXAMPLES = 'tcp://192.168.0.5:502 or rtu:/dev/ttyUSB0';
/** Byte orders of 32-bit values, and their long form for four registers. */
const BYTE_ORDERS = ['ABCD', 'CDAB', 'BADC', 'DCBA', 'ABCDEFGH', 'GHEFCDAB', 'BADCFEHG', 'HGFEDCBA'];
const LAST_ADDRESS = 65_535;
const LAST_BIT = 15;
/** In Modicon notation, the first digit selects the table, and the other digits are the address, starting at 1. */
const TABLE_OF_DIGIT: Readonly<Record<string, ModbusTable>> = { 1: 'discrete', 3: 'input', 4: 'holding' };
const REGISTERS = 'holding 0 (protocol address) or 40001 (Modicon number)';

/**
 * A Modbus device: `plc1: { modbus: "tcp://192.168.0.5:502", unit: 1 }`, `line2: { modbus: "rtu:/dev/ttyUSB0", unit:
 * 3 }`.
 */
export const MODBUS: SourceKind<ModbusSpec, ModbusValue> = {
  kind: 'modbus',
  example: 'modbus: tcp://…',
  sourceMembers: {
    modbus: {
      type: 'string',
      title: 'the address of a Modbus device',
      description: 'Modbus device to poll: tcp://host:port, or rtu:/dev/… for a serial line.',
      examples: ['tcp://192.168.0.5:502', 'rtu:/dev/ttyUSB0'],
    },
    unit: {
      type: 'integer',
      minimum: 0,
      maximum: 255,
      default: 1,
      title: 'a Modbus unit from 0 to 255',
      description: 'Modbus: unit number of the device on its line or behind its gateway.',
      examples: [1],
    },
    baud: {
      type: 'integer',
      minimum: 50,
      maximum: 4_000_000,
      default: BAUD,
      title: 'a baud rate',
      description: 'Modbus RTU: baud rate in bits per second.',
      examples: [9600, 19_200],
    },
    parity: { enum: ['even', 'odd', 'none'], default: PARITY, description: 'Modbus RTU: parity of the line.' },
    stop_bits: { enum: [1, 2], default: 1, description: 'Modbus RTU: stop bits of the line.' },
    connections: {
      type: 'integer',
      minimum: 1,
      maximum: 32,
      default: 1,
      title: 'a number of connections from 1 to 32',
      description: 'Modbus TCP: number of parallel connections.',
      examples: [2],
    },
    timeout: {
      ...DURATION_SCHEMA,
      description:
        'Modbus: response timeout. Default: 3s, 1s on a serial line. Exec: maximum duration of a run with `every` (default: the longer of `every` and 1m), or maximum time without output.',
    },
    pause: {
      ...DURATION_SCHEMA,
      description:
        'Modbus: minimum time between a response and the next request to the host or on the line. Default: 0.',
    },
    settle: {
      ...DURATION_SCHEMA,
      description:
        'Modbus: minimum time between connecting and the first request. Default: 0. CSV: time without changes after which a file is complete. Default: 10s.',
    },
    any_unit: {
      type: 'boolean',
      default: false,
      title: 'true or false',
      description: 'Modbus TCP: whether responses with another unit number are accepted.',
    },
    framing: {
      enum: ['tcp', 'rtu', 'unnumbered'],
      default: 'tcp',
      description:
        'Modbus TCP: rtu if the host forwards serial frames unchanged; unnumbered if its responses do not contain the transaction number of the request.',
    },
    max_registers: {
      type: 'integer',
      minimum: 1,
      maximum: 125,
      default: MAX_REGISTERS,
      title: 'a number of registers from 1 to 125',
      description: 'Modbus: maximum number of registers per request, or of groups of 16 coils or discrete inputs.',
      examples: [16],
    },
    no_value: {
      const: 'sunspec',
      title: '"sunspec" (other codes belong to the values)',
      examples: ['sunspec'],
      description: 'Modbus: sunspec if all values use the SunSpec codes for "no value".',
    },
    close_after_poll: {
      type: 'boolean',
      default: false,
      title: 'true or false',
      description: 'Modbus TCP: whether the agent disconnects after each poll, so that other clients can connect.',
    },
  },
  valueMembers: {
    register: {
      type: ['string', 'integer'],
      title: 'a Modbus register',
      description: 'Modbus: table (holding, input, coil, discrete) and protocol address, or a Modicon number.',
      examples: ['holding 1013', 'input 0', 40_001],
    },
    type: {
      enum: [...REGISTER_TYPES],
      description: 'Modbus: data type. Default: uint16; bool for coil, discrete and bit.',
    },
    byte_order: {
      enum: BYTE_ORDERS,
      default: 'ABCD',
      description: 'Modbus: byte order, A being the most significant byte. BADC swaps the bytes of a 16-bit value.',
    },
    bit: {
      type: ['integer', 'string'],
      minimum: 0,
      maximum: 15,
      pattern: '^\\d{1,2}-\\d{1,2}$',
      title: 'a bit from 0 to 15, or a range of bits',
      description: 'Modbus: bit of the register, 0 being the least significant, or a range of bits as one number.',
      examples: [3, '4-7'],
    },
    length: {
      type: 'integer',
      minimum: 1,
      maximum: 240,
      title: 'a number of characters from 1 to 240',
      description: 'Modbus: number of characters in a string, two per register.',
      examples: [8],
    },
    scale_register: {
      type: ['string', 'integer'],
      title: 'a Modbus register',
      description: 'Modbus: register that contains a power of ten as a scale factor, such as a SunSpec scale factor.',
      examples: ['holding 40084'],
    },
  },
  needs: { member: 'register', example: 'register: holding 1013' },
  everyMs: 1_000,
  readSource(raw, report) {
    const address = readAddress(raw, report);
    const timeoutMs = readDurationMember(raw, 'timeout', TIMEOUT_MS[address?.transport ?? 'tcp'], TIMEOUT, report);
    const pauseMs = readDurationMember(raw, 'pause', 0, PAUSE, report);
    const settleMs = readDurationMember(raw, 'settle', 0, SETTLE, report);
    if (address === undefined || timeoutMs === undefined || pauseMs === undefined || settleMs === undefined) {
      return undefined;
    }
    if (raw.any_unit === true && raw.framing === 'rtu') {
      return report.problem('any_unit', 'any_unit is not supported for framing: rtu', 'remove any_unit');
    }
    const { unit = 1, connections = 1, max_registers: maxRegisters = MAX_REGISTERS } = raw as Record<string, number>;
    return {
      address,
      unit,
      connections,
      timeoutMs,
      pauseMs,
      settleMs,
      maxRegisters,
      isAnyUnit: raw.any_unit === true,
      isSunSpec: raw.no_value === 'sunspec',
      closeAfterPoll: raw.close_after_poll === true,
    };
  },
  readValue(raw, report) {
    const register = readRegister(raw, report);
    if (register === undefined || raw.scale_register === undefined) return register && { register };
    const scaleRegister = readScaleRegister(raw, register, report);
    return scaleRegister && { register, scaleRegister };
  },
  noValueOf,
  compareSources,
  writing: { problem: writeProblem, storedFor: storedNumber, targetsOf },
  placeOf: ({ address }) =>
    address.transport === 'tcp' ? { host: address.host, port: address.port } : { device: address.path },
  addressOf: (spec, { register }) => `unit ${spec.unit} ${registerText(register)}`,
  async open(context) {
    const { ModbusSource } = await import('./modbus-source.ts');
    return new ModbusSource(context);
  },
};

/** Returns the registers or the coil that a write changes. */
function targetsOf({ address, unit }: ModbusSpec, { register: { table, address: first, length } }: ModbusValue) {
  return Array.from({ length }, (_, at) => `${lineNameOf(address)} unit ${unit} ${table} ${first + at}`);
}

function readAddress(raw: Members, report: MemberReport): ModbusAddress | undefined {
  const text = String(raw.modbus).trim();
  const address = text.startsWith('rtu:') ? serialLine(text, raw) : hostAndPort(text, raw);
  if (typeof address === 'string') {
    return report.problem('modbus', `"${printableAddress(text)}" ${address}`, `use a value such as ${EXAMPLES}`);
  }
  const { transport } = address;
  const unsupported = ONLY[transport === 'tcp' ? 'rtu' : 'tcp'].filter((member) => raw[member] !== undefined);
  for (const member of unsupported) {
    report.problem(member, `${member} ${raw[member]} is not supported for ${transport}:`, 'remove it');
  }
  return unsupported.length > 0 ? undefined : address;
}

/** Returns the address, or the problem if it is invalid. */
function serialLine(text: string, raw: Members): ModbusAddress | string {
  const path = text.slice('rtu:'.length).replace(/^\/\/(?=\/)/, '');
  if (!/^\/[^\0]+[^/\0]$/.test(path)) return 'must have a device path after rtu:, beginning with /';
  const { baud = BAUD, parity = PARITY, stop_bits: stopBits = 1 } = raw as Record<string, never>;
  return { transport: 'rtu', path, baud, parity, stopBits };
}

function hostAndPort(text: string, raw: Members): ModbusAddress | string {
  const url = URL.parse(text);
  if (url === null || !/^[a-z]+:\/\//i.test(text)) return 'is not an address';
  if (url.protocol !== 'tcp:') return `has the unsupported scheme ${url.protocol}//`;
  if (url.hostname === '') return 'has no host';
  if (!/^\/?$/.test(url.pathname + url.search + url.hash)) return 'has unexpected text after the port';
  if (url.port === '0') return 'must not have port 0';
  const [host, port] = [url.hostname.replace(/^\[(.*)\]$/, '$1'), Number(url.port || 502)];
  const { framing } = raw as { framing?: 'tcp' | 'rtu' | 'unnumbered' };
  return { transport: 'tcp', host, port, ...(framing === undefined || framing === 'tcp' ? {} : { framing }) };
}

type RegisterMembers = { bit?: number | string; length?: number; byte_order?: string };

/** Reads the members of a value. Returns `undefined` after reporting a problem. */
function readRegister(raw: Members, report: MemberReport): ModbusRegister | undefined {
  const problem = (member: string, reason: string, instead: string): undefined => {
    report.problem(member, `${member} ${shown((raw[member] as string | undefined) ?? '')} ${reason}`, instead);
  };
  const { bit, length: characters, byte_order: order = 'ABCD' } = raw as RegisterMembers;
  const place = readPlace(String(raw.register).trim());
  if ('reason' in place) return problem('register', place.reason, place.instead);
  const { table, address } = place;
  const [lowest = 0, highest = lowest] = `${bit ?? ''}`.split('-').map(Number);
  const bits = bit === undefined ? undefined : { lowest, count: highest - lowest + 1 };
  const type = (raw.type as RegisterType | undefined) ?? (isBits(table) || bits?.count === 1 ? 'bool' : 'uint16');
  if (isBits(table)) {
    if (bits) return problem('bit', `cannot be combined with ${table}, which is one bit`, 'remove it');
    const reason = `does not fit ${table} registers, which contain one bit`;
    if (type !== 'bool') return problem('type', reason, 'use bool, or omit it');
  } else if (bits) {
    const instead = `use the lowest and the highest bit (0 to ${LAST_BIT}), for example 4-7`;
    const isRange = typeof bit === 'number' || (lowest < highest && highest <= LAST_BIT);
    if (!isRange) return problem('bit', 'is not a range of bits', instead);
    const fits = type === 'uint16' || (bits.count === 1 && (type === 'bool' || type === 'int16'));
    if (!fits) return problem('type', 'cannot be combined with bit', 'omit it');
  } else if (type === 'bool') {
    const reason = `does not fit ${table} registers, which contain 16 bits`;
    return problem('type', reason, 'add bit: 0 to 15, or use uint16');
  }
  if (type === 'string' && characters === undefined) {
    return problem('type', 'requires the number of characters', 'add length: 8');
  }
  if (type !== 'string' && characters !== undefined) {
    return problem('length', `is not supported for ${type}`, 'remove it, or add type: string');
  }
  const length = registersOf(type, characters);
  const wordsReversed = !/^(AB|BA)/.test(order);
  const bytesSwapped = order[0]! > order[1]!;
  if (order.length === 8 && length !== 4) {
    return problem('byte_order', `has eight bytes, and ${type} has fewer`, 'use ABCD, CDAB, BADC or DCBA');
  }
  if (type === 'string' && wordsReversed) {
    return problem('byte_order', 'reverses the registers of a string', 'use ABCD or BADC');
  }
  if (address + length - 1 > LAST_ADDRESS) {
    return problem('register', `exceeds the last address ${LAST_ADDRESS}`, `use ${REGISTERS}`);
  }
  return {
    table,
    address,
    length,
    type: bits?.count === 1 ? 'bool' : type,
    wordsReversed,
    bytesSwapped,
    ...(bits === undefined ? {} : { bits }),
    ...(characters === undefined ? {} : { characters }),
  };
}

/** Reads the int16 register of a scale factor. Returns `undefined` after reporting a problem. */
function readScaleRegister(raw: Members, register: ModbusRegister, report: MemberReport): ModbusRegister | undefined {
  const written = String(raw.scale_register).trim();
  const problem = (reason: string, instead: string): undefined => {
    report.problem('scale_register', `scale_register ${shown(written)} ${reason}`, instead);
  };
  if (register.type === 'bool' || register.bits !== undefined) {
    return problem('cannot be combined with single bits', 'remove it');
  }
  const place = readPlace(written);
  if ('reason' in place) return problem(place.reason, place.instead);
  if (isBits(place.table))
    return problem('is a single bit', 'use a register of the table holding or input: holding 40084');
  const { table, address, length, bytesSwapped } = register;
  if (place.table === table && place.address >= address && place.address < address + length) {
    return problem('is the register of the value', 'use the register of its scale factor');
  }
  const isModicon = (text: unknown) => /^\d+$/.test(String(text).trim());
  if (isModicon(written) !== isModicon(raw.register)) {
    const [number, of] = isModicon(written) ? [written, place] : [String(raw.register).trim(), register];
    const reason = `is combined with a different notation: ${number} is the Modicon number of ${registerText(of)}`;
    const instead = 'use the table and the protocol address for both';
    report.warning('scale_register', `scale_register ${shown(written)} ${reason}`, instead);
  }
  return { ...place, length: 1, type: 'int16', wordsReversed: false, bytesSwapped };
}

/**
 * `holding 40070` is wire address 40070, as in SunSpec and most modern manuals. A bare number is in Modicon notation:
 * `40001` and `400001` are `holding 0`, `30001` is `input 0`, `10001` is `discrete 0`, `1` to `9999` are coils.
 */
function readPlace(text: string): { table: ModbusTable; address: number } | { reason: string; instead: string } {
  const number = Number(/\d{1,6}$/.exec(text)?.[0]);
  const name = /^(holding|input|coil|discrete)\s+\d{1,6}$/i.exec(text)?.[1];
  if (name !== undefined) {
    if (number <= LAST_ADDRESS) return { table: name.toLowerCase() as ModbusTable, address: number };
    // Six digits are probably Modicon notation, which cannot be combined with a table name.
    const instead = `use the protocol address, or the number without "${name}"`;
    return { reason: `exceeds the last address ${LAST_ADDRESS}`, instead };
  }
  if (!/^\d{1,6}$/.test(text))
    return { reason: 'is not a Modbus register', instead: `use a value such as ${REGISTERS}` };
  if (number >= 1 && number <= 9_999) return { table: 'coil', address: number - 1 };
  const [span, count] = number >= 100_000 ? [100_000, LAST_ADDRESS + 1] : [10_000, 9_999];
  const table = TABLE_OF_DIGIT[String(Math.floor(number / span))];
  const address = (number % span) - 1;
  if (table !== undefined && address >= 0 && address < count) return { table, address };
  return {
    reason: 'is not a Modicon number (40001, 30001, 10001, 1 to 9999; with six digits 400001)',
    instead: `use the table and the protocol address: holding ${number <= LAST_ADDRESS ? number : 0}`,
  };
}

/** Reports sources with different settings for the same serial port, or different framing for the same host and port. */
function compareSources(sources: readonly ComparedSource<ModbusSpec>[]): void {
  /** Settings that all sources with one address share, by member. */
  const settingsOf = (address: ModbusAddress): Record<string, string | number> => {
    if (address.transport === 'tcp') return { framing: address.framing ?? 'tcp' };
    return { baud: address.baud, parity: address.parity, stop_bits: address.stopBits };
  };
  const lines = Map.groupBy(sources, ({ source }) => lineNameOf(source.spec.address));
  for (const [first, ...others] of lines.values()) {
    const theirs = settingsOf(first!.source.spec.address);
    for (const { source, report } of others) {
      const { address } = source.spec;
      const where = address.transport === 'tcp' ? 'for the same host and port' : 'on the same line';
      for (const [member, value] of Object.entries(settingsOf(address))) {
        if (value === theirs[member]) continue;
        const reason = `${member} ${value} differs from "${printable(first!.source.name)}" ${where} (${theirs[member]})`;
        report.problem(member, reason, `set the same value for both: ${member}: ${theirs[member]}`);
      }
    }
  }
}
