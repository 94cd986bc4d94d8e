import { quote } from '../address-book.ts';
import { type Draft, isSeconds, isTimeTaken, ON_ARRIVAL } from '../draft.ts';
import type { Problem, UnreadableValues } from '../problem-list.ts';
import type { Slot } from '../slot.ts';
import { textOf } from './body-text.ts';
import type { KeyTemplate } from './key-template.ts';
import { headAt, type InfluxHead, type LineReceiver, parseLineProtocol, readHead } from './line-protocol.ts';

/** How lines are to be understood. */
export interface LineOptions {
  /** Of the timestamps, in milliseconds. */
  msOfUnit: number;
  /** Nobody said what their unit is. */
  isUnitGuessed: boolean;
  /** The Influx tag whose value is the tag's name; `undefined`: the measurement is. */
  tagFrom: string | undefined;
  /** `undefined`: the field is the key. */
  keyFrom?: KeyTemplate | undefined;
}

/**
 * Reads line protocol into a draft. The tag is the measurement or one of its Influx tags, the key is the field or composed from field and
 * Influx tags. Lines of different Influx series that arrive at one key with one time are problems: the platform would keep only the last.
 * Throws `UnreadableValues`; a partial draft accepts the readable lines.
 */
export function readLineProtocol(bytes: Buffer, options: LineOptions, draft: Draft): void {
  const text = textOf(bytes);
  parseLineProtocol(text, options.msOfUnit, new LineValues(text, draft, options), options.tagFrom);
}

function isLineTime(timeMs: number, { isUnitGuessed }: LineOptions, draft: Draft): boolean {
  return isUnitGuessed ? draft.takesNumber(timeMs) : isTimeTaken(timeMs);
}

/**
 * Where in the text the head of the line stands that set a slot last, and by time those that set it earlier. Places, because a head for
 * each of a quarter of a million lines would take 100 MB. Most requests set a slot at one time only.
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
  /** Of the line that is read: its first place in the draft's columns, its slots, and their numbers in the request. */
  #first = 0;
  readonly #slots: Slot[] = [];
  readonly #indices: number[] = [];
  /** Head of the line that is read: its place in the text. */
  #from = 0;
  #to = 0;
  #head: InfluxHead | undefined;
  readonly #writers = new Map<Slot, Writer>();

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

  number(tag: string | undefined, key: string, value: number): void {
    if (tag === undefined) {
      this.#draft.refuse(
        'tag',
        `the line has no tag ${quote(this.#options.tagFrom ?? '')}, which INGEST_TAG_FROM names`,
      );
      return;
    }
    const slot = this.#draft.slotOfTag(tag, this.#keyOf(key));
    if (slot === undefined) return;
    // The time follows at the end of the line. Until then the value has its time of arrival.
    this.#draft.add(slot, value, ON_ARRIVAL, 0);
    this.#slots.push(slot);
    this.#indices.push(this.#draft.count - 1);
  }

  #keyOf(field: string): string {
    const { keyFrom } = this.#options;
    if (keyFrom === undefined) return field;
    this.#head ??= readHead(this.#text.slice(this.#from, this.#to));
    return keyFrom.keyOf(field, this.#head.tags);
  }

  wrong(tag: string | undefined, key: string, problem: string): void {
    this.#draft.refuse('value', `the field ${quote(key)} of ${quote(tag ?? '')} ${problem}`);
  }

  endOfLine(timeMs: number): void {
    const problem = this.#wrongTime(timeMs) ?? this.#otherSeries(timeMs);
    if (problem !== undefined) this.#refuseLine(problem.field, problem.problem);
    else if (!Number.isNaN(timeMs)) this.#draft.stampFrom(this.#first, timeMs);
    this.#beginLine();
  }

  /** A partial draft leaves out what was read of the line, and the line itself is one problem. */
  unreadable(error: UnreadableValues): boolean {
    if (!this.#draft.isPartial) return false;
    this.#refuseLine('', 'stands on a line that cannot be read');
    this.#draft.refuse('', error.message);
    this.#beginLine();
    return true;
  }

  #refuseLine(field: string, problem: string): void {
    this.#draft.refuseFrom(this.#first, this.#indices, field, problem);
  }

  #beginLine(): void {
    this.#first = this.#draft.taken;
    this.#slots.length = 0;
    this.#indices.length = 0;
  }

  #wrongTime(timeMs: number): Omit<Problem, 'index'> | undefined {
    if (Number.isNaN(timeMs) || isLineTime(timeMs, this.#options, this.#draft)) return undefined;
    const what = isTimeTaken(timeMs) && isSeconds(timeMs) ? 'lies near 1970' : 'lies outside of the years 1970 to 9999';
    return { field: 'timestamp', problem: `${what}: does "precision" name its unit?` };
  }

  /** The problem of a line whose keys have a value of another Influx series at this time. NaN: the time of arrival. */
  #otherSeries(timeMs: number): Omit<Problem, 'index'> | undefined {
    for (const slot of this.#slots) {
      const writer = this.#writers.get(slot);
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
    for (const slot of this.#slots) {
      const writer = this.#writers.get(slot);
      if (writer === undefined) this.#writers.set(slot, { timeMs, from, earlier: undefined });
      else if (!Object.is(writer.timeMs, timeMs)) {
        writer.earlier ??= new Map();
        writer.earlier.set(writer.timeMs, writer.from);
        writer.timeMs = timeMs;
        writer.from = from;
      }
    }
    return undefined;
  }

  /** The Influx tag in which this line differs from the one at `from`; empty for the measurement, `undefined` if none differs. */
  #difference(from: number): string | undefined {
    const written = this.#text.slice(this.#from, this.#to);
    if (this.#text.startsWith(written, from) && ' \t'.includes(this.#text[from + written.length]!)) return undefined;
    const mine = readHead(written);
    const others = headAt(this.#text, from);
    const names = [...mine.tags.keys(), ...others.tags.keys()];
    return (
      names.find((name) => mine.tags.get(name) !== others.tags.get(name)) ??
      (mine.measurement === others.measurement ? undefined : '')
    );
  }
}
