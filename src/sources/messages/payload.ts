/** Reads the values in broker messages: numbers and texts, with their times and statuses. Pure. */
import type { Availability } from '../../broker/broker-spec.ts';
import { quote } from '../intake/address-book.ts';
import type { Quality, Reading } from '../intake/gate.ts';
import { missingZone, parseZonedTime } from '../intake/logger-time.ts';
import { notANumber, numberOf, type RawReading, readsTexts } from '../intake/shaping.ts';
import { isTrusted } from '../intake/stamps.ts';
import { parseIsoTime, parseJson, parseQuality, unpadded } from '../intake/text-parsers.ts';
import { MS_OF_UNIT, type TimeUnit } from '../intake/times.ts';
import type { Point } from '../points.ts';

/** Location of a value in broker messages. */
export interface MessageValue {
  /** MQTT topic or NATS subject; may contain wildcards. */
  topic: string;
  /** Topic as written in tags.yaml, before `{tag}` is replaced. Identifies tags that share a topic template. */
  template: string;
  /** JSON pointer (RFC 6901) to a list, to whose elements the other pointers refer. */
  samples?: string;
  /** JSON pointer; if omitted, the whole message or element is the number. */
  at?: string;
  time?: string;
  /** Name of an MQTT 5 user property, in lower case. */
  timeProperty?: string;
  timeUnit?: TimeUnit;
  /** Time zone of timestamps without a UTC offset. */
  zone?: string;
  status?: string;
  availability?: Availability;
  /** Topic or subject to which writes are published. */
  writeTo?: string;
}

/** Maximum message size. Larger messages are assumed not to contain readings. */
export const MAX_PAYLOAD_BYTES = 256 * 1024;
export const PAYLOAD_TOO_LONG = 'it exceeds 256 KiB';
/** Numbers that are not valid JSON, but that Arduino and Python programs send (`nan`, `-Infinity`). */
const NOT_FINITE = /([[:,]\s*)([+-]?(?:nan|inf(?:inity)?))(?=\s*[,\]}])/gi;
/** Lowest OPC UA status codes of these qualities. */
const UA_UNCERTAIN = 0x4000_0000;
const UA_BAD = 0x8000_0000;
const NOT_JSON = 'the payload is not JSON';
/** Maximum number of samples in a message, added up over its values. */
const MAX_SAMPLES = 50_000;

/** Options for the timestamps of a message. */
export interface MessageTimes {
  /**
   * Returns the time of a value without a plausible timestamp, which replaces the arrival time. `afterMs`: time of the
   * previous sample in the message.
   */
  timeOf?: ((series: number, afterMs?: number) => number) | undefined;
  /** Time of arrival at the broker or, if it is unknown, at the agent. */
  arrivalMs: number;
  /** Default time zone of timestamps without a UTC offset. */
  zone?: string | undefined;
  /** Whether the message may have been sent long ago. Values with implausible timestamps are then rejected. */
  isPast?: boolean;
}

interface ReadMessage {
  readings: Reading[];
  /** Set if no value could be read. */
  problem: string | undefined;
  /** Problem of a timestamp that is probably local time. */
  zoneProblem: string | undefined;
}

/** Element of a sample list. */
interface Sample {
  json: unknown;
  /** Time of the previous sample. */
  afterMs: number | undefined;
}

/** Returns the readings in a message. `headers`: user properties. */
export function readMessage(
  { payload, headers }: { payload: Uint8Array; headers?: ReadonlyMap<string, string> },
  points: readonly Point<MessageValue>[],
  times: MessageTimes,
): ReadMessage {
  if (payload.length > MAX_PAYLOAD_BYTES) {
    const readings = points.map((point) => ({ point, failure: PAYLOAD_TOO_LONG }));
    return { readings, problem: PAYLOAD_TOO_LONG, zoneProblem: undefined };
  }
  return new Payload(payload, headers, times).read(points);
}

/** Message that is being read. Parsed as JSON at most once, regardless of the number of values. */
class Payload {
  readonly #text: string;
  readonly #headers: ReadonlyMap<string, string> | undefined;
  readonly #times: MessageTimes;
  #json: { value: unknown } | undefined;
  readonly #readings: Reading[] = [];
  #samples = 0;
  /** Whether the message contains a readable value. */
  #hasRead = false;
  #zoneProblem: string | undefined;

  constructor(bytes: Uint8Array, headers: ReadonlyMap<string, string> | undefined, times: MessageTimes) {
    this.#text = textOf(bytes);
    this.#headers = headers;
    this.#times = times;
  }

