/** One parser, or two that must agree, for arbitrary bytes. `parsers.test.ts` runs it. */
export interface FuzzTarget {
  name: string;
  /** So many times as much as a parser alone, by connections: so many fewer inputs are made in CI. */
  costs?: number;
  /** As programs and people write it: the search begins here. */
  seeds: readonly (string | Uint8Array)[];
  /** Throws what must never be thrown or come out; what the parser may say of bad input is no fault. */
  run(bytes: Buffer): void | Promise<void>;
}

/** What `act` gives; `undefined` where it throws what it may throw. Everything else goes on. */
export function refusing<Result>(isAllowed: (error: unknown) => boolean, act: () => Result): Result | undefined {
  try {
    return act();
  } catch (error) {
    if (isAllowed(error)) return undefined;
    throw error;
  }
}

/** `one` and `other` are equal in every bit. Says which input showed it by what is thrown. */
export function demandSame(what: string, one: unknown, other: unknown): void {
  if (textOf(one) !== textOf(other)) throw new Error(`${what} differ: ${textOf(one)} and ${textOf(other)}`);
}

export function demand(holds: boolean, what: string): void {
  if (!holds) throw new Error(what);
}

/** Tells -0 from 0, and knows NaN. */
function textOf(value: unknown): string {
  const text = JSON.stringify(value, (_key, member: unknown) => {
    if (typeof member !== 'number') return member;
    return Object.is(member, -0) ? '-0' : Number.isFinite(member) ? member : String(member);
  });
  return String(text).slice(0, 500);
}

/** The first line as a text, and what is behind it: for parsers that take a rule and an input. */
export function headAndRest(bytes: Buffer): { head: string; rest: Buffer } {
  const feed = bytes.indexOf(10);
  return feed < 0
    ? { head: bytes.toString('utf8'), rest: Buffer.alloc(0) }
    : { head: bytes.toString('utf8', 0, feed), rest: bytes.subarray(feed + 1) };
}
