/** Parser, or two parsers that must agree, for arbitrary bytes. Run by `parsers.test.ts`. */
export interface FuzzTarget {
  name: string;
  /** Cost relative to a simple parser. Divides the number of generated inputs. */
  costs?: number;
  /** Valid inputs, from which others are generated. */
  seeds: readonly (string | Uint8Array)[];
  /** Throws if the parser crashes or returns an invalid result. Rejecting an input is not a failure. */
  run(bytes: Buffer): void | Promise<void>;
}

/** Returns the result of `act`, or `undefined` if it throws an allowed error. Rethrows other errors. */
export function refusing<Result>(isAllowed: (error: unknown) => boolean, act: () => Result): Result | undefined {
  try {
    return act();
  } catch (error) {
    if (isAllowed(error)) return undefined;
    throw error;
  }
}

/** Throws if the two results are not equal in every bit. */
export function demandSame(what: string, one: unknown, other: unknown): void {
  if (textOf(one) !== textOf(other)) throw new Error(`${what} differ: ${textOf(one)} and ${textOf(other)}`);
}

export function demand(holds: boolean, what: string): void {
  if (!holds) throw new Error(what);
}

/** Distinguishes -0 from 0 and supports NaN. */
function textOf(value: unknown): string {
  const text = JSON.stringify(value, (_key, member: unknown) => {
    if (typeof member !== 'number') return member;
    return Object.is(member, -0) ? '-0' : Number.isFinite(member) ? member : String(member);
  });
  return String(text).slice(0, 500);
}

/** Returns the first line and the rest, for parsers with a rule and an input. */
export function headAndRest(bytes: Buffer): { head: string; rest: Buffer } {
  const feed = bytes.indexOf(10);
  return feed < 0
    ? { head: bytes.toString('utf8'), rest: Buffer.alloc(0) }
    : { head: bytes.toString('utf8', 0, feed), rest: bytes.subarray(feed + 1) };
}
