import { messageOf, TagferryError } from '../../base/errors.ts';
import type { Availability } from '../../broker/broker-spec.ts';
import { quote } from '../intake/address-book.ts';
import type { Quality, Reading } from '../intake/gate.ts';
import { missingZone, parseZonedTime } from '../intake/logger-time.ts';
import { notANumber, type RawReading, readsTexts } from '../intake/shaping.ts';
import { isTrusted } from '../intake/stamps.ts';
import { parseDecimal, parseIsoTime, unpadded } from '../intake/text-parsers.ts';
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

/** One value in a message, or the reason why it cannot be read. */
interface PayloadReading {
  /** A number, or a text or boolean if the value has a map. `undefined` if it cannot be read. */
  value: RawReading | undefined;
  problem?: string;
  /** Whether the message does not contain the value. */
  isAbsent?: boolean;
  /** Whole milliseconds since 1970, not necessarily plausible. */
  timeMs?: number;
  /** Whether the timestamp is a number. */
  isNumeric?: boolean;
  /** Problem of a timestamp that is probably local time. */
  zoneProblem?: string;
  quality?: Quality;
}

/** Maximum message size. Larger messages are assumed not to contain readings. */
export const MAX_PAYLOAD_BYTES = 256 * 1024;
export const PAYLOAD_TOO_LONG = 'it exceeds 256 KiB';
/** Maximum number of samples in a message, added up over its values. */
const MAX_SAMPLES = 50_000;

/** A message, parsed as JSON at most once regardless of the number of values read from it. */
export class Payload {
  readonly #text: string;
  readonly #headers: ReadonlyMap<string, string> | undefined;
  readonly #times: MessageTimes | undefined;
  #json: { value: unknown } | { problem: string } | undefined;

  /** `headers`: user properties. `times`: used for timestamps without a UTC offset. */
  constructor(bytes: Uint8Array, headers?: ReadonlyMap<string, string>, times?: MessageTimes) {
    this.#headers = headers;
    this.#times = times;
    this.#text = unpadded(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8'));
  }

  /**
   * Returns the reading of a value. `isText`: whether the value can be a text. `sample`: element
   * of a list of samples; if omitted, the whole message is read. Problems quote only the beginning of the value. Throws a
   * `TagferryError` if the message is not JSON.
   */
  read(value: MessageValue, isText = false, sample?: { json: unknown; afterMs: number | undefined }): PayloadReading {
    const { at, time, timeProperty, status } = value;
    const isWhole = at === undefined && sample === undefined;
    const found = isWhole ? this.#text : this.#at(at ?? '', sample);
    if (found === undefined) return { value: undefined, problem: `no value at ${at}`, isAbsent: true };
    const reading: PayloadReading = { value: isText ? textOf(found) : numberOf(found) };
    if (reading.value === undefined) reading.problem = problemOf(found, at);
    if (time !== undefined) this.#readTime(reading, this.#at(time, sample), time, value, sample);
    if (timeProperty !== undefined) {
      const place = `the user property ${timeProperty}`;
      this.#readTime(reading, this.#headers?.get(timeProperty), place, value, sample);
    }
    const quality = status === undefined ? undefined : qualityOf(this.#at(status, sample));
    if (quality !== undefined) reading.quality = quality;
    return reading;
  }

  /** Reads an ISO 8601 time, or a plain or quoted number. A value whose time cannot be read is not used. */
  #readTime(
    reading: PayloadReading,
    found: unknown,
    at: string,
    { timeUnit = 'ms', zone = this.#times?.zone }: MessageValue,
    sample: { afterMs: number | undefined } | undefined,
  ): void {
    const text = typeof found === 'string' ? found.trim() : '';
    const isNumeric = typeof found === 'number' || /^-?\d+(\.\d+)?$/.test(text);
    const { arrivalMs = 0, isPast = false } = this.#times ?? {};
    let timeMs: number;
    if (isNumeric) timeMs = Math.round(Number(found) * MS_OF_UNIT[timeUnit]);
    else if (zone !== undefined) timeMs = parseZonedTime(text, zone, arrivalMs, sample);
    else timeMs = parseIsoTime(text);
    if (Number.isNaN(timeMs)) {
      reading.value = undefined;
      reading.problem ??= `no time at ${at}`;
      return;
    }
    reading.timeMs = timeMs;
    reading.isNumeric = isNumeric;
    // The check requires live values, because it compares the timestamp with the arrival time.
    if (isNumeric || zone !== undefined || isPast || sample !== undefined || !isTrusted(arrivalMs)) return;
    const problem = missingZone(text, timeMs, arrivalMs);
    if (problem !== undefined) reading.zoneProblem = problem;
  }

  /** Returns the list at a JSON pointer. Throws a `TagferryError`. */
  samples(pointer: string): readonly unknown[] {
    const found = this.#at(pointer, undefined);
    const where = pointer === '' ? 'the payload' : `the value at ${pointer}`;
    const facts = { code: 'message.no_samples' };
    if (!Array.isArray(found)) throw new TagferryError(`${where} is not a list`, facts);
    if (found.length > MAX_SAMPLES) throw new TagferryError(`${where} has more than ${MAX_SAMPLES} samples`, facts);
    return found;
  }

  #at(pointer: string, sample: { json: unknown } | undefined): unknown {
    return pointedAt(sample === undefined ? this.json() : sample.json, pointer);
  }

