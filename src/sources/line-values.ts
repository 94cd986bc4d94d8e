import { quote } from './address-book.ts';
import { textOf } from './body-text.ts';
import { type Draft, isTimeTaken, ON_ARRIVAL } from './draft.ts';
import { type LineReceiver, parseLineProtocol } from './line-protocol.ts';

/**
 * Line protocol into a draft: the measurement is the tag, the field is the key, the measurement's own tags mean nothing
 * here. Throws `UnreadableValues`.
 */
export function readLineProtocol(bytes: Buffer, msOfUnit: number, draft: Draft): void {
  parseLineProtocol(textOf(bytes), msOfUnit, new LineValues(draft));
}

class LineValues implements LineReceiver {
  readonly #draft: Draft;
  #firstOfLine = 0;

  constructor(draft: Draft) {
    this.#draft = draft;
  }

  number(measurement: string, key: string, value: number): void {
    const slot = this.#draft.slotOfTag(measurement, key);
    // The time stands at the end of the line: until then the value has that of its arrival.
    if (slot !== undefined) this.#draft.add(slot, value, ON_ARRIVAL, 0);
  }

  wrong(measurement: string, key: string, problem: string): void {
    this.#draft.refuse('value', `the field ${quote(key)} of ${quote(measurement)} ${problem}`);
  }

  endOfLine(timeMs: number): void {
    const draft = this.#draft;
    if (isTimeTaken(timeMs)) draft.stampFrom(this.#firstOfLine, timeMs);
    else if (!Number.isNaN(timeMs)) {
      const hint = 'does "precision" name its unit?';
      draft.problems.add(this.#firstOfLine, 'timestamp', `lies outside of the years 1970 to 9999: ${hint}`);
    }
    this.#firstOfLine = draft.count;
  }
}
