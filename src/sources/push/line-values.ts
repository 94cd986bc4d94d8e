import { quote } from '../address-book.ts';
import { type Draft, isSeconds, isTimeTaken, ON_ARRIVAL } from '../draft.ts';
import type { UnreadableValues } from '../problem-list.ts';
import { textOf } from './body-text.ts';
import { type LineReceiver, parseLineProtocol } from './line-protocol.ts';
import { readPlainLineProtocol } from './line-scan.ts';

/** How lines are to be understood. */
export interface LineOptions {
  /** Of the timestamps, in milliseconds. */
  msOfUnit: number;
  /** Nobody said what their unit is. */
  isUnitGuessed: boolean;
  /** The Influx tag whose value is the tag's name; `undefined`: the measurement is. */
  tagFrom: string | undefined;
}

/**
 * Line protocol into a draft: the measurement, or one of its Influx tags, is the tag, the field is the key. Throws
 * `UnreadableValues`; a partial draft takes the lines that can be read.
 */
export function readLineProtocol(bytes: Buffer, options: LineOptions, draft: Draft): void {
  const values = new LineValues(draft, options);
  const { msOfUnit, tagFrom } = options;
  const takes = (timeMs: number) => values.takes(timeMs);
  if (readPlainLineProtocol(bytes, { msOfUnit, tagFrom, takes }, draft)) return;
  draft.restart();
  parseLineProtocol(textOf(bytes), msOfUnit, values, tagFrom);
}

class LineValues implements LineReceiver {
  readonly #draft: Draft;
  readonly #options: LineOptions;
  #first = 0;

  constructor(draft: Draft, options: LineOptions) {
    this.#draft = draft;
    this.#options = options;
  }

  number(tag: string | undefined, key: string, value: number): void {
    if (tag === undefined) {
      this.#draft.refuse(
        'tag',
        `the line has no tag ${quote(this.#options.tagFrom ?? '')}, which INGEST_TAG_FROM names`,
      );
      return;
    }
    const slot = this.#draft.slotOfTag(tag, key);
    // The time stands at the end of the line: until then the value has that of its arrival.
    if (slot !== undefined) this.#draft.add(slot, value, ON_ARRIVAL, 0);
  }

  wrong(tag: string | undefined, key: string, problem: string): void {
    this.#draft.refuse('value', `the field ${quote(key)} of ${quote(tag ?? '')} ${problem}`);
  }

  takes(timeMs: number): boolean {
    return this.#options.isUnitGuessed ? this.#draft.takesNumber(timeMs) : isTimeTaken(timeMs);
  }

  endOfLine(timeMs: number): void {
    this.#stamp(this.#first, timeMs);
    this.#first = this.#draft.taken;
  }

  /** A partial draft leaves out what was read of the line, and the line itself is one problem. */
  unreadable(error: UnreadableValues): boolean {
    if (!this.#draft.isPartial) return false;
    this.#draft.refuseFrom(this.#first, '', 'stands on a line that cannot be read');
    this.#draft.refuse('', error.message);
    this.#first = this.#draft.taken;
    return true;
  }

  /** Values from place `first` on get the time that stood behind them; NaN: that of their arrival. */
  #stamp(first: number, timeMs: number): void {
    if (Number.isNaN(timeMs)) return;
    const draft = this.#draft;
    if (this.takes(timeMs)) {
      draft.stampFrom(first, timeMs);
      return;
    }
    const what = isTimeTaken(timeMs) && isSeconds(timeMs) ? 'lies near 1970' : 'lies outside of the years 1970 to 9999';
    draft.refuseFrom(first, 'timestamp', `${what}: does "precision" name its unit?`);
  }
}
