/**
 * The body of a post, written straight to bytes: `JSON.stringify` with `toISOString` costs twelve times as much.
 * The text of the day is kept from one value to the next, and whole numbers are written digit by digit.
 */
import { VALUE_STATUSES } from '../../contract/values.ts';
import { digitsOf, POWERS_OF_TEN, wholeOf } from '../format/decimal.ts';
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

/** A point is at most so long: braces, a time of 24 characters, a double of 25, a status. */
const MAX_POINT = 120;
/** Those of the key and of the body, for which there is room behind whatever is written. */
const ENDS = 8;
/** Each takes some 300 bytes. */
const MAX_HEADS = 5_000;
const DAY_MS = 86_400_000;

type KeyFields = Pick<Series, 'key' | 'group' | 'unit'>;

/** `{"key":"flow","group":"process","unit":{"id":12},"data":[`: the same for a series in every body. */
function keyHead({ key, group, unit }: KeyFields): Uint8Array {
  // What is undefined is left out.
  return bytesOf(`${JSON.stringify({ key, group, unit }).slice(0, -1)},"data":[`);
}

/** Writes one body after another into the same bytes. */
export class BodyWriter {
  #bytes = new Uint8Array(64 * 1024);
  #at = 0;
  #maxBytes = 0;
  #keys = 0;
  #points = 0;
  #day = Number.NaN;
  readonly #dayText = new Uint8Array(11);
  #digits = 0;
  /** Of the series that are posted again and again. */
  readonly #heads = new Map<KeyFields, Uint8Array>();

  /** Starts a body of at most `maxBytes`. */
  begin(maxBytes: number): void {
    this.#at = 0;
    this.#maxBytes = maxBytes;
    this.#keys = 0;
    this.#put(HEAD);
  }

  /** Opens a key; `false` where it does not fit with one value behind it. */
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

  /** Adds a value to the open key; `false` where it does not fit. */
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

  /** The whole body, a copy of its own. */
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

  /** `2026-11-21T00:00:00.000`, without the `Z`. */
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

  /** A number that reads back as the same double. */
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
    // 32 bits are divided fast; the few that are larger go the long way.
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
    // 20.50 is 20.5
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
