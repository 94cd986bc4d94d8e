/**
 * Lists the metrics of edge nodes from their birth certificates and the messages sent within a limited time, as lines
 * for tags.yaml. Nodes send only changes, so the scan requests each node's birth certificate once, which contains all
 * values.
 */
import { UsageError } from '../../base/errors.ts';
import { MAX_PAYLOAD_BYTES } from '../messages/payload.ts';
import { type Listening, listenFor } from '../messages/scan.ts';
import { ScannedNames } from '../scanned-names.ts';
import type { ScanStep } from '../source-kind.ts';
import { pathOf } from './edge-node.ts';
import { decodePayload, isNumeric, readingOf, rebirthCommand } from './payload.ts';
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
  const asked = new Set<string>();
  const samples = new Map<string, string>();
  const requestBirth = (group: string, name: string): void => {
    const topic = commandTopic(group, name);
    if (!spec.rebirth || asked.has(topic) || asked.size >= MAX_NODES) return;
    asked.add(topic);
    // The broker may allow subscribing but not publishing.
    broker.publish(topic, rebirthCommand(clock.wallMs())).catch(() => {});
  };
  const receive = async ({ topic, payload }: { topic: string; payload: Uint8Array }) => {
    const parsed = readTopic(topic);
    if (parsed === undefined || payload.length > MAX_PAYLOAD_BYTES) return;
    requestBirth(parsed.group, parsed.node);
    for (const metric of decodePayload(payload).metrics) {
      const path = pathOf(parsed.device, metric.name ?? '');
      const name = `${parsed.node}/${path}`;
      if (!metric.name || CONTROLS.test(path) || (!samples.has(name) && samples.size >= MAX_METRICS)) continue;
      const reading = readingOf(metric, undefined, false);
      if ('raw' in reading) samples.set(name, String(reading.raw));
      else if (metric.isNull && isNumeric(metric)) samples.set(name, 'null');
    }
  };
  const filters = what.length > 0 ? what.map((name) => filterOf(spec.group, name)) : [filterOf(spec.group)];
  // Ignore corrupt messages and messages that are not Sparkplug payloads.
  broker.subscribe(filters, (message) => receive(message).catch(() => {}), { qos: 0 });
  // If the group is configured, a node can be asked before its first message arrives.
  if (spec.group !== undefined) for (const name of what) requestBirth(spec.group, name);
  yield* listenFor(listening);
  const names = new ScannedNames();
  for (const metric of [...samples.keys()].toSorted()) {
    const key = names.unique(metric.slice(metric.lastIndexOf('/') + 1));
    yield { found: { key, members: { metric }, sample: samples.get(metric)! } };
  }
}
