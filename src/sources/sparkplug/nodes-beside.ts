import type { Clock } from '../../base/clock.ts';
import type { Broker } from '../../broker/broker.ts';
import type { Listening } from '../../broker/listening.ts';
import { EdgeNode } from './edge-node.ts';
import { decodePayload, numberOf, type SparkplugMetric } from './payload.ts';
import { rebirthCommand } from './rebirth-command.ts';
import type { SparkplugSpec } from './sparkplug-spec.ts';
import { commandTopic, filterOf, readTopic } from './topics.ts';

/** A client beside the agent's that can ask, too. */
export type Asking = Listening & Pick<Broker, 'publish'>;

export interface HeardMetric {
  /** `edge-node/device/metric name`. */
  path: string;
  metric: SparkplugMetric;
  /** The type that the birth certificate told. */
  born: number | undefined;
  /** `undefined` where it has none now. */
  number: number | undefined;
  timeMs: number | undefined;
}

export interface NodesBesideOptions {
  broker: Asking;
  spec: Pick<SparkplugSpec, 'group' | 'rebirth'>;
  clock: Clock;
  /** Paths of the metrics of a node whose values are read by alias too. */
  paths?: (node: string) => string[];
  heard(metric: HeardMetric): void;
}

const MAX_PAYLOAD_BYTES = 1024 * 1024;
const MAX_NODES = 1_000;
/** Their commands, and what counts their lives: no values of the plant. */
const CONTROLS = /^(bdSeq$|Node Control\/|[^/]+\/Device Control\/)/;

/**
 * Edge nodes listened to beside the agent, for whoever looks. Nodes tell what changes; so each is asked for its birth certificate once,
 * which tells all it has.
 */
export class NodesBeside {
  readonly #options: NodesBesideOptions;
  readonly #nodes = new Map<string, EdgeNode>();

  /** `names`: of the nodes that are wanted; all where none is named. Subscribes; whoever has the broker starts it. */
  constructor(options: NodesBesideOptions, names: readonly string[]) {
    this.#options = options;
    const { broker, spec } = options;
    for (const name of names.length > 0 ? names : ['+']) {
      broker.subscribe(filterOf(spec.group, name), async (message) => this.#take(message), { qos: 0 });
      // Of a group that is named, the node can be asked before it says anything.
      if (name !== '+' && spec.group !== undefined) this.#nodeOf(spec.group, name);
    }
  }

  #nodeOf(group: string, name: string): EdgeNode {
    const key = `${group}/${name}`;
    const known = this.#nodes.get(key);
    if (known) return known;
    const node = new EdgeNode(this.#options.paths?.(name) ?? []);
    if (this.#nodes.size >= MAX_NODES) return node;
    this.#nodes.set(key, node);
    const { broker, spec, clock } = this.#options;
    // A broker that does not let it be asked may let it be heard.
    if (spec.rebirth) {
      broker.publish(commandTopic(group, name), rebirthCommand(Math.round(clock.wallMs()))).catch(() => {});
    }
    return node;
  }

  #take({ topic, payload }: { topic: string; payload: Uint8Array }): void {
    const said = readTopic(topic);
    if (said === undefined || payload.length > MAX_PAYLOAD_BYTES) return;
    const node = this.#nodeOf(said.group, said.node);
    try {
      const read = decodePayload(payload);
      for (const { path, metric, born } of node.take({ ...said, payload: read, isKept: false }).values) {
        if (CONTROLS.test(path)) continue;
        const number = metric.isNull ? undefined : numberOf(metric, born);
        const timeMs = metric.timeMs ?? read.timeMs;
        this.#options.heard({ path: `${said.node}/${path}`, metric, born, number, timeMs });
      }
    } catch {
      // Somebody else's, or damaged: what can be read counts.
    }
  }
}
