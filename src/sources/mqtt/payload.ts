import { TagferryError } from '../../base/errors.ts';
import { quote } from '../address-book.ts';
import { isTrusted } from '../ahead-times.ts';
import { parseDecimal } from '../decimal-text.ts';
import { isSeconds, isTimeTaken } from '../draft.ts';
import type { Quality } from '../gate.ts';
import { parseIsoTime } from '../iso-time.ts';
import type { MqttValue, TimeUnit } from './mqtt-value.ts';

/** What a message says of one value. */
export interface PayloadReading {
  value: number;
  /** Whole milliseconds since 1970. */
  timeMs?: number;
  quality?: Quality;
}

/** A message, parsed as JSON at most once however many values are read from it. */
export class Payload {
  readonly #text: string;
  readonly #arrivalMs: number;
  readonly #headers: ReadonlyMap<string, string> | undefined;
  #json: { value: unknown } | undefined;

  /** `arrivalMs`: the wall clock now. A gateway whose clock is not set accepts times near 1970 too. `headers`: user properties. */
  constructor(bytes: Uint8Array, arrivalMs: number, headers?: ReadonlyMap<string, string>) {
    this.#headers = headers;
    this.#arrivalMs = arrivalMs;
    this.#text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8');
  }

  /** Throws a `TagferryError` that quotes no more than the beginning of the value. */
  read({ at, time, timeProperty, timeUnit, status }: MqttValue): PayloadReading {
    const value = numberOf(at === undefined ? this.#text : pointedAt(this.#parsed(), at), at);
    const reading: PayloadReading = { value };
    if (time !== undefined) reading.timeMs = timeOf(pointedAt(this.#parsed(), time), time, timeUnit, this.#arrivalMs);
    if (timeProperty !== undefined) {
      const found = this.#headers?.get(timeProperty);
      reading.timeMs = timeOf(found, `the user property ${timeProperty}`, timeUnit, this.#arrivalMs);
    }
    const quality = status === undefined ? undefined : qualityOf(pointedAt(this.#parsed(), status));
    if (quality !== undefined) reading.quality = quality;
    return reading;
  }

  #parsed(): unknown {
    this.#json ??= { value: parse(this.#text) };
    return this.#json.value;
  }
}

/**
 * The number in a message: the payload itself, or what the JSON pointer (RFC 6901) `at` finds in it. Numbers, numbers in
 * quotes (many senders know nothing else), `true` and `false` as 1 and 0.
 */
function numberOf(found: unknown, at: string | undefined): number {
  const plain = typeof found === 'string' ? found.trim() : found;
  if (plain === true || plain === 'true') return 1;
  if (plain === false || plain === 'false') return 0;
  const value = typeof plain === 'string' ? parseDecimal(unquoted(plain), 0, unquoted(plain).length) : plain;
  if (typeof value === 'number' && Number.isFinite(value)) return value;
  throw new TagferryError(notANumber(found, at), { code: 'mqtt.no_number' });
}

function notANumber(found: unknown, at: string | undefined): string {
  const where = at === undefined ? 'the payload' : `the value at ${at}`;
  if (found === undefined) return `there is nothing at ${at}`;
  if (typeof found === 'string') return `${where}, ${quote(found.trim())}, is not a number`;
  return `${where} is ${found === null ? 'null' : Array.isArray(found) ? 'a list' : 'an object'}, not a number`;
}

/** How many of a unit make a millisecond. */
const IN_A_MS: Readonly<Record<TimeUnit, number>> = { s: 1e-3, ms: 1, us: 1e3, ns: 1e6 };

/** Reads ISO 8601 (UTC without an offset), or a number, quoted or not, of `unit`: milliseconds by default. */
function timeOf(found: unknown, at: string, unit: TimeUnit | undefined, arrivalMs: number): number {
  const text = typeof found === 'string' ? found.trim() : undefined;
  const isCount = typeof found === 'number' || (text !== undefined && /^-?\d+(\.\d+)?$/.test(text));
  const timeMs = isCount ? Math.round(Number(found) / IN_A_MS[unit ?? 'ms']) : parseIsoTime(text ?? '');
  if (!isTimeTaken(timeMs)) {
    const outside = `the time at ${at} must be between 1970 and 9999: check time_unit`;
    throw wrongTime(isCount ? outside : `there is no time at ${at}`);
  }
  if (isCount && unit === undefined && isTrusted(arrivalMs) && isSeconds(timeMs)) {
    throw wrongTime(`the time at ${at} looks like seconds: set time_unit: s`);
  }
  return timeMs;
}

const wrongTime = (reason: string) => new TagferryError(reason, { code: 'mqtt.no_time' });

/** `undefined` where it says nothing that the platform knows: a value without a status. */
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
    throw new TagferryError('the payload is not JSON', { code: 'mqtt.no_json' });
  }
}

function pointedAt(json: unknown, pointer: string): unknown {
  let found = json;
  for (const part of pointer.split('/').slice(1)) {
    if (typeof found !== 'object' || found === null) return undefined;
    const name = part.replaceAll('~1', '/').replaceAll('~0', '~');
    found = Object.hasOwn(found, name) ? (found as Record<string, unknown>)[name] : undefined;
  }
  return found;
}
