export interface ExecSpec {
  /** Program and arguments. */
  command: readonly [string, ...string[]];
  /** What it prints: NDJSON as `POST /v1/values` takes it, or line protocol with times in nanoseconds. */
  format: 'ndjson' | 'lines';
}

/** Which value a line is of, the line itself says. */
export type ExecValue = Readonly<Record<never, never>>;
