/**
 * When values were accepted, by a clock that nobody sets: the monotonic clock of the run of the agent that took them in.
 *
 * Two runs have no clock in common, though the machine was not started between them: a container may have gone into another
 * time namespace, or have been restored from a checkpoint, and its monotonic clock may be behind what it was. So times are
 * compared within one run alone; in which order runs took values in, the log says. What an earlier run accepted is as old as
 * it was when that run ended, and older by what later runs lasted: the time between two runs is not known, and not counted.
 */
export interface RunTimes {
  id: number;
  beganMs: number;
  /** The last time that is known of it, by its own clock. */
  lastMs: number;
}

export class AcceptanceTimes {
  #run = 0;
  #openedMs = 0;
  /** Of earlier runs: the last known time, and what later ones lasted, without this one. */
  readonly #earlier = new Map<number, { lastMs: number; laterMs: number }>();

  /** `earlier`: in order. */
  open(run: number, openedMs: number, earlier: readonly RunTimes[]): void {
    this.#run = run;
    this.#openedMs = openedMs;
    this.#earlier.clear();
    let laterMs = 0;
    for (const { id, beganMs, lastMs } of earlier.toReversed()) {
      this.#earlier.set(id, { lastMs, laterMs });
      laterMs += Math.max(0, lastMs - beganMs);
    }
  }

  /** As a time of this run: what an earlier one accepted arrived when this one opened. */
  arrivalMs(run: number, monotonicMs: number): number {
    return run === this.#run ? monotonicMs : this.#openedMs;
  }

  /** Of a row of the log. */
  arrivalOf(row: { run: number; monotonicMs: number } | undefined): number {
    return row ? this.arrivalMs(row.run, row.monotonicMs) : 0;
  }

  /** When a value was accepted, as a time of this run's clock: an earlier run's value is as old as that run and later ones made it. */
  acceptedMs(run: number, monotonicMs: number): number {
    return run === this.#run ? monotonicMs : this.#openedMs - this.ageMs(run, monotonicMs, this.#openedMs);
  }

  /** How old it is at least. `nowMs` is of this run. */
  ageMs(run: number, monotonicMs: number, nowMs: number): number {
    if (run === this.#run) return Math.max(0, nowMs - monotonicMs);
    const { lastMs, laterMs } = this.#earlier.get(run) ?? { lastMs: monotonicMs, laterMs: 0 };
    return Math.max(0, lastMs - monotonicMs) + laterMs + Math.max(0, nowMs - this.#openedMs);
  }
}
