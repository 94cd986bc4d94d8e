import type { Clock } from '../../base/clock.ts';
import { messageOf, TagferryError } from '../../base/errors.ts';
import type { InspectionClient } from '../../broker/subscriptions.ts';
import type { TopicGrammar } from '../../broker/topic-filters.ts';
import type { Point } from '../points.ts';
import type { ObservedReading } from '../status.ts';
import type { MessageValue } from './payload.ts';
import { Payload, readingsOf } from './payload.ts';
import { planFilters, TopicRouter } from './topic-plan.ts';

const CHECK_INTERVAL_MS = 200;
/** Connect timeout, in milliseconds. Listening starts after the connection is established. */
const CONNECT_MS = 10_000;

export interface ListenOptions {
  /** Separate client with its subscriptions, started and stopped here. */
  broker: InspectionClient;
  waitMs: number;
  clock: Clock;
  signal: AbortSignal;
  /** Returns whether all expected messages have arrived. */
  isOver(): boolean;
}

/** Listens for a limited time and yields its progress. Throws if the broker is unreachable. */
export async function* listenFor(options: ListenOptions): AsyncGenerator<{ done: number; total: number }> {
  const { broker, waitMs, clock, signal, isOver } = options;
  broker.start();
  try {
    const endMs = clock.monotonicMs() + CONNECT_MS;
    while (!broker.state().connected && clock.monotonicMs() < endMs) await clock.sleep(CHECK_INTERVAL_MS, signal);
    const { connected, problem } = broker.state();
    if (!connected) throw away(problem);
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

function away(problem: string | undefined): TagferryError {
  return new TagferryError(`the broker is not connected (${problem ?? 'no response'})`, { code: 'broker.away' });
}

/** Returns the first result for each value that arrives in time. Starts and stops `broker`. */
export async function listenOnce<Value extends MessageValue>(
  broker: InspectionClient,
  context: Pick<ListenOptions, 'waitMs' | 'clock' | 'signal'> & {
    points: readonly Point<Value>[];
    grammar: TopicGrammar;
  },
): Promise<ObservedReading[]> {
  const { points, clock, waitMs, signal, grammar } = context;
  const router = new TopicRouter(points, grammar);
  const tested = new Map<Point<MessageValue>, ObservedReading>();
  const unread = new Map<Point<MessageValue>, string>();
  for (const filter of planFilters(points, grammar)) {
    broker.subscribe(filter, async ({ topic, payload, headers }) => {
      const read = new Payload(payload, clock.wallMs(), headers);
      for (const point of router.pointsOf(topic)) {
        if (tested.has(point)) continue;
        const one = readOne(read, point);
        if (one.problem === undefined) tested.set(point, one);
        else unread.set(point, one.problem);
      }
    });
  }
  broker.start();
  try {
    const endMs = clock.monotonicMs() + waitMs;
    while (tested.size < points.length && clock.monotonicMs() < endMs) await clock.sleep(CHECK_INTERVAL_MS, signal);
    const { connected, problem } = broker.state();
    const seconds = Math.round(waitMs / 1000);
    const silence = connected
      ? `no message within ${seconds} s`
      : `the broker is not connected (${problem ?? 'no response'})`;
    return points.map((point) => tested.get(point) ?? { point, problem: unread.get(point) ?? silence });
  } finally {
    await broker.leave();
  }
}

function readOne(payload: Payload, point: Point<MessageValue>): ObservedReading {
  try {
    const readings = readingsOf(payload, point);
    const reading = readings.findLast((one) => 'value' in one) ?? readings.at(-1) ?? { problem: 'no samples' };
    if ('problem' in reading) return { point, problem: reading.problem };
    const { value, timeMs, quality } = reading;
    return { point, raw: value, timeMs, quality };
  } catch (error) {
    return { point, problem: messageOf(error) };
  }
}
