/** The metrics that edge nodes have, as their birth certificates and what they send within a while tell, as lines for tags.yaml. */
import { UsageError } from '../../base/errors.ts';
import { type ListenOptions, listenFor } from '../mqtt/listen-for.ts';
import { ScannedNames } from '../scanned-names.ts';
import type { ScanStep } from '../source-kind.ts';
import { type Asking, NodesBeside } from './nodes-beside.ts';
import { isNumber } from './payload.ts';
import type { SparkplugSpec } from './sparkplug-spec.ts';

const MAX_METRICS = 20_000;

export interface SparkplugScan extends Omit<ListenOptions, 'broker' | 'isOver'> {
  broker: Asking;
  spec: SparkplugSpec;
  /** Names of edge nodes; all where none is named. */
  what: readonly string[];
}

/** Throws `UsageError` for what is no name of a node, and a `TagferryError` where the broker cannot be listened to. */
export async function* scanSparkplug({ broker, spec, what, ...rest }: SparkplugScan): AsyncGenerator<ScanStep> {
  for (const name of what) {
    if (!/^[^/+#]+$/.test(name))
      throw new UsageError(`"${name}" is no name of an edge node`, 'Write for example press-4.');
  }
  const last = new Map<string, string>();
  const { clock } = rest;
  const heard: ConstructorParameters<typeof NodesBeside>[0]['heard'] = ({ path, metric, born, number }) => {
    if (number === undefined && !(metric.isNull && isNumber(metric, born))) return;
    if (last.has(path) || last.size < MAX_METRICS) last.set(path, number === undefined ? 'null' : String(number));
  };
  new NodesBeside({ broker, spec, clock, heard }, what);
  yield* listenFor({ ...rest, broker, isOver: () => false });
  const names = new ScannedNames();
  for (const [metric, sample] of [...last].toSorted(([one], [other]) => (one < other ? -1 : 1))) {
    yield { found: { key: names.give(metric.slice(metric.lastIndexOf('/') + 1)), members: { metric }, sample } };
  }
}
