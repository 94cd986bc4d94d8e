import type { Clock } from '../../base/clock.ts';
import { TagferryError } from '../../base/errors.ts';
import type { Listening } from '../../broker/listening.ts';

const LOOK_EVERY_MS = 200;
/** How long the broker may take to answer; listening counts from then on. */
const CONNECT_MS = 10_000;

export interface ListenOptions {
  /** A client beside the agent's, with its subscriptions; started and left here. */
  broker: Listening;
  waitMs: number;
  clock: Clock;
  signal: AbortSignal;
  /** Nothing more is to come. */
  isOver(): boolean;
}

/** Listens for a while and tells how much of it has passed. Throws where the broker is not there. */
export async function* listenFor(options: ListenOptions): AsyncGenerator<{ done: number; total: number }> {
  const { broker, waitMs, clock, signal, isOver } = options;
  broker.start();
  try {
    const endMs = clock.monotonicMs() + CONNECT_MS;
    while (!broker.state().connected && clock.monotonicMs() < endMs) await clock.sleep(LOOK_EVERY_MS, signal);
    const { connected, problem } = broker.state();
    if (!connected) throw away(problem);
    const startMs = clock.monotonicMs();
    for (let passedMs = 0; passedMs < waitMs && !isOver(); ) {
      await clock.sleep(Math.min(LOOK_EVERY_MS, waitMs - passedMs), signal);
      passedMs = clock.monotonicMs() - startMs;
      yield { done: Math.min(passedMs, waitMs), total: waitMs };
    }
  } finally {
    await broker.leave();
  }
}

function away(problem: string | undefined): TagferryError {
  return new TagferryError(`the broker is not connected (${problem ?? 'it does not answer'})`, { code: 'broker.away' });
}
