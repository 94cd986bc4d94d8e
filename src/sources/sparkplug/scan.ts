/**
 * Lists the metrics of edge nodes from their birth certificates and the messages sent within a limited time, as lines
 * for tags.yaml. Nodes send only changes, so the scan requests each node's birth certificate once, which contains all
 * values.
 */
import { UsageError } from '../../base/errors.ts';
import { type Listening, listenFor } from '../messages/listen-for.ts';
import { MAX_PAYLOAD_BYTES } from '../messages/payload.ts';
import { ScannedNames } from '../scanned-names.ts';
import type { ScanStep } from '../source-kind.ts';
import { rebirthCommand } from './commands.ts';
import { EdgeNode } from './edge-node.ts';
import { decodePayload, isNumber, numberOf } from './payload.ts';
import { commandTopic, filterOf, readTopic, type SparkplugSpec } from './sparkplug-spec.ts';

const MAX_NODES = 1_000;
const MAX_METRICS = 20_000;
/** Names of commands and session counters, which are not plant values. */
const CONTROLS = /^(bdSeq$|Node Control\/|[^/]+\/Device Control\/)/;

export interface SparkplugScan extends Listening {
  spec: Pick<SparkplugSpec, 'group' | 'rebirth'>;
  /** Names of edge nodes; an empty list means all nodes. */
  what: readonly string[];
}

/** Throws `UsageError` for an invalid node name, and a `TagferryError` if listening to the broker fails. */
export async function* scanSparkplug({ spec, what, ...listening }: SparkplugScan): AsyncGenerator<ScanStep> {
  const { broker, clock } = listening;
  for (const name of what) {
    if (!/^[^/+#]+$/.test(name))
      throw new UsageError(`"${name}" is not an edge node name`, 'Use a name such as press-4.');
  }
  const nodes = new Map<string, EdgeNode>();
  const samples = new Map<string, string>();
  const nodeOf = (group: string, name: string): EdgeNode => {
    const key = `${group}/${name}`;
    const node = nodes.get(key) ?? new EdgeNode([]);
    if (nodes.has(key) || nodes.size >= MAX_NODES) return node;
    nodes.set(key, node);
    // The broker may allow subscribing but not publishing.
    if (spec.rebirth) broker.publish(commandTopic(group, name), rebirthCommand(clock.wallMs())).catch(() => {});
    return node;
  };
  const filters = what.length > 0 ? what.map((name) => filterOf(spec.group, name)) : [filterOf(spec.group)];
  const receive = async ({ topic, payload }: { topic: string; payload: Uint8Array }) => {
    const parsed = readTopic(topic);
    if (parsed === undefined || payload.length > MAX_PAYLOAD_BYTES) return;
    const node = nodeOf(parsed.group, parsed.node);
    const { values } = node.process({ ...parsed, payload: decodePayload(payload) });
    for (const { path, metric, born } of values) {
      const number = metric.isNull ? undefined : numberOf(metric, born);
      const isNumeric = number !== undefined || (metric.isNull && isNumber(metric, born));
      const name = `${parsed.node}/${path}`;
      if (!isNumeric || CONTROLS.test(path) || (!samples.has(name) && samples.size >= MAX_METRICS)) continue;
      samples.set(name, number === undefined ? 'null' : String(number));
    }
  };
  // Ignore corrupt messages and messages that are not Sparkplug payloads.
  broker.subscribe(filters, (message) => receive(message).catch(() => {}), { qos: 0 });
  // If the group is configured, a node can be asked before its first message arrives.
  if (spec.group !== undefined) for (const name of what) nodeOf(spec.group, name);
  yield* listenFor(listening);
  const names = new ScannedNames();
  for (const metric of [...samples.keys()].toSorted()) {
    const key = names.unique(metric.slice(metric.lastIndexOf('/') + 1));
    yield { found: { key, members: { metric }, sample: samples.get(metric)! } };
  }
}
