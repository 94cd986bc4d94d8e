/** `14:05:10` of a moment of the sandbox's clock, which is UTC wherever it runs. */
export function timeText(atMs: number): string {
  return new Date(atMs).toISOString().slice(11, 19);
}

/** A value as people read it: six digits are more than an instrument has. */
export function valueText(value: number): string {
  return String(Number(value.toPrecision(6)));
}
