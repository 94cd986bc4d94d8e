import { durationText } from '../amounts.ts';
import { nextStep } from '../steps.ts';
import { endOrphans } from './family.ts';
import { type ProgramOptions, type RunEnd, runProgram } from './program-run.ts';

export interface ScheduledOptions extends ProgramOptions {
  everyMs: number;
  /** Time after which a run is terminated, in milliseconds. */
  timeoutMs: number;
  /** Whether a run may start. Otherwise, the run is missed. */
  isReady(): boolean;
  /** Reports how each run ended. */
  ended(end: RunEnd): void;
  /** Reports runs that did not start when due. */
  missed(runs: number): void;
}

/**
 * Program that runs at regular steps of the monotonic clock, and immediately at the start. One run at a time: steps
 * during a longer run are missed.
 */
export class ScheduledProgram {
  readonly #options: ScheduledOptions;
  readonly #stopping = new AbortController();
  #run = new AbortController();
  #running: Promise<void> | undefined;
  /** Ends the wait for the next step. */
  #wake = new AbortController();

  constructor(options: ScheduledOptions) {
    this.#options = options;
  }

  start(): void {
    this.#running ??= this.#runAll();
  }

  /** Resolves when the program and its children have exited. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  /** Terminates the current run. `why` is the reason passed to `ended`. */
  endRun(why: string): void {
    this.#run.abort(why);
  }

  /** Runs the program immediately, unless it is running. */
  runNow(): void {
    this.#wake.abort();
  }

  async #runAll(): Promise<void> {
    const { clock, instance, everyMs, isReady, missed } = this.#options;
    const { signal } = this.#stopping;
    await endOrphans(instance);
    for (let dueMs = clock.monotonicMs(), isStep = true; !signal.aborted; isStep = !this.#wake.signal.aborted) {
      if (isReady()) await this.#runOnce(signal);
      else missed(1);
      if (signal.aborted) return;
      // A run between two steps does not replace the next one.
      if (isStep || clock.monotonicMs() >= dueMs) {
        const next = nextStep(dueMs, clock.monotonicMs(), everyMs);
        dueMs = next.dueMs;
        if (next.missed > 0) missed(next.missed);
      }
      this.#wake = new AbortController();
      const woken = AbortSignal.any([signal, this.#wake.signal]);
      await clock.sleep(dueMs - clock.monotonicMs(), woken).catch(() => {});
    }
  }

  async #runOnce(signal: AbortSignal): Promise<void> {
    const { clock, timeoutMs, ended } = this.#options;
    const run = new AbortController();
    this.#run = run;
    const time = timeoutMs < 1_000 ? `${timeoutMs} ms` : durationText(timeoutMs / 1_000);
    const cancel = clock.after(timeoutMs, () => run.abort(`still running after ${time}`));
    const end = await runProgram(this.#options, signal, run.signal, () => {});
    cancel();
    if (!signal.aborted) ended(end);
  }
}