  read(points: readonly Point<MessageValue>[]): ReadMessage {
    for (const point of points) {
      if (point.spec.samples === undefined) this.#readings.push(this.#readOne(point));
      else this.#readSamples(point, point.spec.samples);
    }
    const zoneProblem = this.#zoneProblem;
    if (!this.#hasRead) {
      return { readings: this.#readings, problem: problemIn(this.#readings) ?? 'it is empty', zoneProblem };
    }
    // The message counts as read, so its unreadable values are counted individually.
    const readings = this.#readings.map((reading): Reading => {
      if ('absent' in reading) return { ...reading, isAlone: false };
      return 'failure' in reading ? { ...reading, problem: reading.failure! } : reading;
    });
    return { readings, problem: undefined, zoneProblem };
  }

  #readSamples(point: Point<MessageValue>, pointer: string): void {
    const list = pointedAt(this.#parsed(), pointer);
    if (!Array.isArray(list)) {
      const where = pointer === '' ? 'the payload' : `the value at ${pointer}`;
      this.#readings.push({ point, failure: this.#parsed() === undefined ? NOT_JSON : `${where} is not a list` });
      return;
    }
    this.#samples += list.length;
    if (this.#samples > MAX_SAMPLES) {
      this.#readings.push({ point, failure: `the message has more than ${MAX_SAMPLES} samples` });
      return;
    }
    this.#hasRead ||= list.length === 0;
    const before = this.#readings.length;
    let absent: Reading | undefined;
    let afterMs: number | undefined;
    for (let at = 0; at < list.length; at++) {
      const reading = this.#readOne(point, { json: list[at], afterMs });
      if ('timeMs' in reading) afterMs = reading.timeMs ?? afterMs;
      if ('absent' in reading) absent ??= { ...reading, absent: `sample ${at + 1}: ${reading.absent}` };
      else if ('failure' in reading) {
        this.#readings.push({ ...reading, failure: `sample ${at + 1}: ${reading.failure}` });
      } else this.#readings.push(reading);
    }
    if (absent !== undefined && this.#readings.length === before) this.#readings.push(absent);
  }

  /** Reads a value in the whole message or in a sample. Problems quote only the beginning of the value. */
  #readOne(point: Point<MessageValue>, sample?: Sample): Reading {
    const { at, time, timeProperty, status } = point.spec;
    const isWhole = at === undefined && sample === undefined;
    if (!isWhole && sample === undefined && this.#parsed() === undefined) return { point, failure: NOT_JSON };
    const found = isWhole ? this.#text : this.#at(at ?? '', sample);
    if (found === undefined) return { point, absent: `no value at ${at}`, isAlone: true };
    const raw = rawOf(found, readsTexts(point));
    let failure = raw === undefined ? problemOf(found, at) : undefined;
    let own: { timeMs: number; msOfUnit?: number } | undefined;
    if (time !== undefined || timeProperty !== undefined) {
      own = this.#timeOf(point, sample);
      if (own === undefined) failure ??= this.#problemOfTime(point, sample);
    }
    const { timeOf, isPast = false } = this.#times;
    const times = {
      timeMs: own?.timeMs ?? timeOf?.(point.series, sample?.afterMs),
      msOfUnit: own?.msOfUnit,
      unitFix,
      // List samples were measured before the message was sent.
      arrival: isPast || sample !== undefined ? ('unknown' as const) : timeOf,
    };
    if (raw === undefined || failure !== undefined) return { point, failure, ...times };
    this.#hasRead = true;
    const quality = status === undefined ? undefined : qualityOf(this.#at(status, sample));
    return { point, raw, quality, ...times };
  }

  /**
   * Returns the timestamp of a value as Unix time in whole milliseconds, which can be implausible. A timestamp is an
   * ISO 8601 time, or a plain or quoted number, which is returned with the length of its unit in milliseconds. Returns
   * `undefined` for unreadable timestamps.
   */
  #timeOf(
    { name, spec }: Point<MessageValue>,
    sample: Sample | undefined,
  ): { timeMs: number; msOfUnit?: number } | undefined {
    const { arrivalMs, isPast = false } = this.#times;
    const { time = '', timeProperty, timeUnit = 'ms', zone = this.#times.zone } = spec;
    const found = this.#timeAt(time, timeProperty, sample);
    const text = typeof found === 'string' ? found.trim() : '';
    if (typeof found === 'number' || /^-?\d+(\.\d+)?$/.test(text)) {
      const msOfUnit = MS_OF_UNIT[timeUnit];
      return { timeMs: Math.round(Number(found) * msOfUnit), msOfUnit };
    }
    const timeMs = zone === undefined ? parseIsoTime(text) : parseZonedTime(text, zone, arrivalMs, sample);
    if (Number.isNaN(timeMs)) return undefined;
    // The check requires live values, because it compares the timestamp with the arrival time.
    if (zone === undefined && !isPast && sample === undefined && isTrusted(arrivalMs)) {
      const problem = missingZone(text, timeMs, arrivalMs);
      if (problem !== undefined) this.#zoneProblem = `${name}: ${problem}`;
    }
    return { timeMs };
  }

  #problemOfTime({ spec: { time = '', timeProperty } }: Point<MessageValue>, sample: Sample | undefined): string {
    const where = timeProperty === undefined ? time : `the user property ${timeProperty}`;
    const found = this.#timeAt(time, timeProperty, sample) ?? undefined;
    if (found === undefined) return `no time at ${where}`;
    const shown = typeof found === 'string' ? quote(found) : typeof found;
    return `the time at ${where}, ${shown}, is neither an ISO 8601 timestamp nor a number`;
  }

  #timeAt(pointer: string, property: string | undefined, sample: Sample | undefined): unknown {
    return property === undefined ? this.#at(pointer, sample) : this.#headers?.get(property);
  }

  #at(pointer: string, sample: Sample | undefined): unknown {
    return pointedAt(sample === undefined ? this.#parsed() : sample.json, pointer);
  }

  /** Returns `undefined` if the message is not JSON. */
  #parsed(): unknown {
    // As text, such a number is a failure of its own value only.
    this.#json ??= { value: parseJson(this.#text) ?? parseJson(this.#text.replaceAll(NOT_FINITE, '$1"$2"')) };
    return this.#json.value;
  }
}

