import { readDuration } from '../../base/quantity.ts';
import { printable, shown } from '../../config/problem.ts';
import type { ComparedSource, MemberReport, Members } from '../../config/source-kinds.ts';
import type { Source } from '../../config/tags.ts';
import type { SourceKind } from '../source-kind.ts';
import type { ModbusAddress } from './connection.ts';
import type { ModbusSpec, ModbusValue } from './modbus-spec.ts';
import { BYTE_ORDERS, REGISTER_TYPES, readRegister, registerText } from './register.ts';

/** As the specification of the serial line wants it: section 2.5 of "MODBUS over Serial Line". */
const BAUD = 19_200;
const PARITY = 'even';
const TIMEOUT_MS = { tcp: 3_000, rtu: 1_000 };
const MIN_TIMEOUT_MS = 20;
const MAX_TIMEOUT_MS = 60_000;
/** What only one of the two ways to a device has. */
const ONLY = { tcp: ['connections'], rtu: ['baud', 'parity', 'stop_bits'] } as const;
const EXAMPLES = 'tcp://192.168.0.5:502 or rtu:/dev/ttyUSB0';

/** A Modbus device: `plc1: { modbus: "tcp://192.168.0.5:502", unit: 1 }`, `line2: { modbus: "rtu:/dev/ttyUSB0", unit: 3 }`. */
export const MODBUS: SourceKind<ModbusSpec, ModbusValue> = {
  kind: 'modbus',
  example: 'modbus: tcp://…',
  sourceMembers: {
    modbus: {
      type: 'string',
      title: 'the address of a Modbus device',
      description: 'A Modbus device, polled: tcp://host:port, or rtu:/dev/… for a serial line.',
      examples: ['tcp://192.168.0.5:502', 'rtu:/dev/ttyUSB0'],
    },
    unit: {
      type: 'integer',
      minimum: 0,
      maximum: 255,
      default: 1,
      title: 'a Modbus unit from 0 to 255',
      description: 'Modbus: the number of the device on its line or behind its gateway.',
      examples: [1],
    },
    baud: {
      type: 'integer',
      minimum: 50,
      maximum: 4_000_000,
      default: BAUD,
      title: 'bits a second',
      description: 'Modbus RTU: bits a second of the line.',
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
      description: 'Modbus TCP: how many connections the host and port are asked over at once.',
      examples: [2],
    },
    timeout: {
      type: ['string', 'integer'],
      title: 'a duration',
      description: 'Modbus: how long an answer may take; 3s unless told, 1s on a serial line.',
      examples: ['500ms', '2s'],
    },
  },
  valueMembers: {
    register: {
      type: ['string', 'integer'],
      title: 'a Modbus register',
      description:
        'Modbus: table and address on the wire (holding, input, coil, discrete), or a number in the manner of Modicon.',
      examples: ['holding 1013', 'input 0', 40_001],
    },
    type: {
      enum: [...REGISTER_TYPES],
      description: 'Modbus: what the registers hold; uint16 unless told, bool for coil, discrete and bit.',
    },
    byte_order: {
      enum: [...BYTE_ORDERS],
      default: 'ABCD',
      description: 'Modbus: the order in which the bytes come, A being the highest; of 16 bits BADC swaps them.',
    },
    bit: {
      type: 'integer',
      minimum: 0,
      maximum: 15,
      title: 'a bit from 0 to 15',
      description: 'Modbus: one bit of the register, 0 being the lowest.',
      examples: [3],
    },
  },
  needs: { member: 'register', example: 'register: holding 1013' },
  everyMs: 1_000,
  readSource(raw, report) {
    const address = readAddress(raw, report);
    const timeoutMs = readTimeout(raw, address?.transport ?? 'tcp', report);
    if (address === undefined || timeoutMs === undefined) return undefined;
    const { unit = 1, connections = 1 } = raw as { unit?: number; connections?: number };
    return { address, unit, connections, timeoutMs };
  },
  readValue(raw, report) {
    const register = readRegister(raw as unknown as Parameters<typeof readRegister>[0]);
    if (!('reason' in register)) return { register };
    const { member, reason, instead } = register;
    report.problem(member, `${member} ${shown((raw[member] as string | undefined) ?? '')} ${reason}`, instead);
    return undefined;
  },
  compareSources,
  placeOf: ({ address }) =>
    address.transport === 'tcp' ? { host: address.host, port: address.port } : { device: address.path },
  addressOf: (spec, { register }) => `unit ${spec.unit} ${registerText(register)}`,
  async open(context) {
    const { openModbus } = await import('./modbus-source.ts');
    return openModbus(context);
  },
  async test(context) {
    const { testModbus } = await import('./modbus-source.ts');
    return await testModbus(context);
  },
  async *scan(context, what) {
    const { scanAlone } = await import('./modbus-source.ts');
    yield* scanAlone(context, what);
  },
};

