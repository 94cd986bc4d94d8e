import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { nextStep } from '../base/steps.ts';
import type { Gate, Reading } from './intake/gate.ts';
import { TroubleLog } from './intake/trouble-log.ts';
import type { Point } from './points.ts';
import type { SourceStatus } from './status.ts';

export interface PollerOptions<Spec> {
  points: readonly Point<Spec>[];
  gate: Pick<Gate, 'record' | 'isFull'>;
  status: SourceStatus;
  clock: Clock;
  log: Logger;
  /** Reads these points once. If it rejects, the poll and each of its points have failed, and polling continues. */
  read(points: readonly Point<Spec>[], signal: AbortSignal): Promise<readonly Reading[]>;
  /** Whether a delay of the poll that began at `startedMs` is configured, or reported as another problem. */
  isDelayExpected?(startedMs: number): boolean;
}

/** Points with the same poll interval. */
interface Schedule<Spec> {
  everyMs: number;
  dueMs: number;
  points: Point<Spec>[];
}

/**
 * Polls at regular intervals of the monotonic clock, so that a wall clock jump neither repeats nor skips a poll. At
 * most one read runs at a time; its values are written while the next read runs. If writes to the disk fail, the
 * readings remain in the gate, and further polls are skipped and reported as late when the gate is full.
 */
export class Poller<Spec> {
  readonly #options: PollerOptions<Spec>;
  readonly #trouble: TroubleLog;
  readonly #schedules: Schedule<Spec>[];
  readonly #stop = new AbortController();
  #running: Promise<void> | undefined;

  constructor(options: PollerOptions<Spec>) {
    this.#options = options;
    this.#trouble = new TroubleLog(options.log, options.clock);
    const byPeriod = Map.groupBy(options.points, (point) => point.everyMs);
    this.#schedules = [...byPeriod].map(([everyMs, points]) => ({ everyMs, dueMs: 0, points }));
  }

  /** Polls immediately, then polls each point at every multiple of its interval. */
  start(): void {
    this.#running ??= this.#run(this.#stop.signal);
  }

  /** Resolves when the current read has completed. The gate is responsible for storing its readings. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { clock, gate } = this.#options;
    const nowMs = clock.monotonicMs();
    for (const schedule of this.#schedules) schedule.dueMs = nowMs;
    while (!signal.aborted && this.#schedules.length > 0) {
      const startedMs = clock.monotonicMs();
      const due = this.#schedules.filter(({ dueMs }) => dueMs <= startedMs);
      if (due.length > 0 && gate.isFull) this.#reportLate(due.length);
      else if (due.length > 0) await this.#poll(due, signal);
      this.#plan(due, startedMs);
      const nextMs = Math.min(...this.#schedules.map(({ dueMs }) => dueMs));
      await clock.sleep(nextMs - clock.monotonicMs(), signal).catch(() => {});
    }
  }

  /** Schedules the next poll of each point. Missed polls count as late unless the delay is expected. */
  #plan(due: readonly Schedule<Spec>[], startedMs: number): void {
    const nowMs = this.#options.clock.monotonicMs();
    let late = 0;
    for (const schedule of due) {
      const { dueMs, missed } = nextStep(schedule.dueMs, nowMs, schedule.everyMs);
      schedule.dueMs = dueMs;
      late += missed;
    }
    if (late > 0 && !this.#options.isDelayExpected?.(startedMs)) this.#reportLate(late);
  }

  #reportLate(polls: number): void {
    const { status } = this.#options;
    status.pollsLate += polls;
    const fields = { source: status.name, late: status.pollsLate };
    this.#trouble.report({ event: 'source.polls_late', ...fields }, 'polls delayed or skipped');
  }

  async #poll(due: readonly Schedule<Spec>[], signal: AbortSignal): Promise<void> {
    const { status, gate, read } = this.#options;
    const { name: source } = status;
    const points = due.flatMap((schedule) => schedule.points);
    let readings: readonly Reading[];
    try {
      readings = await read(points, signal);
      this.#trouble.recovered('source.unreadable', { source }, 'source is readable again');
    } catch (error) {
      if (signal.aborted) return;
      status.errors++;
      readings = points.map((point) => ({ point, failure: undefined }));
      const fields = { source, code: codeOf(error), error: messageOf(error) };
      this.#trouble.report({ event: 'source.unreadable', ...fields }, 'failed to read source');
    }
    gate.record(readings);
  }
}
