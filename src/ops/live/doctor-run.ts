import type { Clock } from '../../base/clock.ts';

export interface DoctorLine {
  check: string;
  state: 'ok' | 'warning' | 'failure';
  message: string;
  /** What to do; empty where all is well. */
  next: string;
}

export interface DoctorReport {
  atMs: number;
  checks: DoctorLine[];
}

/** The doctor for the page: one at a time, however many ask; they share what it finds. */
export class DoctorRun {
  readonly #run: () => Promise<DoctorLine[]>;
  readonly #clock: Clock;
  #running: Promise<DoctorReport> | undefined;

  constructor(run: () => Promise<DoctorLine[]>, clock: Clock) {
    this.#run = run;
    this.#clock = clock;
  }

  /** Rejects where it cannot be run. */
  report(): Promise<DoctorReport> {
    this.#running ??= this.#look().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  async #look(): Promise<DoctorReport> {
    const checks = await this.#run();
    return { atMs: this.#clock.wallMs(), checks };
  }
}
