/** Time limit for conditions, in milliseconds: sufficient on a slow machine, and the delay of a failing test. */
export const PATIENCE_MS = 60_000;
