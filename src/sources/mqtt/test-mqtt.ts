import { messageOf } from '../../base/errors.ts';
import { brokerBeside } from '../../broker/beside.ts';
import type { BrokerSpec } from '../../broker/broker-spec.ts';
import type { Listening } from '../../broker/listening.ts';
import type { Point } from '../points.ts';
import type { TestContext, TestedValue } from '../source-kind.ts';
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
  for (const filter of planFilters(points)) {
    broker.subscribe(filter, async ({ topic, payload }) => {
      const read = new Payload(payload, clock.wallMs());
      for (const point of router.pointsOf(topic)) if (!tested.has(point)) tested.set(point, readOne(read, point));
    });
  }
  broker.start();
  try {
    const endMs = clock.monotonicMs() + waitMs;
    while (tested.size < points.length && clock.monotonicMs() < endMs) await clock.sleep(LOOK_EVERY_MS, signal);
    const { connected, problem } = broker.state();
    const silence = connected ? 'no message came' : `the broker is not connected (${problem ?? 'it does not answer'})`;
    return points.map((point) => tested.get(point) ?? { point, problem: silence });
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