function readAddress(raw: Members, report: MemberReport): ModbusAddress | undefined {
  const text = String(raw.modbus).trim();
  const address = text.startsWith('rtu:') ? serialLine(text, raw) : hostAndPort(text);
  if (typeof address === 'string') {
    report.problem('modbus', `"${printable(text)}" ${address}`, `write for example ${EXAMPLES}`);
    return undefined;
  }
  const other = address.transport === 'tcp' ? 'rtu' : 'tcp';
  const strangers = ONLY[other].filter((member) => raw[member] !== undefined);
  for (const member of strangers) {
    report.problem(member, `${member} ${raw[member]} means nothing for ${address.transport}:`, 'remove it');
  }
  return strangers.length > 0 ? undefined : address;
}

/** Says why not, where not. */
function serialLine(text: string, raw: Members): ModbusAddress | string {
  const path = text.slice('rtu:'.length).replace(/^\/\/(?=\/)/, '');
  if (!/^\/[^\0]+[^/\0]$/.test(path)) return 'names no device: it begins with / after rtu:';
  const {
    baud = BAUD,
    parity = PARITY,
    stop_bits: stopBits = 1,
  } = raw as {
    baud?: number;
    parity?: 'even' | 'odd' | 'none';
    stop_bits?: 1 | 2;
  };
  return { transport: 'rtu', path, baud, parity, stopBits };
}

function hostAndPort(text: string): ModbusAddress | string {
  const url = URL.parse(text);
  if (url === null || !/^[a-z]+:\/\//i.test(text)) return 'is not an address';
  if (url.protocol !== 'tcp:') return `begins with ${url.protocol}//, which modbus does not know`;
  if (url.hostname === '') return 'names no host';
  if (!/^\/?$/.test(url.pathname + url.search + url.hash)) return 'has something after the port';
  if (url.port === '0') return 'has port 0';
  return { transport: 'tcp', host: url.hostname.replace(/^\[(.*)\]$/, '$1'), port: Number(url.port || 502) };
}

function readTimeout(raw: Members, transport: 'tcp' | 'rtu', report: MemberReport): number | undefined {
  if (raw.timeout === undefined) return TIMEOUT_MS[transport];
  const reading = readDuration(String(raw.timeout));
  const ms = 'value' in reading ? reading.value : Number.NaN;
  if (ms >= MIN_TIMEOUT_MS && ms <= MAX_TIMEOUT_MS) return ms;
  const reason = 'reason' in reading ? reading.reason : 'is too short or too long';
  report.problem('timeout', `timeout "${raw.timeout}" ${reason}`, 'write from 20ms to 60s, for example 1s');
  return undefined;
}

/** One serial line has one speed. */
function compareSources(sources: readonly ComparedSource<ModbusSpec>[]): void {
  const first = new Map<string, Source<ModbusSpec>>();
  for (const { source, report } of sources) {
    const { address } = source.spec;
    if (address.transport !== 'rtu') continue;
    const other = first.get(address.path);
    if (other === undefined) {
      first.set(address.path, source);
      continue;
    }
    const theirs = other.spec.address as typeof address;
    for (const [member, name] of [
      ['baud', 'baud'],
      ['parity', 'parity'],
      ['stopBits', 'stop_bits'],
    ] as const) {
      if (address[member] === theirs[member]) continue;
      const reason = `${name} ${address[member]} is not that of "${printable(other.name)}" on the same line, ${theirs[member]}`;
      report.problem(name, reason, `write the same for both: ${name}: ${theirs[member]}`);
    }
  }
}