const unitFix = (unit: TimeUnit) => `set time_unit: ${unit}`;

/** Returns the text of a message without padding. */
export function textOf(bytes: Uint8Array): string {
  return unpadded(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8'));
}

/**
 * Returns the number in a message, or its text or boolean if `isText`. Accepts numbers, quoted numbers (the only form
 * that many senders support), and `true` and `false` as 1 and 0. Returns `undefined` for other values.
 */
export function rawOf(found: unknown, isText = false): RawReading | undefined {
  if (typeof found !== 'string' && typeof found !== 'number' && typeof found !== 'boolean') return undefined;
  const raw = typeof found === 'string' ? unquoted(found) : found;
  if (isText) return raw;
  const number = numberOf(raw, undefined);
  return Number.isFinite(number) ? number : undefined;
}

function unquoted(text: string): string {
  return text.length > 1 && text.startsWith('"') && text.endsWith('"') ? text.slice(1, -1) : text;
}

function problemOf(found: unknown, at: string | undefined): string {
  const where = at === undefined ? 'the payload' : `the value at ${at}`;
  if (typeof found === 'string') return `${where}, ${quote(unpadded(found))}, ${notANumber(found)}`;
  if (typeof found === 'number') return `${where} exceeds the range of a 64-bit number`;
  return `${where} is ${found === null ? 'null' : Array.isArray(found) ? 'a list' : 'an object'}, not a number`;
}

/** Returns the latest problem of a value. Absent values count only if there is no other problem. */
function problemIn(readings: readonly Reading[]): string | undefined {
  const failed = readings.findLast((reading) => 'failure' in reading);
  if (failed !== undefined) return failed.failure;
  return readings.findLast((reading) => 'absent' in reading)?.absent;
}

/**
 * Returns the quality that a member represents. Returns `undefined` for other values, with which the value is stored
 * without a status, and for 0, which means bad in OPC Classic and good in OPC UA.
 */
function qualityOf(found: unknown): Quality | undefined {
  if (typeof found === 'boolean') return found ? 'good' : 'bad';
  if (typeof found !== 'string' && typeof found !== 'number') return undefined;
  const code = Number(found);
  if (code === 0) return undefined;
  if (code >= UA_UNCERTAIN) return code >= UA_BAD ? 'bad' : 'uncertain';
  return parseQuality(String(found).trim());
}

/** Returns the value at a JSON pointer, or `undefined` if there is none. */
function pointedAt(json: unknown, pointer: string): unknown {
  let found = json;
  for (const name of namesOf(pointer)) {
    if (typeof found !== 'object' || found === null) return undefined;
    if (Array.isArray(found) && !/^\d+$/.test(name)) return undefined;
    found = Object.hasOwn(found, name) ? (found as Record<string, unknown>)[name] : undefined;
  }
  return found;
}

/** Member names of the pointers in tags.yaml. */
const POINTERS = new Map<string, readonly string[]>();

function namesOf(pointer: string): readonly string[] {
  let names = POINTERS.get(pointer);
  if (names === undefined) {
    const parts = pointer.split('/').slice(1);
    names = parts.map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'));
    POINTERS.set(pointer, names);
  }
  return names;
}
