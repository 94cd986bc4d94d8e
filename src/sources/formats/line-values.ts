import { quote, type Slot } from '../intake/address-book.ts';
import { type Draft, isSeconds, isValidTime, ON_ARRIVAL } from '../intake/draft.ts';
import { type Problem, type UnreadableValues, withoutStackTraces } from '../intake/problem-list.ts';
import { numberOf, problemOfReading, type RawReading, TEXTS_NEED_MAP } from '../intake/shaping.ts';
import { textOf } from './body-text.ts';
import { headAt, type InfluxHead, type LineReceiver, parseLineProtocol } from './line-protocol.ts';

/** Conversion options. */
export interface LineOptions {
  /** Timestamp unit, in milliseconds. */
  msOfUnit: number;
  /** Whether the unit is a guess because the request did not specify it. */
  isUnitGuessed: boolean;
  /** Influx tag whose value is the tag name; if `undefined`, the measurement is the tag name. */
  tagFrom: string | undefined;
  /** Template for the key; if `undefined`, the field name is the key. */
  keyFrom?: KeyTemplate | undefined;
}

/**
 * Reads line protocol into a draft. The tag is the measurement or an Influx tag; the key is the field or is composed
 * from the field and Influx tags. Lines of different Influx series that map to the same key and time are reported as
 * problems, because the platform would store only the last value. Throws `UnreadableValues`; a partial draft accepts
 * the readable lines.
 */
export function readLineProtocol(bytes: Buffer, options: LineOptions, draft: Draft): void {
  const text = textOf(bytes);
  const receiver = new LineValues(text, draft, options);
  withoutStackTraces(() => parseLineProtocol(text, options.msOfUnit, receiver, options.tagFrom));
}

function isLineTime(timeMs: number, { isUnitGuessed }: LineOptions, draft: Draft): boolean {
  return isUnitGuessed ? draft.isPlausibleTime(timeMs) : isValidTime(timeMs);
}

/**
 * Time and line head offset of the latest value of a slot, and offsets of earlier line heads by time. Offsets are
 * stored because 250,000 parsed heads would use 100 MB. Most requests contain only one time per slot.
 */
interface Writer {
  timeMs: number;
  from: number;
  earlier: Map<number, number> | undefined;
}

class LineValues implements LineReceiver {
  readonly #text: string;
  readonly #draft: Draft;
  readonly #options: LineOptions;
  /** First column index, slots and request indices of the current line. */
  #first = 0;
  readonly #slots: Slot[] = [];
  readonly #indices: number[] = [];
  /** Offset of the head of the current line. */
  #from = 0;
  #to = 0;
  #head: InfluxHead | undefined;
  readonly #writers = new Map<Slot, Writer>();
  /** Entry of `#writers` for each slot of the current line. */
  readonly #slotWriters: (Writer | undefined)[] = [];

  constructor(text: string, draft: Draft, options: LineOptions) {
    this.#text = text;
    this.#draft = draft;
    this.#options = options;
  }

  head(from: number, to: number): void {
    this.#from = from;
    this.#to = to;
    this.#head = undefined;
  }

