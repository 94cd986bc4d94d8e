/**
 * Acceptance times on a clock that cannot be set: the monotonic clock of the agent run that accepted the values.
 *
 * Two runs never share a clock, even without a reboot: a container can move to another time namespace or be restored
 * from a checkpoint. Times are compared only within a run; the log orders the runs. A value of an earlier run is as old
 * as it was when that run ended, plus the duration of later runs. Time between runs is unknown and not counted.
 */
export interface RunTimes {
  id: number;
  beganMs: number;
  /** Latest known time on the clock of the run. */
  lastMs: number;
}

export class AcceptanceTimes {
  #run = 0;
  #openedMs = 0;
  /** Earlier runs: the latest known time, and the duration of later runs except this one. */
  readonly #earlier = new Map<number, { lastMs: number; laterMs: number }>();

  /** `earlier` must be in chronological order. */
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

  /** Returns an arrival time on this run's clock; values from earlier runs count as arrived when this run started. */
  arrivalMs(run: number, monotonicMs: number): number {
    return run === this.#run ? monotonicMs : this.#openedMs;
  }

  /** Returns the arrival time of a log row. */
  arrivalOf(row: { run: number; monotonicMs: number } | undefined): number {
    return row ? this.arrivalMs(row.run, row.monotonicMs) : 0;
  }

  /** Returns an acceptance time on the clock of this run. */
  acceptedMs(run: number, monotonicMs: number): number {
    return run === this.#run ? monotonicMs : this.#openedMs - this.ageMs(run, monotonicMs, this.#openedMs);
  }

  /** Returns the minimum age in milliseconds; `nowMs` is on the clock of this run. */
  ageMs(run: number, monotonicMs: number, nowMs: number): number {
    if (run === this.#run) return Math.max(0, nowMs - monotonicMs);
    const { lastMs, laterMs } = this.#earlier.get(run) ?? { lastMs: monotonicMs, laterMs: 0 };
    return Math.max(0, lastMs - monotonicMs) + laterMs + Math.max(0, nowMs - this.#openedMs);
  }
}
