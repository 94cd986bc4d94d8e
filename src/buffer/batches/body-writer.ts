/**
 * Writes request bodies directly as bytes: `JSON.stringify` with `toISOString` takes twelve times as long. The text of
 * the date is cached, and integers are written digit by digit.
 */
import { VALUE_STATUSES } from '../../contract/values.ts';
import { digitsOf, POWERS_OF_TEN, wholeOf } from '../format/bytes.ts';
import { STATUS_MASK } from '../format/value-columns.ts';
import type { Series } from '../series.ts';

const encoder = new TextEncoder();
const bytesOf = (text: string) => encoder.encode(text);

const HEAD = bytesOf('{"values":[');
const TAIL = bytesOf(']}');
const KEY_TAIL = bytesOf(']}');
const POINT_HEAD = bytesOf('{"timestamp":"');
const VALUE_HEAD = bytesOf('Z","value":');
const STATUS_TEXT = [new Uint8Array(0), ...VALUE_STATUSES.map((status) => bytesOf(`,"status":"${status}"`))];

/** Maximum length of a point: braces, 24 characters for the time, 25 for a double, and a status. */
const MAX_POINT = 120;
/** Length of the text that closes a key and the body, for which space is always reserved. */
const ENDS = 8;
/** Maximum number of cached heads, about 300 bytes each. */
const MAX_HEADS = 5_000;
const DAY_MS = 86_400_000;

type KeyFields = Pick<Series, 'key' | 'group' | 'unit'>;

/** Returns `{"key":"flow","group":"process","unit":{"id":12},"data":[`, which is the same in every body of a series. */
function keyHead({ key, group, unit }: KeyFields): Uint8Array {
  return bytesOf(`${JSON.stringify({ key, group, unit }).slice(0, -1)},"data":[`);
}

/** Writes bodies into one reused buffer. */
export class BodyWriter {
  #bytes = new Uint8Array(64 * 1024);
  #at = 0;
  #maxBytes = 0;
  #keys = 0;
  #points = 0;
  #day = Number.NaN;
  readonly #dayText = new Uint8Array(11);
  #digits = 0;
  /** Cached heads of series that are posted repeatedly. */
  readonly #heads = new Map<KeyFields, Uint8Array>();

  /** Starts a body of at most `maxBytes`. */
  begin(maxBytes: number): void {
    this.#at = 0;
    this.#maxBytes = maxBytes;
    this.#keys = 0;
    this.#put(HEAD);
  }

