import type { ValueColumns } from '../buffer/value-columns.ts';
import type { Clock } from '../clock.ts';
import { codeOf, messageOf } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { TroubleLog } from './trouble-log.ts';
import { type CountIngested, retryAfterOf, type ValueSink } from './value-sink.ts';

export interface PollLoopOptions {
  /** Of the source in tags.yaml. */
  name: string;
  everyMs: number;
  sink: ValueSink;
  clock: Clock;
  log: Logger;
  countIngested?: CountIngested;
  /** Reads once; what it rejects with ends the poll, not the loop. An empty answer stores nothing. */
  read(signal: AbortSignal): Promise<ValueColumns>;
}

export interface PollStats {
  /** Polls whose values are on disk. */
  polls: number;
  /** Turns of the clock at which nothing was read: the last poll was still under way, or the store had asked for a pause. */
  missed: number;
  /** Polls that read nothing, because the source did not answer. */
  failed: number;
  /** Polls whose values the store did not take. */
  refused: number;
}

/**
 * Polls at even steps of the monotonic clock: a jump of the wall clock neither doubles nor drops a poll. One poll is under
 * way at most, from reading to the disk: behind a slow disk polls are missed and counted, and nothing piles up. A crash loses the poll
 * under way, which nobody was told of.
 */
export class PollLoop {
  readonly #options: PollLoopOptions;
  readonly #trouble: TroubleLog;
  readonly #stats: PollStats = { polls: 0, missed: 0, failed: 0, refused: 0 };
  #stop = new AbortController();
  #running: Promise<void> | undefined;

  constructor(options: PollLoopOptions) {
    this.#options = options;
    this.#trouble = new TroubleLog(options.log, options.clock);
  }

  /** Polls at once, then at every whole multiple of `everyMs`. */
  start(signal?: AbortSignal): void {
    this.#stop = new AbortController();
    signal?.addEventListener('abort', () => this.#stop.abort(signal.reason), { once: true });
    this.#running = this.#run(this.#stop.signal);
  }

  /** Resolves when the poll under way has ended, its values on disk or refused. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  get stats(): Readonly<PollStats> {
    return this.#stats;
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { clock, everyMs, name } = this.#options;
    let dueMs = clock.monotonicMs();
    while (!signal.aborted) {
      const pauseMs = await this.#poll(signal);
      // A timer may fire a little before its time: never the same turn twice.
      const nextTurnMs = firstTurnAfter(dueMs, everyMs);
      const nextMs = Math.max(nextTurnMs, firstTurnAfter(clock.monotonicMs() + pauseMs, everyMs));
      const missed = Math.round((nextMs - nextTurnMs) / everyMs);
      if (missed > 0) {
        this.#stats.missed += missed;
        this.#trouble.again(
          { event: 'source.polls_missed', source: name, missed: this.#stats.missed },
          'Polls were missed',
        );
      }
      dueMs = nextMs;
      await clock.sleep(dueMs - clock.monotonicMs(), signal).catch(() => {});
    }
  }

  /** Gives the pause that the store asks for. */
  async #poll(signal: AbortSignal): Promise<number> {
    const { sink, name: source, countIngested } = this.#options;
    let columns: ValueColumns;
    try {
      columns = await this.#options.read(signal);
    } catch (error) {
      if (signal.aborted) return 0;
      this.#stats.failed++;
      const fields = { source, code: codeOf(error), error: messageOf(error) };
      this.#trouble.again({ event: 'source.unreadable', ...fields }, 'A source could not be read');
      return 0;
    }
    this.#trouble.over('source.unreadable', { source }, 'A source can be read again');
    const { length } = columns;
    if (length === 0) return 0;
    try {
      await sink.append(columns);
    } catch (error) {
      this.#stats.refused++;
      const fields = { source, code: codeOf(error), error: messageOf(error) };
      this.#trouble.again(
        { event: 'source.store_refused', ...fields },
        'The store does not take the values of a source',
      );
      return retryAfterOf(error) ?? 0;
    }
    this.#trouble.over('source.store_refused', { source }, 'The store takes the values of a source again');
    this.#stats.polls++;
    countIngested?.(source, length);
    return 0;
  }
}

function firstTurnAfter(nowMs: number, everyMs: number): number {
  return (Math.floor(nowMs / everyMs) + 1) * everyMs;
}
