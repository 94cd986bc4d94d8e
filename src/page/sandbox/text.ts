/** Formats a sandbox time as `14:05:10` UTC. */
export function timeText(atMs: number): string {
  return new Date(atMs).toISOString().slice(11, 19);
}

/** Formats a value with up to six significant digits. */
export function valueText(value: number): string {
  return String(Number(value.toPrecision(6)));
}
