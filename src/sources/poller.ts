import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { Gate } from './gate.ts';
import type { Point } from './points.ts';
import { TroubleLog } from './trouble-log.ts';

export interface PollerOptions<Spec> {
  /** Of the source in tags.yaml. */
  source: string;
  points: readonly Point<Spec>[];
  gate: Gate;
  clock: Clock;
  log: Logger;
  /**
   * Reads these points once and gives what it reads to the gate (`take`, `fail`). What it rejects with ends the poll, not the
   * poller, and is a failure of each point.
   */
  read(points: readonly Point<Spec>[], signal: AbortSignal): Promise<void>;
}

export interface PollStats {
  /** Polls whose values are on disk. */
  polls: number;
  /** Polls that were not made when they were due: the one before was still reading, or too much waited for the disk. */
  late: number;
  /** Polls that read nothing, because the source did not answer. */
  failed: number;
  /** Polls whose values the store did not take. */
  refused: number;
}

/** Points that are read equally often. */
interface Turn<Spec> {
  everyMs: number;
  dueMs: number;
  points: Point<Spec>[];
}

/**
 * Polls at even steps of the monotonic clock: a jump of the wall clock neither doubles nor drops a poll. One read is under
 * way at most; what it read goes to the disk while the next is made. A poll is counted when its values are on disk. Behind a
 * disk that takes nothing, polls are late, counted and said, and what was read waits. A crash loses that, which nobody was told of.
 */
export class Poller<Spec> {
  readonly #options: PollerOptions<Spec>;
  readonly #trouble: TroubleLog;
  readonly #stats: PollStats = { polls: 0, late: 0, failed: 0, refused: 0 };
  readonly #turns: Turn<Spec>[];
  readonly #stop = new AbortController();
  #running: Promise<void> | undefined;
  #problem: string | undefined;

  constructor(options: PollerOptions<Spec>) {
    this.#options = options;
    this.#trouble = new TroubleLog(options.log, options.clock);
    const byPeriod = Map.groupBy(options.points, (point) => point.everyMs);
    this.#turns = [...byPeriod].map(([everyMs, points]) => ({ everyMs, dueMs: 0, points }));
  }

  /** Polls at once, then each point at every whole multiple of its period. */
  start(): void {
    this.#running ??= this.#run(this.#stop.signal);
  }

  /** Resolves when the read under way has ended. What it read is the gate's. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  get stats(): Readonly<PollStats> {
    return this.#stats;
  }

  /** Why the last poll failed; `undefined` after one that did not. */
  get problem(): string | undefined {
    return this.#problem;
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { clock, gate } = this.#options;
    const nowMs = clock.monotonicMs();
    for (const turn of this.#turns) turn.dueMs = nowMs;
    while (!signal.aborted && this.#turns.length > 0) {
      const due = this.#turns.filter((turn) => turn.dueMs <= clock.monotonicMs());
      if (due.length > 0 && gate.isFull) this.#tellLate(due.length);
      else if (due.length > 0) await this.#poll(due, signal);
      this.#plan(due);
      const nextMs = Math.min(...this.#turns.map((turn) => turn.dueMs));
      await clock.sleep(nextMs - clock.monotonicMs(), signal).catch(() => {});
    }
  }

  /** When each is due next; steps that have passed already are late. */
  #plan(due: readonly Turn<Spec>[]): void {
    const nowMs = this.#options.clock.monotonicMs();
    let late = 0;
    for (const turn of due) {
      // A timer may fire a little before its time: never the same step twice.
      const nextMs = firstStepAfter(turn.dueMs, turn.everyMs);
      turn.dueMs = nextMs > nowMs ? nextMs : firstStepAfter(nowMs, turn.everyMs);
      late += Math.round((turn.dueMs - nextMs) / turn.everyMs);
    }
    if (late > 0) this.#tellLate(late);
  }

  #tellLate(polls: number): void {
    this.#stats.late += polls;
    const fields = { source: this.#options.source, late: this.#stats.late };
    this.#trouble.again({ event: 'source.polls_late', ...fields }, 'polls were not made when they were due');
  }

  async #poll(due: readonly Turn<Spec>[], signal: AbortSignal): Promise<void> {
    const { source, gate } = this.#options;
    const points = due.flatMap((turn) => turn.points);
    try {
      await this.#options.read(points, signal);
      this.#problem = undefined;
      this.#trouble.over('source.unreadable', { source }, 'a source can be read again');
    } catch (error) {
      if (signal.aborted) return;
      this.#stats.failed++;
      this.#problem = codeOf(error) ?? messageOf(error);
      for (const point of points) gate.fail(point);
      const fields = { source, code: codeOf(error), error: messageOf(error) };
      this.#trouble.again({ event: 'source.unreadable', ...fields }, 'a source could not be read');
      return;
    }
    gate.settled().then(
      () => this.#stats.polls++,
      () => this.#stats.refused++,
    );
  }
}

function firstStepAfter(nowMs: number, everyMs: number): number {
  return (Math.floor(nowMs / everyMs) + 1) * everyMs;
}
