/**
 * Small facts that stand or fall with values: which message a value came from, the last stamp that was given. They are
 * written in the transaction of the commit that carries the values, and never without them where that is refused.
 */
export interface Note {
  /** `room/what/which`. */
  name: string;
  /** `undefined` forgets it. */
  text: string | undefined;
}