  /** Returns the parsed message. Throws a `TagferryError`. */
  json(): unknown {
    this.#json ??= parse(this.#text);
    if ('problem' in this.#json) throw new TagferryError(this.#json.problem, { code: 'message.no_json' });
    return this.#json.value;
  }
}

/**
 * Returns the number in a message, or `undefined` if there is none. Accepts numbers, quoted numbers (the only form that
 * many senders support), and `true` and `false` as 1 and 0.
 */
function numberOf(found: unknown): number | undefined {
  const plain = typeof found === 'string' ? unpadded(found) : found;
  if (plain === true || plain === 'true') return 1;
  if (plain === false || plain === 'false') return 0;
  const value = typeof plain === 'string' ? parseDecimal(unquoted(plain)) : plain;
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined;
}

/** Returns the number, text or boolean that a map replaces, or `undefined` if there is none. */
function textOf(found: unknown): RawReading | undefined {
  if (typeof found === 'string') return unquoted(unpadded(found));
  return typeof found === 'number' || typeof found === 'boolean' ? found : undefined;
}

function problemOf(found: unknown, at: string | undefined): string {
  const where = at === undefined ? 'the payload' : `the value at ${at}`;
  if (typeof found === 'string') return `${where}, ${quote(unpadded(found))}, ${notANumber(found)}`;
  if (typeof found === 'number') return `${where} exceeds the range of a 64-bit number`;
  return `${where} is ${found === null ? 'null' : Array.isArray(found) ? 'a list' : 'an object'}, not a number`;
}

/** Returns `undefined` for a status that the platform does not support. The value is then stored without a status. */
function qualityOf(found: unknown): Quality | undefined {
  const word = typeof found === 'string' ? found.trim().toLowerCase() : undefined;
  return word === 'good' || word === 'uncertain' || word === 'bad' ? word : undefined;
}

function unquoted(text: string): string {
  return text.length > 1 && text.startsWith('"') && text.endsWith('"') ? text.slice(1, -1) : text;
}

function parse(text: string): { value: unknown } | { problem: string } {
  try {
    return { value: JSON.parse(text) };
  } catch {
    return { problem: 'the payload is not JSON' };
  }
}

/** Returns the value at a JSON pointer, or `undefined` if there is none. */
export function pointedAt(json: unknown, pointer: string): unknown {
  let found = json;
  for (const name of namesOf(pointer)) {
    if (typeof found !== 'object' || found === null) return undefined;
    if (Array.isArray(found) && !/^\d+$/.test(name)) return undefined;
    found = Object.hasOwn(found, name) ? (found as Record<string, unknown>)[name] : undefined;
  }
  return found;
}

/** Parsed JSON pointers. All of them are from tags.yaml. */
const POINTERS = new Map<string, readonly string[]>();
const MAX_POINTERS = 20_000;

/** Returns the member names in a JSON pointer. */
function namesOf(pointer: string): readonly string[] {
  const known = POINTERS.get(pointer);
  if (known !== undefined) return known;
  const parts = pointer.split('/').slice(1);
  const names = parts.map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'));
  if (POINTERS.size >= MAX_POINTERS) POINTERS.clear();
  POINTERS.set(pointer, names);
  return names;
}

/** Returns the time to use for a value without its own. `afterMs`: time of the previous sample in the message. */
type TimeOf = (series: number, afterMs?: number) => number;

interface ReadMessage {
  readings: Reading[];
  /** Set if no value could be read. */
  problem: string | undefined;
  /** Problem of a timestamp that is probably local time. */
  zoneProblem?: string | undefined;
}

/** Options for the timestamps of a message. */
export interface MessageTimes {
  /** Replaces the arrival time for values without a plausible timestamp. */
  timeOf?: TimeOf | undefined;
  /** Time of arrival at the broker or, if it is unknown, at the agent. */
  arrivalMs: number;
  /** Default time zone of timestamps without a UTC offset. */
  zone?: string | undefined;
  /** Whether the message can be older than its arrival, so that values with an implausible timestamp are rejected. */
  isPast?: boolean;
}

interface ReadSoFar {
  readings: Reading[];
  /** Number of samples. */
  samples: number;
  /** Whether the message contains a readable value. */
  hasRead: boolean;
  zoneProblem?: string;
}

/** Returns the readings in a message. */
export function readMessage(
  message: { payload: Uint8Array; headers?: ReadonlyMap<string, string> },
  points: readonly Point<MessageValue>[],
  times: MessageTimes,
): ReadMessage {
  if (message.payload.length > MAX_PAYLOAD_BYTES) {
    return { readings: points.map((point) => ({ point, failure: PAYLOAD_TOO_LONG })), problem: PAYLOAD_TOO_LONG };
  }
  const payload = new Payload(message.payload, message.headers, times);
  const read: ReadSoFar = { readings: [], samples: 0, hasRead: false };
  for (const point of points) {
    if (point.spec.samples === undefined) read.readings.push(readOne(read, payload, point, times));
    else readSamples(read, payload, point, times);
  }
  const { hasRead, zoneProblem } = read;
  if (!hasRead) return { readings: read.readings, problem: problemIn(read.readings) ?? 'it is empty', zoneProblem };
  // The message counts as read, so its unreadable values are counted individually.
  const readings = read.readings.map((reading): Reading => {
    if ('absent' in reading) return { ...reading, isAlone: false };
    return 'failure' in reading ? { ...reading, problem: reading.failure! } : reading;
  });
  return { readings, problem: undefined, zoneProblem };
}

/** Returns the latest problem of a value. Absent values are only a problem if there is no other. */
function problemIn(readings: readonly Reading[]): string | undefined {
  let absent: string | undefined;
  for (const reading of readings.toReversed()) {
    if ('failure' in reading) return reading.failure;
    if ('absent' in reading) absent ??= reading.absent;
  }
  return absent;
}

/** Reads the samples of a value. Consecutive unreadable samples are one reading. */
function readSamples(read: ReadSoFar, payload: Payload, point: Point<MessageValue>, times: MessageTimes): void {
  let samples: readonly unknown[];
  try {
    samples = payload.samples(point.spec.samples!);
  } catch (error) {
    read.readings.push({ point, failure: messageOf(error) });
    return;
  }
  read.samples += samples.length;
  if (read.samples > MAX_SAMPLES) {
    const failure = `the message has more than ${MAX_SAMPLES} samples for all its values`;
    read.readings.push({ point, failure });
    return;
  }
  if (samples.length === 0) read.hasRead = true;
  let absent: Reading | undefined;
  let failed: { count?: number } | undefined;
  let isAbsent = true;
  let afterMs: number | undefined;
  for (let at = 0; at < samples.length; at++) {
    const reading = readOne(read, payload, point, times, { json: samples[at], afterMs });
    if ('absent' in reading) {
      absent ??= { ...reading, absent: `sample ${at + 1}: ${reading.absent}` };
      continue;
    }
    isAbsent = false;
    if ('timeMs' in reading) afterMs = reading.timeMs ?? afterMs;
    if (!('failure' in reading)) {
      failed = undefined;
      read.readings.push(reading);
    } else if (failed === undefined) {
      const first = { ...reading, failure: `sample ${at + 1}: ${reading.failure}`, count: 1 };
      read.readings.push(first);
      failed = first;
    } else {
      failed.count!++;
    }
  }
  if (isAbsent && absent !== undefined) read.readings.push(absent);
}

const unitFix = (unit: TimeUnit) => `set time_unit: ${unit}`;

/** Returns the reading of a value. */
function readOne(
  read: ReadSoFar,
  payload: Payload,
  point: Point<MessageValue>,
  { timeOf, isPast = false }: MessageTimes,
  sample?: { json: unknown; afterMs: number | undefined },
): Reading {
  let found: PayloadReading;
  try {
    found = payload.read(point.spec, readsTexts(point), sample);
  } catch (error) {
    return { point, failure: messageOf(error) };
  }
  const { value, problem, isAbsent, timeMs: own, isNumeric, quality, zoneProblem } = found;
  if (isAbsent) return { point, absent: problem!, isAlone: true };
  const time = {
    timeMs: own ?? timeOf?.(point.series, sample?.afterMs),
    msOfUnit: isNumeric ? MS_OF_UNIT[point.spec.timeUnit ?? 'ms'] : undefined,
    unitFix,
    // List samples were measured before the message was sent.
    arrival: isPast || sample !== undefined ? ('unknown' as const) : timeOf,
  };
  if (value === undefined) return { point, failure: problem, ...time };
  read.hasRead = true;
  if (zoneProblem !== undefined) read.zoneProblem = `${point.name}: ${zoneProblem}`;
  return { point, raw: value, quality, ...time };
}
