import type { Clock } from '../../base/clock.ts';

export interface DoctorLine {
  check: string;
  state: 'ok' | 'warning' | 'failure';
  message: string;
  /** Recommended action; empty if there is no problem. */
  next: string;
}

export interface DoctorReport {
  atMs: number;
  checks: DoctorLine[];
}

/** Runs the doctor for the page. Concurrent requests share one run and its result. */
export class DoctorRun {
  readonly #run: () => Promise<DoctorLine[]>;
  readonly #clock: Clock;
  #running: Promise<DoctorReport> | undefined;

  constructor(run: () => Promise<DoctorLine[]>, clock: Clock) {
    this.#run = run;
    this.#clock = clock;
  }

  /** Rejects if the doctor cannot be started. */
  report(): Promise<DoctorReport> {
    this.#running ??= this.#runChecks().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  async #runChecks(): Promise<DoctorReport> {
    const checks = await this.#run();
    return { atMs: this.#clock.wallMs(), checks };
  }
}
