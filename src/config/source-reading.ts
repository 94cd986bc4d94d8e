import type { YamlFile } from './placed-yaml.ts';
import type { Problems } from './problem.ts';
import { printable } from './problem.ts';
import { readDuration } from './quantity.ts';
import type { ModbusRegister, Source } from './tags.ts';

/** A source as the schema lets it through. */
export interface RawSource {
  modbus?: string;
  mqtt?: string;
  host?: true;
  simulate?: true;
  unit?: number;
  every?: string | number;
}

export type SourceKind = Source['kind'];

const KINDS: readonly SourceKind[] = ['modbus', 'mqtt', 'host', 'simulate'];
/** Members of each kind beside its own name. */
const MEMBERS: Readonly<Record<SourceKind, readonly (keyof RawSource)[]>> = {
  modbus: ['unit', 'every'],
  mqtt: [],
  host: ['every'],
  simulate: ['every'],
};
const SCHEMES: Readonly<Record<'modbus' | 'mqtt', readonly string[]>> = {
  modbus: ['tcp:'],
  mqtt: ['mqtt:', 'mqtts:', 'ws:', 'wss:'],
};
const EXAMPLES = { modbus: 'tcp://192.168.0.5:502', mqtt: 'mqtt://127.0.0.1:1883' };
/** The machine's own readings change slowly, and each is a value that is stored and posted. */
const EVERY_MS: Readonly<Record<SourceKind, number>> = { modbus: 1000, mqtt: 0, host: 10_000, simulate: 1000 };
const SHORTEST_EVERY_MS = 10;
const LONGEST_EVERY_MS = 7 * 86_400_000;

/** What kind a source says it is; `undefined` where it says none or several. */
export function kindOf(raw: RawSource): SourceKind | undefined {
  const kinds = KINDS.filter((kind) => raw[kind] !== undefined);
  return kinds.length === 1 ? kinds[0] : undefined;
}

/** Reads one source; `undefined` where it has a problem, which is reported. */
export function readSource(
  name: string,
  raw: RawSource,
  at: string,
  file: YamlFile,
  problems: Problems,
): Source | undefined {
  const kind = kindOf(raw);
  if (kind === undefined) {
    const named = KINDS.filter((one) => raw[one] !== undefined);
    const reason =
      named.length === 0
        ? `source "${printable(name)}" does not say what it is`
        : `source "${printable(name)}" is ${named.join(' and ')} at once`;
    const instead =
      named.length === 0 ? 'add one of modbus: tcp://…, mqtt: mqtt://…, host: true' : 'make a source of each';
    problems.error(file.placeOfName(at), reason, instead, name);
    return undefined;
  }
  let sound = true;
  for (const member of ['unit', 'every'] as const) {
    if (raw[member] === undefined || MEMBERS[kind].includes(member)) continue;
    problems.error(
      file.placeOfName(`${at}/${member}`),
      `"${member}" means nothing for a ${kind} source`,
      'remove it',
      member,
    );
    sound = false;
  }
  const everyMs = readEvery(raw, kind, at, file, problems);
  if (kind === 'modbus' || kind === 'mqtt') {
    const url = raw[kind]!;
    const wrong = wrongUrl(url, kind);
    if (wrong !== undefined) {
      problems.error(
        file.placeOf(`${at}/${kind}`),
        `"${printable(url)}" ${wrong}`,
        `write for example ${EXAMPLES[kind]}`,
        url,
      );
      sound = false;
    }
    if (!sound || everyMs === undefined) return undefined;
    return kind === 'mqtt' ? { kind, name, url } : { kind, name, url, unit: raw.unit ?? 1, everyMs };
  }
  return sound && everyMs !== undefined ? { kind, name, everyMs } : undefined;
}

function readEvery(
  raw: RawSource,
  kind: SourceKind,
  at: string,
  file: YamlFile,
  problems: Problems,
): number | undefined {
  if (raw.every === undefined || !MEMBERS[kind].includes('every')) return EVERY_MS[kind];
  const reading = readDuration(String(raw.every));
  const ms = 'value' in reading ? reading.value : Number.NaN;
  if (ms >= SHORTEST_EVERY_MS && ms <= LONGEST_EVERY_MS) return ms;
  const reason = 'reason' in reading ? reading.reason : ms < SHORTEST_EVERY_MS ? 'is too short' : 'is too long';
  problems.error(
    file.placeOf(`${at}/every`),
    `every "${raw.every}" ${reason}`,
    'write from 10ms to 7d, for example 1s',
    String(raw.every),
  );
  return undefined;
}

function wrongUrl(text: string, kind: 'modbus' | 'mqtt'): string | undefined {
  const url = URL.parse(text);
  if (url === null || !/^[a-z]+:\/\//i.test(text)) return 'is not an address';
  if (!SCHEMES[kind].includes(url.protocol)) return `begins with ${url.protocol}//, which ${kind} does not know`;
  if (url.hostname === '') return 'names no host';
  if (kind === 'modbus' && !/^\/?$/.test(url.pathname + url.search + url.hash)) return 'has something after the port';
  return undefined;
}

const REGISTERS_OF: Readonly<Record<ModbusRegister['type'], number>> = {
  bool: 1,
  int16: 1,
  uint16: 1,
  int32: 2,
  uint32: 2,
  float32: 2,
  float64: 4,
};

/** `holding 30013`: a table and the number as the technician writes it. Says why not, where not. */
export function readRegister(
  text: string,
  type: ModbusRegister['type'] | undefined,
):
  | Pick<ModbusRegister, 'table' | 'address' | 'type'>
  | { reason: string; instead: string; member: 'register' | 'type' } {
  const match = /^(holding|input|coil|discrete)\s+(\d{1,6})$/i.exec(text.trim());
  const instead = 'write for example holding 30013, input 30001, coil 1 or discrete 1';
  if (match === null) return { reason: 'is not a Modbus register', instead, member: 'register' };
  const table = match[1]!.toLowerCase() as ModbusRegister['table'];
  const address = Number(match[2]);
  const bits = table === 'coil' || table === 'discrete';
  const read = type ?? (bits ? 'bool' : 'uint16');
  if (bits && read !== 'bool') {
    return {
      reason: `does not fit ${table} registers, which hold one bit`,
      instead: 'write bool, or leave it out',
      member: 'type',
    };
  }
  if (!bits && read === 'bool') {
    return { reason: `does not fit ${table} registers, which hold 16 bits`, instead: 'write uint16', member: 'type' };
  }
  if (address + REGISTERS_OF[read] - 1 > 65_535) {
    return { reason: 'lies beyond the last register 65535', instead, member: 'register' };
  }
  return { table, address, type: read };
}
