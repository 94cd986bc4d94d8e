import { messageOf, TagferryError } from '../../base/errors.ts';
import { quote } from '../intake/address-book.ts';
import { isSeconds, isValidTime } from '../intake/draft.ts';
import type { Quality, Reading } from '../intake/gate.ts';
import { withoutStackTraces } from '../intake/problem-list.ts';
import { notANumber, type RawReading } from '../intake/shaping.ts';
import { isTrusted } from '../intake/stamps.ts';
import { parseDecimal, parseIsoTime } from '../intake/text-parsers.ts';
import type { Point } from '../points.ts';

export type TimeUnit = 's' | 'ms' | 'us' | 'ns';

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
  status?: string;
  /** Topic or subject to which writes are published. */
  writeTo?: string;
}

/** One value in a message. */
interface PayloadReading {
  /** A number, or a text or boolean if the value has a map. */
  value: RawReading;
  /** Whole milliseconds since 1970. */
  timeMs?: number;
  quality?: Quality;
}

/** Maximum message size. Larger messages are assumed not to contain readings. */
export const MAX_PAYLOAD_BYTES = 256 * 1024;
export const PAYLOAD_TOO_LONG = 'it exceeds 256 KiB';
/** Maximum number of samples of one value in a message. */
const MAX_SAMPLES = 50_000;
const BYTE_ORDER_MARK = '\ufeff';

/** A message, parsed as JSON at most once regardless of the number of values read from it. */
export class Payload {
  readonly #text: string;
  readonly #arrivalMs: number;
  readonly #headers: ReadonlyMap<string, string> | undefined;
  #json: { value: unknown } | undefined;

  /**
   * `arrivalMs`: current wall clock time. If the gateway clock is not set, times near 1970 are also accepted.
   * `headers`: user properties.
   */
  constructor(bytes: Uint8Array, arrivalMs: number, headers?: ReadonlyMap<string, string>) {
    this.#headers = headers;
    this.#arrivalMs = arrivalMs;
    const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8');
    this.#text = text.startsWith(BYTE_ORDER_MARK) ? text.slice(1) : text;
  }

