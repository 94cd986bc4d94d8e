import { counted } from '../../base/amounts.ts';
import { TagferryError } from '../../base/errors.ts';

/**
 * One invalid value. `index` counts the values of a request from 0; `field` is empty if the whole value is invalid.
 */
export interface Problem {
  index: number;
  field: string;
  problem: string;
}

/** Problems in one request: descriptions of the first hundred, and the total count. */
export interface ProblemList {
  readonly listed: readonly Problem[];
  readonly count: number;
}

/** The request contains invalid values and is rejected as a whole (422). */
export class RejectedValues extends TagferryError {
  readonly problems: ProblemList;

  constructor(problems: ProblemList) {
    super(`${counted(problems.count, 'value', 'is', 'are')} invalid; nothing in the request was stored`, {
      code: 'intake.refused',
      hint: 'Correct the values listed in `problems` and send the whole request again.',
    });
    this.problems = problems;
  }
}

/** The request contains more values than allowed (413). */
export class TooManyValues extends TagferryError {
  constructor(maxValues: number) {
    super(`the request contains more than ${maxValues} values`, {
      code: 'intake.too_many',
      hint: 'Send the values in several requests.',
    });
  }
}

/** The request cannot be read at all (400). */
export class UnreadableValues extends TagferryError {
  constructor(message: string, hint?: string) {
    super(message, { code: 'intake.unreadable', hint });
  }
}

/**
 * Runs `read` without capturing stack traces, which would account for most of the time for a request with 250,000
 * invalid lines.
 */
export function withoutStackTraces<Result>(read: () => Result): Result {
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 0;
  try {
    return read();
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}
