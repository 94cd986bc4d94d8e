/**
 * The last hour of one series, while somebody looks at it: for each second with a reading its time, the last one, the least and the
 * greatest. However quickly readings come, it is 3,600 rows and 115 kB.
 */
const ROWS = 3_600;
const SECOND_MS = 1_000;

/** `[monotonic milliseconds, last, least, greatest]` */
export type TraceRow = readonly [atMs: number, last: number, low: number, high: number];

export class ReadingTrace {
  readonly #rows = new Float64Array(ROWS * 4);
  /** Rows ever begun. */
  #count = 0;

  add(nowMs: number, value: number): void {
    const rows = this.#rows;
    const second = Math.floor(nowMs / SECOND_MS) * SECOND_MS;
    let at = ((this.#count - 1) % ROWS) * 4;
    if (this.#count > 0 && rows[at] === second) {
      rows[at + 1] = value;
      rows[at + 2] = Math.min(rows[at + 2]!, value);
      rows[at + 3] = Math.max(rows[at + 3]!, value);
      return;
    }
    at = (this.#count++ % ROWS) * 4;
    rows.set([second, value, value, value], at);
  }

  /** Rows of this monotonic time and later, oldest first. */
  since(fromMs: number): TraceRow[] {
    const found: TraceRow[] = [];
    for (let row = this.#count - 1; row >= Math.max(0, this.#count - ROWS); row--) {
      const at = (row % ROWS) * 4;
      const [time, last, low, high] = this.#rows.subarray(at, at + 4) as unknown as [number, number, number, number];
      if (time < fromMs) break;
      found.push([time, last, low, high]);
    }
    return found.reverse();
  }
}
