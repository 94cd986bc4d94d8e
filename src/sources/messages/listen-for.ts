import type { Clock } from '../../base/clock.ts';
import { TagferryError } from '../../base/errors.ts';
import type { Broker } from '../../broker/broker.ts';

const CHECK_INTERVAL_MS = 200;
/** Connect timeout, in milliseconds. Listening starts after the connection is established. */
const CONNECT_MS = 10_000;

/** A separate client with its subscriptions, started and stopped by the scan, and the time for which it listens. */
export interface Listening {
  broker: Broker;
  waitMs: number;
  clock: Clock;
  signal: AbortSignal;
}

/** Listens until `isOver`, or for a limited time. Yields its progress. Throws if the broker is unreachable. */
export async function* listenFor(
  { broker, waitMs, clock, signal }: Listening,
  isOver = () => false,
): AsyncGenerator<{ done: number; total: number }> {
  broker.start();
  try {
    const endMs = clock.monotonicMs() + CONNECT_MS;
    const isConnecting = () => !broker.state().connected && broker.state().failures === 0;
    while (isConnecting() && clock.monotonicMs() < endMs) await clock.sleep(CHECK_INTERVAL_MS, signal);
    const { connected, problem = 'no response' } = broker.state();
    if (!connected) throw new TagferryError(`the broker is not connected (${problem})`, { code: 'broker.away' });
    const startMs = clock.monotonicMs();
    for (let passedMs = 0; passedMs < waitMs && !isOver(); ) {
      await clock.sleep(Math.min(CHECK_INTERVAL_MS, waitMs - passedMs), signal);
      passedMs = clock.monotonicMs() - startMs;
      yield { done: Math.min(passedMs, waitMs), total: waitMs };
    }
  } finally {
    await broker.leave();
  }
}
