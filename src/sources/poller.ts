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
}

/**
 * Polls at regular intervals of the monotonic clock, so that a wall clock jump neither repeats nor skips a poll. Points
 * with the same interval are read together, and at most one read per interval runs at a time. The values of a read are
 * written while the next one runs. If writes to the disk fail, the readings remain in the gate. When the gate is full,
 * further polls are skipped and reported as late.
 */
export class Poller<Spec> {
  readonly #options: PollerOptions<Spec>;
  readonly #trouble: TroubleLog;
  readonly #stop = new AbortController();
  #running: Promise<unknown> | undefined;

  constructor(options: PollerOptions<Spec>) {
    this.#options = options;
    this.#trouble = new TroubleLog(options.log, options.clock);
  }

  /** Polls immediately, then polls each point at every multiple of its interval. */
  start(): void {
    const byInterval = Map.groupBy(this.#options.points, (point) => point.everyMs);
    this.#running ??= Promise.all([...byInterval].map(([everyMs, points]) => this.#run(everyMs, points)));
  }

  /** Resolves when the current reads have completed. The gate is responsible for storing their readings. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  async #run(everyMs: number, points: readonly Point<Spec>[]): Promise<void> {
    const { clock, gate, status } = this.#options;
    const { signal } = this.#stop;
    let dueMs = clock.monotonicMs();
    while (!signal.aborted) {
      const wasConnected = status.connected !== false;
      if (gate.isFull) this.#reportLate(1);
      else await this.#poll(points, signal);
      const next = nextStep(dueMs, clock.monotonicMs(), everyMs);
      dueMs = next.dueMs;
      // If the source is not connected, only the connection problem is reported.
      if (next.missed > 0 && wasConnected && status.connected !== false) this.#reportLate(next.missed);
      await clock.sleep(dueMs - clock.monotonicMs(), signal).catch(() => {});
    }
  }

  #reportLate(polls: number): void {
    const { status } = this.#options;
    status.pollsLate += polls;
    const fields = { source: status.name, late: status.pollsLate };
    this.#trouble.report({ event: 'source.polls_late', ...fields }, 'polls delayed or skipped');
  }

  async #poll(points: readonly Point<Spec>[], signal: AbortSignal): Promise<void> {
    const { status, gate, read } = this.#options;
    const { name: source } = status;
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
