import { messageOf } from '../../base/errors.ts';
import { brokerBeside } from '../../broker/beside.ts';
import type { BrokerSpec } from '../../broker/broker-spec.ts';
import type { Listening } from '../../broker/listening.ts';
import type { TestedValue, Unread } from '../arrivals.ts';
import type { Point } from '../points.ts';
import { unreadWords } from '../source-facts.ts';
import type { TestContext } from '../source-kind.ts';
import type { MqttValue } from './mqtt-value.ts';
import { Payload } from './payload.ts';
import { planFilters, TopicRouter } from './topic-plan.ts';

const LOOK_EVERY_MS = 50;

/** Listens for a while to what a broker sends, and has sent (retained messages), beside the agent. */
export async function testMqtt({ source, ...context }: TestContext<BrokerSpec, MqttValue>): Promise<TestedValue[]> {
  const { clock, log, platformCaFile } = context;
  const broker = brokerBeside({ name: source.name, spec: source.spec, clock, logger: log, platformCaFile });
  return listenOnce(broker, context);
}

/** The first message of each value that comes within the time. `broker` is started and left here. */
export async function listenOnce<Value extends MqttValue>(
  broker: Listening,
  context: Pick<TestContext<unknown, Value>, 'points' | 'clock' | 'waitMs' | 'signal'>,
): Promise<TestedValue[]> {
  const { points, clock, waitMs, signal } = context;
  const router = new TopicRouter(points);
  const tested = new Map<Point<MqttValue>, TestedValue>();
  const unread = new Map<Point<MqttValue>, Unread>();
  for (const filter of planFilters(points)) {
    broker.subscribe(filter, async ({ topic, payload, headers }) => {
      const read = new Payload(payload, clock.wallMs(), headers);
      for (const point of router.pointsOf(topic)) {
        if (tested.has(point)) continue;
        const one = readOne(read, point);
        if ('raw' in one) tested.set(point, one);
        else unread.set(point, { problem: one.problem, count: (unread.get(point)?.count ?? 0) + 1 });
      }
    });
  }
  broker.start();
  try {
    const endMs = clock.monotonicMs() + waitMs;
    while (tested.size < points.length && clock.monotonicMs() < endMs) await clock.sleep(LOOK_EVERY_MS, signal);
    const { connected, problem } = broker.state();
    const seconds = Math.round(waitMs / 1000);
    const silence = connected
      ? `no message within ${seconds} s`
      : `the broker is not connected (${problem ?? 'it does not answer'})`;
    return points.map((point) => {
      const failed = unread.get(point);
      return tested.get(point) ?? { point, problem: failed ? unreadWords(failed) : silence };
    });
  } finally {
    await broker.leave();
  }
}

function readOne(payload: Payload, point: Point<MqttValue>): TestedValue {
  try {
    const { value, timeMs, quality } = payload.read(point.spec);
    return {
      point,
      raw: value,
      ...(timeMs === undefined ? {} : { timeMs }),
      ...(quality === undefined ? {} : { quality }),
    };
  } catch (error) {
    return { point, problem: messageOf(error) };
  }
}
