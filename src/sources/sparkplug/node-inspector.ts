import type { Clock } from '../../base/clock.ts';
import { UsageError } from '../../base/errors.ts';
import type { Broker } from '../../broker/broker.ts';
import type { InspectionClient } from '../../broker/subscriptions.ts';
import { type ListenOptions, listenFor } from '../messages/listen-for.ts';
import { MAX_PAYLOAD_BYTES } from '../messages/payload.ts';
import { ScannedNames } from '../scanned-names.ts';
import type { ScanStep } from '../source-kind.ts';
import { EdgeNode } from './edge-node.ts';
import { decodePayload, isNumber, numberOf, rebirthCommand, type SparkplugMetric } from './payload.ts';
import { commandTopic, filterOf, readTopic, type SparkplugSpec } from './sparkplug-spec.ts';

/** Separate client that can also send commands. */
type CommandClient = InspectionClient & Pick<Broker, 'publish'>;

interface HeardMetric {
  /** `edge-node/device/metric name`. */
  path: string;
  metric: SparkplugMetric;
  /** Data type in the birth certificate. */
  born: number | undefined;
}

interface NodeInspectorOptions {
  broker: CommandClient;
  spec: Pick<SparkplugSpec, 'group' | 'rebirth'>;
  clock: Clock;
  heard(metric: HeardMetric): void;
}

const MAX_NODES = 1_000;
/** Names of commands and session counters, which are not plant values. */
const CONTROLS = /^(bdSeq$|Node Control\/|[^/]+\/Device Control\/)/;

/**
 * Listens to edge nodes without the agent. Nodes send only changes, so each node is asked once for its birth
 * certificate, which contains all values.
 */
class NodeInspector {
  readonly #options: NodeInspectorOptions;
  readonly #nodes = new Map<string, EdgeNode>();

  /**
   * `names`: nodes to inspect; an empty list means all nodes. Subscribes to the nodes. The caller starts the broker
   * client.
   */
  constructor(options: NodeInspectorOptions, names: readonly string[]) {
    this.#options = options;
    const { broker, spec } = options;
    for (const name of names.length > 0 ? names : ['+']) {
      broker.subscribe(filterOf(spec.group, name), async (message) => this.#receive(message), { qos: 0 });
      // If the group is configured, a node can be asked before its first message arrives.
      if (name !== '+' && spec.group !== undefined) this.#nodeOf(spec.group, name);
    }
  }

  #nodeOf(group: string, name: string): EdgeNode {
    const key = `${group}/${name}`;
    const known = this.#nodes.get(key);
    if (known) return known;
    const node = new EdgeNode([]);
    if (this.#nodes.size >= MAX_NODES) return node;
    this.#nodes.set(key, node);
    const { broker, spec, clock } = this.#options;
    // The broker may allow subscribing but not publishing.
    if (spec.rebirth) {
      broker.publish(commandTopic(group, name), rebirthCommand(Math.round(clock.wallMs()))).catch(() => {});
    }
    return node;
  }

  #receive({ topic, payload }: { topic: string; payload: Uint8Array }): void {
    const parsed = readTopic(topic);
    if (parsed === undefined || payload.length > MAX_PAYLOAD_BYTES) return;
    const node = this.#nodeOf(parsed.group, parsed.node);
    try {
      const read = decodePayload(payload);
      for (const { path, metric, born } of node.process({ ...parsed, payload: read }).values) {
        if (CONTROLS.test(path)) continue;
        this.#options.heard({ path: `${parsed.node}/${path}`, metric, born });
      }
    } catch {
      // Ignore corrupt messages and messages that are not Sparkplug payloads.
    }
  }
}

/**
 * Lists the metrics of edge nodes from their birth certificates and the messages sent within a limited time, as lines
 * for tags.yaml.
 */

const MAX_METRICS = 20_000;

export interface SparkplugScan extends Omit<ListenOptions, 'broker' | 'isOver'> {
  broker: CommandClient;
  spec: SparkplugSpec;
  /** Names of edge nodes; an empty list means all nodes. */
  what: readonly string[];
}

/** Throws `UsageError` for an invalid node name, and a `TagferryError` if listening to the broker fails. */
export async function* scanSparkplug({ broker, spec, what, ...rest }: SparkplugScan): AsyncGenerator<ScanStep> {
  for (const name of what) {
    if (!/^[^/+#]+$/.test(name))
      throw new UsageError(`"${name}" is not an edge node name`, 'Use a name such as press-4.');
  }
  const last = new Map<string, string>();
  const { clock } = rest;
  const heard: ConstructorParameters<typeof NodeInspector>[0]['heard'] = ({ path, metric, born }) => {
    const number = metric.isNull ? undefined : numberOf(metric, born);
    if (number === undefined && !(metric.isNull && isNumber(metric, born))) return;
    if (last.has(path) || last.size < MAX_METRICS) last.set(path, number === undefined ? 'null' : String(number));
  };
  new NodeInspector({ broker, spec, clock, heard }, what);
  yield* listenFor({ ...rest, broker, isOver: () => false });
  const names = new ScannedNames();
  for (const [metric, sample] of [...last].toSorted(([one], [other]) => (one < other ? -1 : 1))) {
    yield { found: { key: names.unique(metric.slice(metric.lastIndexOf('/') + 1)), members: { metric }, sample } };
  }
}
