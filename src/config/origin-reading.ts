import { HOST_READING_NAMES, parseHostReading } from '../contract/host-readings.ts';
import { insteadOf } from './nearest.ts';
import type { YamlFile } from './placed-yaml.ts';
import type { Problems } from './problem.ts';
import { printable, shown } from './problem.ts';
import { readRegister, type SourceKind } from './source-reading.ts';
import type { ModbusRegister, ValueOrigin } from './tags.ts';

/** A value as the schema lets it through. */
export interface RawValue {
  unit?: number | { code: string };
  group?: string;
  from?: string;
  register?: string;
  type?: ModbusRegister['type'];
  word_order?: 'big' | 'little';
  scale?: number;
  topic?: string;
  at?: string;
  reading?: string;
  shape?: 'sine' | 'walk' | 'step';
  low?: number;
  high?: number;
}

/** What a value says about its source, by the kind of that source. The first is what it must say. */
const MEMBERS: Readonly<Record<SourceKind, readonly (keyof RawValue)[]>> = {
  modbus: ['register', 'type', 'word_order', 'scale'],
  mqtt: ['topic', 'at'],
  host: ['reading'],
  simulate: ['shape', 'low', 'high'],
};
const REQUIRED: Readonly<Partial<Record<SourceKind, { member: keyof RawValue; example: string }>>> = {
  modbus: { member: 'register', example: 'register: holding 30013' },
  mqtt: { member: 'topic', example: 'topic: site/ft101' },
  host: { member: 'reading', example: 'reading: load1' },
};
const ORIGIN_MEMBERS = Object.values(MEMBERS).flat();

/** Whether the value says anything that only a source gives a meaning. */
export function originMembersOf(raw: RawValue): (keyof RawValue)[] {
  return ORIGIN_MEMBERS.filter((member) => raw[member] !== undefined);
}

/** Reads where a value comes from, its source's kind being known; `undefined` where it has a problem, which is reported. */
export function readOrigin(
  raw: RawValue & { from: string },
  kind: SourceKind,
  at: string,
  file: YamlFile,
  problems: Problems,
): ValueOrigin | undefined {
  const source = raw.from;
  const strangers = originMembersOf(raw).filter((member) => !MEMBERS[kind].includes(member));
  for (const member of strangers) {
    const reason = `"${member}" does not fit "${printable(source)}", which is a ${kind} source`;
    const fitting = MEMBERS[kind].filter((one) => raw[one] === undefined);
    problems.error(
      file.placeOfName(`${at}/${member}`),
      reason,
      `remove it; ${kind} values have ${fitting.join(', ') || 'no more'}`,
      member,
    );
  }
  const required = REQUIRED[kind];
  if (required !== undefined && raw[required.member] === undefined) {
    const reason = `a value from the ${kind} source "${printable(source)}" has no "${required.member}"`;
    problems.error(file.placeOfName(at), reason, `add ${required.example}`, at.slice(at.lastIndexOf('/') + 1));
    return undefined;
  }
  if (strangers.length > 0) return undefined;
  switch (kind) {
    case 'modbus':
      return readModbus(raw, source, at, file, problems);
    case 'mqtt':
      return readMqtt(raw, source, at, file, problems);
    case 'host':
      return readHost(raw.reading!, source, at, file, problems);
    case 'simulate':
      return readSimulated(raw, source, at, file, problems);
  }
}

function readModbus(
  raw: RawValue,
  source: string,
  at: string,
  file: YamlFile,
  problems: Problems,
): ValueOrigin | undefined {
  const register = readRegister(raw.register!, raw.type);
  if ('reason' in register) {
    const text = raw[register.member] ?? '';
    problems.error(
      file.placeOf(`${at}/${register.member}`),
      `${register.member} ${shown(text)} ${register.reason}`,
      register.instead,
      String(text),
    );
    return undefined;
  }
  if (raw.scale === 0 || (raw.scale !== undefined && !Number.isFinite(raw.scale))) {
    problems.error(
      file.placeOf(`${at}/scale`),
      `scale ${raw.scale} leaves nothing of the value`,
      'write for example 0.1, or leave it out',
      String(raw.scale),
    );
    return undefined;
  }
  return {
    kind: 'modbus',
    source,
    register: { ...register, wordOrder: raw.word_order ?? 'big', scale: raw.scale ?? 1 },
  };
}

function readMqtt(
  raw: RawValue,
  source: string,
  at: string,
  file: YamlFile,
  problems: Problems,
): ValueOrigin | undefined {
  const topic = raw.topic!;
  const wrong = wrongTopic(topic);
  if (wrong !== undefined) {
    problems.error(
      file.placeOf(`${at}/topic`),
      `topic "${printable(topic)}" ${wrong}`,
      'write one topic, for example site/ft101',
      topic,
    );
    return undefined;
  }
  return { kind: 'mqtt', source, topic, ...(raw.at === undefined || raw.at === '' ? {} : { at: raw.at }) };
}

function readHost(
  reading: string,
  source: string,
  at: string,
  file: YamlFile,
  problems: Problems,
): ValueOrigin | undefined {
  if (parseHostReading(reading) !== undefined) return { kind: 'host', source, reading };
  const [name, ...argument] = reading.split(':');
  const known = HOST_READING_NAMES.includes(name!);
  const reason = known
    ? argument.join(':') === ''
      ? 'has nothing after its colon'
      : 'takes nothing after a colon'
    : 'is no reading of this machine';
  const instead = known ? `write ${name}` : insteadOf(name!, HOST_READING_NAMES);
  problems.error(file.placeOf(`${at}/reading`), `reading "${printable(reading)}" ${reason}`, instead, reading);
  return undefined;
}

function readSimulated(
  raw: RawValue,
  source: string,
  at: string,
  file: YamlFile,
  problems: Problems,
): ValueOrigin | undefined {
  const [low, high] = [raw.low ?? 0, raw.high ?? 100];
  if (low < high) return { kind: 'simulate', source, shape: raw.shape ?? 'sine', low, high };
  const member = raw.low === undefined ? 'high' : 'low';
  problems.error(
    file.placeOf(`${at}/${member}`),
    `low ${low} is not below high ${high}`,
    'write a low that is below high',
    String(raw[member]),
  );
  return undefined;
}

/** A topic that one value comes from or goes to: no wildcards; why not, where not. */
export function wrongTopic(topic: string): string | undefined {
  if (topic === '') return 'is empty';
  if (/[+#]/.test(topic)) return 'holds a wildcard (+ or #)';
  if (topic.includes('\u0000')) return 'holds a zero byte';
  return undefined;
}