  /**
   * Returns the reading of a value. `isMapped`: whether the value has a map and can therefore be a text. `sample`: element
   * of a list of samples; if omitted, the whole message is read. Throws a `TagferryError` that quotes only the beginning
   * of the value.
   */
  read(value: MessageValue, isMapped = false, sample?: { json: unknown }): PayloadReading {
    const { at, time, timeProperty, timeUnit, status } = value;
    const isWhole = at === undefined && sample === undefined;
    const found = isWhole ? this.#text : this.#at(at ?? '', sample);
    const reading: PayloadReading = { value: isMapped ? textOf(found, at) : numberOf(found, at) };
    if (time !== undefined) reading.timeMs = timeOf(this.#at(time, sample), time, timeUnit, this.#arrivalMs);
    if (timeProperty !== undefined) {
      const property = this.#headers?.get(timeProperty);
      reading.timeMs = timeOf(property, `the user property ${timeProperty}`, timeUnit, this.#arrivalMs);
    }
    const quality = status === undefined ? undefined : qualityOf(this.#at(status, sample));
    if (quality !== undefined) reading.quality = quality;
    return reading;
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
    this.#json ??= { value: parse(this.#text) };
    return this.#json.value;
  }
}

/**
 * Returns the number in a message: the payload itself, or the value at the JSON pointer (RFC 6901) `at`. Accepts
 * numbers, quoted numbers (the only form that many senders support), and `true` and `false` as 1 and 0.
 */
function numberOf(found: unknown, at: string | undefined): number {
  const plain = typeof found === 'string' ? found.trim() : found;
  if (plain === true || plain === 'true') return 1;
  if (plain === false || plain === 'false') return 0;
  const value = typeof plain === 'string' ? parseDecimal(unquoted(plain)) : plain;
  if (typeof value === 'number' && Number.isFinite(value)) return value;
  throw new TagferryError(problemOf(found, at), { code: 'message.no_number' });
}

/** Returns the number, text or boolean that a map replaces. */
function textOf(found: unknown, at: string | undefined): RawReading {
  if (typeof found === 'string') return unquoted(found.trim());
  if (typeof found === 'number' || typeof found === 'boolean') return found;
  throw new TagferryError(problemOf(found, at), { code: 'message.no_number' });
}

function problemOf(found: unknown, at: string | undefined): string {
  const where = at === undefined ? 'the payload' : `the value at ${at}`;
  if (found === undefined) return `no value at ${at}`;
  if (typeof found === 'string') return `${where}, ${quote(found.trim())}, ${notANumber(found)}`;
  return `${where} is ${found === null ? 'null' : Array.isArray(found) ? 'a list' : 'an object'}, not a number`;
}

/** Milliseconds per unit. */
const IN_A_MS: Readonly<Record<TimeUnit, number>> = { s: 1e-3, ms: 1, us: 1e3, ns: 1e6 };

/**
 * Parses an ISO 8601 time (UTC if it has no offset), or a plain or quoted number in `unit`. Default unit: milliseconds.
 */
function timeOf(found: unknown, at: string, unit: TimeUnit | undefined, arrivalMs: number): number {
  const text = typeof found === 'string' ? found.trim() : undefined;
  const isCount = typeof found === 'number' || (text !== undefined && /^-?\d+(\.\d+)?$/.test(text));
  const timeMs = isCount ? Math.round(Number(found) / IN_A_MS[unit ?? 'ms']) : parseIsoTime(text ?? '');
  if (!isValidTime(timeMs)) {
    const outside = `the time at ${at} must be between 1970 and 9999: check time_unit`;
    throw wrongTime(isCount ? outside : `no time at ${at}`);
  }
  if (isCount && unit === undefined && isTrusted(arrivalMs) && isSeconds(timeMs)) {
    throw wrongTime(`the time at ${at} looks like seconds: set time_unit: s`);
  }
  return timeMs;
}

const wrongTime = (reason: string) => new TagferryError(reason, { code: 'message.no_time' });

/** Returns `undefined` for a status that the platform does not support. The value is then stored without a status. */
function qualityOf(found: unknown): Quality | undefined {
  const word = typeof found === 'string' ? found.trim().toLowerCase() : undefined;
  return word === 'good' || word === 'uncertain' || word === 'bad' ? word : undefined;
}

function unquoted(text: string): string {
  return text.length > 1 && text.startsWith('"') && text.endsWith('"') ? text.slice(1, -1) : text;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new TagferryError('the payload is not JSON', { code: 'message.no_json' });
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
}

/** Returns the readings in a message. `timeOf` replaces the arrival time for values that have no timestamp. */
export function readMessage(
  message: { payload: Uint8Array; headers?: ReadonlyMap<string, string> },
  arrivalMs: number,
  points: readonly Point<MessageValue>[],
  timeOf?: TimeOf,
): ReadMessage {
  if (message.payload.length > MAX_PAYLOAD_BYTES) {
    return { readings: points.map((point) => ({ point, failure: PAYLOAD_TOO_LONG })), problem: PAYLOAD_TOO_LONG };
  }
  const payload = new Payload(message.payload, arrivalMs, message.headers);
  const read = { readings: [], problem: undefined, hasRead: false };
  for (const point of points) {
    if (point.spec.samples === undefined) readInto(read, payload, point, timeOf);
    else readSamples(read, payload, point, timeOf);
  }
  const { readings, hasRead, problem = 'it is empty' } = read;
  // Missing values are not a problem, because senders may omit values that did not change.
  return { readings, problem: hasRead ? undefined : problem };
}

function readSamples(
  read: ReadMessage & { hasRead: boolean },
  payload: Payload,
  point: Point<MessageValue>,
  timeOf: TimeOf | undefined,
): void {
  try {
    const samples = payload.samples(point.spec.samples!);
    if (samples.length === 0) read.hasRead = true;
    let afterMs: number | undefined;
    withoutStackTraces(() => {
      for (let at = 0; at < samples.length; at++) {
        afterMs = readInto(read, payload, point, timeOf, { json: samples[at], number: at + 1, afterMs }) ?? afterMs;
      }
    });
  } catch (error) {
    read.problem = messageOf(error);
    read.readings.push({ point, failure: read.problem });
  }
}

/** Adds the reading of a value, or its failure. Returns the time of the reading, if it has one. */
function readInto(
  read: ReadMessage & { hasRead: boolean },
  payload: Payload,
  point: Point<MessageValue>,
  timeOf: TimeOf | undefined,
  sample?: { json: unknown; number: number; afterMs: number | undefined },
): number | undefined {
  try {
    const { value, timeMs: own, quality } = payload.read(point.spec, point.map !== undefined, sample);
    const timeMs = own ?? timeOf?.(point.series, sample?.afterMs);
    read.hasRead = true;
    read.readings.push({ point, raw: value, timeMs, quality });
    return timeMs;
  } catch (error) {
    read.problem = sample === undefined ? messageOf(error) : `sample ${sample.number}: ${messageOf(error)}`;
    read.readings.push({ point, failure: read.problem });
    return undefined;
  }
}
