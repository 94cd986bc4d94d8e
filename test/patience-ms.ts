/** For a condition that a test waits for: what comes late on a slow machine has come; what never comes costs a failing test this long. */
export const PATIENCE_MS = 60_000;