  value(tag: string | undefined, key: string, value: RawReading): void {
    if (tag === undefined) {
      this.#draft.reject(
        'tag',
        `the line has no tag ${quote(this.#options.tagFrom ?? '')}, which INGEST_TAG_FROM specifies`,
      );
      return;
    }
    const slot = this.#draft.slotOfTag(tag, this.#keyOf(key));
    if (slot === undefined) return;
    const number = typeof value === 'number' && slot.map === undefined ? value : numberOf(value, slot.map);
    if (number === undefined) {
      this.wrong(tag, key, `has a value without a number: ${problemOfReading(value, slot.map)}`);
      return;
    }
    // The time is read at the end of the line. Until then, the value has the arrival time.
    this.#draft.add(slot, number, ON_ARRIVAL, 0);
    this.#slots.push(slot);
    this.#indices.push(this.#draft.count - 1);
  }

  text(tag: string | undefined, key: string, text: string): void {
    if (this.#draft.mapOf(tag, this.#keyOf(key)) === undefined)
      this.wrong(tag, key, `is a string, not a number; ${TEXTS_NEED_MAP}`);
    else this.value(tag, key, text);
  }

  #keyOf(field: string): string {
    const { keyFrom } = this.#options;
    if (keyFrom === undefined) return field;
    this.#head ??= headAt(this.#text, this.#from);
    return keyFrom.keyOf(field, this.#head.tags);
  }

  wrong(tag: string | undefined, key: string, problem: string): void {
    this.#draft.reject('value', `the field ${quote(key)} of ${quote(tag ?? '')} ${problem}`);
  }

  endOfLine(timeMs: number): void {
    const problem = this.#wrongTime(timeMs) ?? this.#otherSeries(timeMs);
    if (problem !== undefined) this.#rejectLine(problem.field, problem.problem);
    else if (!Number.isNaN(timeMs)) this.#draft.setTimeFrom(this.#first, timeMs);
    this.#beginLine();
  }

  /** If the draft is partial, discards the fields of an invalid line and reports the line as one problem. */
  unreadable(error: UnreadableValues): boolean {
    if (!this.#draft.isPartial) return false;
    this.#rejectLine('', 'is on a line that cannot be parsed');
    this.#draft.reject('', error.message);
    this.#beginLine();
    return true;
  }

  #rejectLine(field: string, problem: string): void {
    this.#draft.rejectFrom(this.#first, this.#indices, field, problem);
  }

  #beginLine(): void {
    this.#first = this.#draft.accepted;
    this.#slots.length = 0;
    this.#indices.length = 0;
  }

  #wrongTime(timeMs: number): Omit<Problem, 'index'> | undefined {
    if (Number.isNaN(timeMs) || isLineTime(timeMs, this.#options, this.#draft)) return undefined;
    const what = isValidTime(timeMs) && isSeconds(timeMs) ? 'is close to 1970' : 'must be between 1970 and 9999';
    return { field: 'timestamp', problem: `${what}: check precision` };
  }

  /**
   * Returns the problem if another Influx series already set a key of this line at the same time. NaN means the arrival
   * time.
   */
  #otherSeries(timeMs: number): Omit<Problem, 'index'> | undefined {
    const slots = this.#slots;
    for (let at = 0; at < slots.length; at++) {
      const writer = this.#writers.get(slots[at]!);
      this.#slotWriters[at] = writer;
      if (writer === undefined) continue;
      const from = Object.is(writer.timeMs, timeMs) ? writer.from : writer.earlier?.get(timeMs);
      const name = from === undefined ? undefined : this.#difference(from);
      if (name === undefined) continue;
      const instead = `INGEST_KEY_FROM={field}_{${name}} would make it part of the key`;
      const what = name === '' ? 'measurement' : `Influx tag ${quote(name)}`;
      const problem = `an earlier line has the same tag, key and time and differs in the ${what}`;
      return { field: 'key', problem: name === '' ? problem : `${problem}: ${instead}` };
    }
    const from = this.#from;
    for (let at = 0; at < slots.length; at++) {
      const writer = this.#slotWriters[at];
      if (writer === undefined) this.#writers.set(slots[at]!, { timeMs, from, earlier: undefined });
      else if (!Object.is(writer.timeMs, timeMs)) {
        writer.earlier ??= new Map();
        writer.earlier.set(writer.timeMs, writer.from);
        writer.timeMs = timeMs;
        writer.from = from;
      }
    }
    return undefined;
  }

  /**
   * Returns the first Influx tag that differs between the current line and the line at `from`, an empty string if only
   * the measurement differs, or `undefined` if nothing differs.
   */
  #difference(from: number): string | undefined {
    const written = this.#text.slice(this.#from, this.#to);
    if (this.#text.startsWith(written, from) && ' \t'.includes(this.#text[from + written.length]!)) return undefined;
    const mine = headAt(this.#text, this.#from);
    const others = headAt(this.#text, from);
    const names = [...mine.tags.keys(), ...others.tags.keys()];
    return (
      names.find((name) => mine.tags.get(name) !== others.tags.get(name)) ??
      (mine.measurement === others.measurement ? undefined : '')
    );
  }
}

interface KeyPart {
  /** Text before the placeholder. */
  before: string;
  /** `field`, or the name of an Influx tag. */
  name: string;
}

/**
 * Composes the key of a value from its field and the Influx tags of its line (`INGEST_KEY_FROM`), for example
 * `{field}_{cpu}`. A missing Influx tag is omitted together with the text before it. Characters that are not allowed in
 * a key become `_`.
 */
export class KeyTemplate {
  readonly text: string;
  readonly #parts: readonly KeyPart[];
  readonly #end: string;

  constructor(text: string) {
    this.text = text;
    const pieces = text.split(/\{([^{}]+)\}/);
    this.#end = pieces.length % 2 === 1 ? pieces.pop()! : '';
    const parts: KeyPart[] = [];
    for (let at = 0; at < pieces.length; at += 2) parts.push({ before: pieces[at]!, name: pieces[at + 1]! });
    this.#parts = parts;
  }

  keyOf(field: string, tags: ReadonlyMap<string, string>): string {
    let key = this.#parts[0]!.before;
    let hasText = false;
    for (const [at, { before, name }] of this.#parts.entries()) {
      const text = name === 'field' ? field : tags.get(name)?.replaceAll(/[^A-Za-z0-9._-]/g, '_');
      if (text === undefined) continue;
      key += at > 0 && hasText ? before + text : text;
      hasText = true;
    }
    return key + this.#end;
  }
}
