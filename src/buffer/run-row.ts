import { writeNotes } from './note-rows.ts';
import type { RunHead } from './recovery/recovery.ts';
import { MEASURE_NOTE, type StampCorrection } from './recovery/stamp-correction.ts';
import { runFields, runSum, type Statements } from './tables.ts';

/** How often a run's row is told how long it lasts: a page more in one commit of so many. */
const NOTE_RUN_MS = 60_000;

/** This run of the agent in its table: it is there from its first commit on. */
export class RunRow {
  readonly #head: RunHead;

  constructor(head: RunHead) {
    this.#head = head;
  }

  get id(): number {
    return this.#head.id;
  }

  /** Inside the transaction of a commit. */
  write(statements: Statements, monotonicMs: number): void {
    const { id, boot, isNew, began } = this.#head;
    if (!isNew && !this.#isDue(monotonicMs)) return;
    const row = { id, boot, wall_ms: began.wallMs, monotonic_ms: began.monotonicMs, last_ms: monotonicMs };
    if (isNew) statements.addRun.run(...runFields(row));
    else statements.setRun.run(row.last_ms, runSum(row), id);
  }

  /** The transaction is on disk. */
  committed(monotonicMs: number): void {
    this.#head.isNew = false;
    if (this.#isDue(monotonicMs)) this.#head.notedMs = monotonicMs;
  }

  /** Stores by which measure times were corrected, before they leave. On a disk that takes no writes a later batch tries again. */
  keepMeasure(stamps: StampCorrection, statements: Statements, monotonicMs: number): void {
    try {
      stamps.saveMeasure((text) => {
        this.write(statements, monotonicMs);
        this.committed(monotonicMs);
        writeNotes(statements, [{ name: MEASURE_NOTE, text }]);
      });
    } catch {}
  }

  #isDue(monotonicMs: number): boolean {
    return monotonicMs - this.#head.notedMs >= NOTE_RUN_MS;
  }
}
