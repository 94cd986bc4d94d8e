import { MEASURE_NOTE, type StampCorrection } from './recovery/stamp-correction.ts';
import { runFields, runSum, type Statements, writeNotes } from './tables.ts';

/** Interval between updates of the run's duration. Each update writes one more page. */
const UPDATE_MS = 60_000;

/** This run of the agent. */
export interface RunHead {
  id: number;
  boot: string;
  isNew: boolean;
  /** Both clocks when the store opened. */
  began: { wallMs: number; monotonicMs: number };
  /** Time of the latest row update. */
  notedMs: number;
}

/** Row of this agent run, written with its first commit. */
export class RunRow {
  readonly #head: RunHead;

  constructor(head: RunHead) {
    this.#head = head;
  }

  get id(): number {
    return this.#head.id;
  }

  /** Runs in the transaction of a commit. */
  write(statements: Statements, monotonicMs: number): void {
    const { id, boot, isNew, began } = this.#head;
    const row = { id, boot, wall_ms: began.wallMs, monotonic_ms: began.monotonicMs, last_ms: monotonicMs };
    if (isNew) statements.addRun.run(...runFields(row));
    else if (this.#isDue(monotonicMs)) statements.setRun.run(row.last_ms, runSum(row), id);
  }

  /** Records that the transaction is on disk. */
  committed(monotonicMs: number): void {
    this.#head.isNew = false;
    if (this.#isDue(monotonicMs)) this.#head.notedMs = monotonicMs;
  }

  /**
   * Stores the measurement used to correct times, before values with corrected times are posted. If the disk rejects
   * the write, a later batch retries it.
   */
  storeMeasure(stamps: StampCorrection, statements: Statements, monotonicMs: number): void {
    try {
      stamps.saveMeasure((text) => {
        this.write(statements, monotonicMs);
        this.committed(monotonicMs);
        writeNotes(statements, [{ name: MEASURE_NOTE, text }]);
      });
    } catch {}
  }

  #isDue(monotonicMs: number): boolean {
    return monotonicMs - this.#head.notedMs >= UPDATE_MS;
  }
}
