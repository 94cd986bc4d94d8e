import { messageOf } from '../../base/errors.ts';
import { brokerBeside } from '../../broker/beside.ts';
import type { TestedValue } from '../arrivals.ts';
import { isTimeTaken } from '../draft.ts';
import { listenFor } from '../mqtt/listen-for.ts';
import type { TestContext } from '../source-kind.ts';
import { type HeardMetric, NodesBeside } from './nodes-beside.ts';
import { nodeOf, type SparkplugSpec, type SparkplugValue } from './sparkplug-spec.ts';

/** What the nodes tell of each value, beside the agent: they are asked for it. */
export async function testSparkplug(context: TestContext<SparkplugSpec, SparkplugValue>): Promise<TestedValue[]> {
  const { source, points, clock, log, platformCaFile, waitMs, signal } = context;
  const { name, spec } = source;
  const broker = brokerBeside({ name, spec, clock, logger: log, platformCaFile });
  const reported = new Map<string, HeardMetric>();
  const wanted = new Set(points.map((point) => point.spec.metric));
  const heard = (metric: HeardMetric) => {
    if (wanted.has(metric.path)) reported.set(metric.path, metric);
  };
  const paths = (node: string) =>
    [...wanted].filter((metric) => nodeOf(metric) === node).map((metric) => metric.slice(node.length + 1));
  new NodesBeside({ broker, spec, clock, paths, heard }, [...new Set([...wanted].map(nodeOf))]);
  let silence = 'its node did not tell it';
  try {
    const listening = listenFor({ broker, waitMs, clock, signal, isOver: () => reported.size === wanted.size });
    while (!(await listening.next()).done);
  } catch (error) {
    signal.throwIfAborted();
    silence = messageOf(error);
  }
  return points.map((point): TestedValue => {
    const found = reported.get(point.spec.metric);
    if (found === undefined) return { point, problem: silence };
    const { number, metric, timeMs } = found;
    if (number === undefined) return { point, problem: metric.isNull ? 'it is null' : 'it is no number' };
    const time = timeMs !== undefined && isTimeTaken(timeMs) ? { timeMs } : {};
    return { point, raw: number, ...time, ...(metric.quality === undefined ? {} : { quality: metric.quality }) };
  });
}