  /** Opens a key. Returns false if the key and one value do not fit. */
  openKey(series: KeyFields): boolean {
    const head = this.#headOf(series);
    const comma = this.#keys > 0 ? 1 : 0;
    if (this.#at + comma + head.length + MAX_POINT + ENDS > this.#maxBytes) return false;
    this.#room(comma + head.length + ENDS);
    if (comma > 0) this.#bytes[this.#at++] = 0x2c;
    this.#keys++;
    this.#put(head);
    this.#points = 0;
    return true;
  }

  #headOf(series: KeyFields): Uint8Array {
    const kept = this.#heads.get(series);
    if (kept) return kept;
    const head = keyHead(series);
    if (this.#heads.size >= MAX_HEADS) this.#heads.clear();
    this.#heads.set(series, head);
    return head;
  }

  /** Adds a value to the open key. Returns false if it does not fit. */
  point(timeMs: number, value: number, flags: number): boolean {
    if (this.#at + MAX_POINT + ENDS > this.#maxBytes) return false;
    this.#room(MAX_POINT + ENDS);
    if (this.#points++ > 0) this.#bytes[this.#at++] = 0x2c;
    this.#put(POINT_HEAD);
    this.#putTime(timeMs);
    this.#put(VALUE_HEAD);
    this.#putNumber(value);
    this.#put(STATUS_TEXT[flags & STATUS_MASK]!);
    this.#bytes[this.#at++] = 0x7d;
    return true;
  }

  closeKey(): void {
    this.#put(KEY_TAIL);
  }

  /** Returns a copy of the body. */
  end(): Uint8Array {
    this.#put(TAIL);
    return this.#bytes.slice(0, this.#at);
  }

  #room(more: number): void {
    if (this.#at + more <= this.#bytes.length) return;
    const grown = new Uint8Array(this.#bytes.length * 2 + more);
    grown.set(this.#bytes.subarray(0, this.#at));
    this.#bytes = grown;
  }

  #put(bytes: Uint8Array): void {
    const to = this.#bytes;
    let at = this.#at;
    for (let i = 0; i < bytes.length; i++) to[at++] = bytes[i]!;
    this.#at = at;
  }

  /** Writes `2026-11-21T00:00:00.000`, without the `Z`. */
  #putTime(timeMs: number): void {
    const day = Math.floor(timeMs / DAY_MS);
    if (day !== this.#day) {
      const text = new Date(day * DAY_MS).toISOString();
      for (let i = 0; i < 11; i++) this.#dayText[i] = text.charCodeAt(i);
      this.#day = day;
    }
    this.#put(this.#dayText);
    let rest = timeMs - day * DAY_MS;
    const to = this.#bytes;
    let at = this.#at;
    const hours = (rest / 3_600_000) | 0;
    rest -= hours * 3_600_000;
    const minutes = (rest / 60_000) | 0;
    rest -= minutes * 60_000;
    const seconds = (rest / 1000) | 0;
    const ms = rest - seconds * 1000;
    to[at++] = 48 + ((hours / 10) | 0);
    to[at++] = 48 + (hours % 10);
    to[at++] = 0x3a;
    to[at++] = 48 + ((minutes / 10) | 0);
    to[at++] = 48 + (minutes % 10);
    to[at++] = 0x3a;
    to[at++] = 48 + ((seconds / 10) | 0);
    to[at++] = 48 + (seconds % 10);
    to[at++] = 0x2e;
    to[at++] = 48 + ((ms / 100) | 0);
    to[at++] = 48 + (((ms / 10) | 0) % 10);
    to[at++] = 48 + (ms % 10);
    this.#at = at;
  }

  /** Writes a number that parses to the same double. */
  #putNumber(value: number): void {
    let digits = this.#digits;
    let whole = wholeOf(value, digits);
    if (Number.isNaN(whole)) {
      digits = digitsOf(value);
      if (digits < 0) {
        this.#putText(Object.is(value, -0) ? '-0' : String(value));
        return;
      }
      this.#digits = digits;
      whole = wholeOf(value, digits);
    }
    // Division is fast for 32-bit integers; the few larger ones use the slow path.
    if (whole > 0x7fff_ffff || whole < -0x7fff_ffff) {
      this.#putText(String(value));
      return;
    }
    if (whole < 0) {
      this.#bytes[this.#at++] = 0x2d;
      whole = -whole;
    }
    this.#putWhole(whole | 0, digits);
  }

  #putWhole(whole: number, digits: number): void {
    let rest = whole;
    let behind = digits;
    // 20.50 is written as 20.5.
    while (behind > 0 && rest % 10 === 0) {
      rest = (rest / 10) | 0;
      behind--;
    }
    let length = 1;
    while (rest >= POWERS_OF_TEN[length]!) length++;
    if (length <= behind) length = behind + 1;
    const end = this.#at + length + (behind > 0 ? 1 : 0);
    let at = end;
    const to = this.#bytes;
    for (let i = 0; i < length; i++) {
      if (i === behind && behind > 0) to[--at] = 0x2e;
      const next = (rest / 10) | 0;
      to[--at] = 48 + (rest - next * 10);
      rest = next;
    }
    this.#at = end;
  }

  #putText(text: string): void {
    for (let i = 0; i < text.length; i++) this.#bytes[this.#at++] = text.charCodeAt(i);
  }
}
