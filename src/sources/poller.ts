import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { nextStep } from '../base/steps.ts';
import type { Gate } from './intake/gate.ts';
import { TroubleLog } from './intake/trouble-log.ts';
import type { Point } from './points.ts';

export interface PollerOptions<Spec> {
  /** Name of the source in tags.yaml. */
  source: string;
  points: readonly Point<Spec>[];
  gate: Gate;
  clock: Clock;
  log: Logger;
  /**
   * Reads these points once and passes the readings to the gate (`accept`, `recordFailure`). A rejection fails the
   * poll and each point, and polling continues.
   */
  read(points: readonly Point<Spec>[], signal: AbortSignal): Promise<void>;
}

export interface PollStats {
  /** Number of polls whose values are on disk. */
  polls: number;
  /**
   * Number of polls skipped because the previous poll was still running or too many values were waiting for the disk.
   */
  late: number;
  /** Number of polls that returned no values because the source did not respond. */
  failed: number;
  /** Number of polls whose values were rejected by the store. */
  refused: number;
}

/** Points with the same poll interval. */
interface Schedule<Spec> {
  everyMs: number;
  dueMs: number;
  points: Point<Spec>[];
}

/**
 * Polls at regular intervals of the monotonic clock, so that a wall clock jump neither repeats nor skips a poll. At
 * most one read runs at a time; its values are written while the next read runs. A poll is counted as successful when
 * its values are on disk. If writes to the disk fail, polls are counted and reported as late, and the readings are
 * retained in memory. A crash loses those readings, none of which have been confirmed.
 */
export class Poller<Spec> {
  readonly #options: PollerOptions<Spec>;
  readonly #trouble: TroubleLog;
  readonly #stats: PollStats = { polls: 0, late: 0, failed: 0, refused: 0 };
  readonly #turns: Schedule<Spec>[];
  readonly #stop = new AbortController();
  #running: Promise<void> | undefined;
  #problem: string | undefined;

  constructor(options: PollerOptions<Spec>) {
    this.#options = options;
    this.#trouble = new TroubleLog(options.log, options.clock);
    const byPeriod = Map.groupBy(options.points, (point) => point.everyMs);
    this.#turns = [...byPeriod].map(([everyMs, points]) => ({ everyMs, dueMs: 0, points }));
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

  get stats(): Readonly<PollStats> {
    return this.#stats;
  }

  /** Failure of the latest poll; `undefined` if it succeeded. */
  get problem(): string | undefined {
    return this.#problem;
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { clock, gate } = this.#options;
    const nowMs = clock.monotonicMs();
    for (const turn of this.#turns) turn.dueMs = nowMs;
    while (!signal.aborted && this.#turns.length > 0) {
      const due = this.#turns.filter((turn) => turn.dueMs <= clock.monotonicMs());
      if (due.length > 0 && gate.isFull) this.#reportLate(due.length);
      else if (due.length > 0) await this.#poll(due, signal);
      this.#plan(due);
      const nextMs = Math.min(...this.#turns.map((turn) => turn.dueMs));
      await clock.sleep(nextMs - clock.monotonicMs(), signal).catch(() => {});
    }
  }

  /** Schedules the next poll of each point. Missed polls count as late. */
  #plan(due: readonly Schedule<Spec>[]): void {
    const nowMs = this.#options.clock.monotonicMs();
    let late = 0;
    for (const turn of due) {
      const { dueMs, missed } = nextStep(turn.dueMs, nowMs, turn.everyMs);
      turn.dueMs = dueMs;
      late += missed;
    }
    if (late > 0) this.#reportLate(late);
  }

  #reportLate(polls: number): void {
    this.#stats.late += polls;
    const fields = { source: this.#options.source, late: this.#stats.late };
    this.#trouble.report({ event: 'source.polls_late', ...fields }, 'polls delayed or skipped');
  }

  async #poll(due: readonly Schedule<Spec>[], signal: AbortSignal): Promise<void> {
    const { source, gate } = this.#options;
    const points = due.flatMap((turn) => turn.points);
    try {
      await this.#options.read(points, signal);
      this.#problem = undefined;
      this.#trouble.recovered('source.unreadable', { source }, 'source is readable again');
    } catch (error) {
      if (signal.aborted) return;
      this.#stats.failed++;
      this.#problem = codeOf(error) ?? messageOf(error);
      for (const point of points) gate.recordFailure(point);
      const fields = { source, code: codeOf(error), error: messageOf(error) };
      this.#trouble.report({ event: 'source.unreadable', ...fields }, 'failed to read source');
      return;
    }
    gate.committed().then(
      () => this.#stats.polls++,
      () => this.#stats.refused++,
    );
  }
}
