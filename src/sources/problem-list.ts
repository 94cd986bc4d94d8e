import { counted } from '../base/amounts.ts';
import { TagferryError } from '../base/errors.ts';

/** One value that cannot be taken. `index` counts the values of a request from 0; `field` is empty where the whole value is wrong. */
export interface Problem {
  index: number;
  field: string;
  problem: string;
}

/** An answer that lists a million problems helps nobody. */
const MAX_LISTED = 100;

/** The problems of one request: the first hundred in words, the rest as a number. */
export class ProblemList {
  readonly listed: Problem[] = [];
  count = 0;

  add(index: number, field: string, problem: string): void {
    this.count++;
    if (this.listed.length < MAX_LISTED) this.listed.push({ index, field, problem });
  }

  clear(): void {
    this.listed.length = 0;
    this.count = 0;
  }

  /** Whether another problem would still be written down: finding words may cost something. */
  get hasRoom(): boolean {
    return this.listed.length < MAX_LISTED;
  }
}

/** Values of a request cannot be taken, so none of it is (422). */
export class RefusedValues extends TagferryError {
  readonly problems: readonly Problem[];
  readonly count: number;

  constructor(problems: ProblemList) {
    const { count } = problems;
    super(`${counted(count, 'value', 'is', 'are')} wrong; nothing of the request is stored`, {
      code: 'intake.refused',
      hint: 'Mend the values that `problems` names and send the whole request again.',
    });
    this.problems = problems.listed;
    this.count = count;
  }
}

/** A request holds more values than are taken at once (413). */
export class TooManyValues extends TagferryError {
  constructor(maxValues: number) {
    super(`the request holds more than ${maxValues} values`, {
      code: 'intake.too_many',
      hint: 'Send the values in several requests.',
    });
  }
}

/** The request cannot be read at all (400). */
export class UnreadableValues extends TagferryError {
  constructor(message: string, hint?: string) {
    // A quarter of a million lines may each be wrong: nobody reads where it was found, and finding that out is most of the cost.
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    super(message, { code: 'intake.unreadable', ...(hint === undefined ? {} : { hint }) });
    Error.stackTraceLimit = stackTraceLimit;
  }
}
