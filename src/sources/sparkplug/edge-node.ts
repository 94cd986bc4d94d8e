/**
 * What is known of one edge node: which alias is which metric, and whether a message was missed. Pure; `SparkplugSource` carries
 * out what it says.
 *
 * A node that was not heard from its birth on is stale: its aliases may mean anything, so values by alias are left out until the
 * next birth. Values by name are taken.
 */
import type { SparkplugMetric, SparkplugPayload } from './payload.ts';

/** `DBIRTH`, and its like, with the device where there is one. */
export interface NodeMessage {
  type: string;
  device: string | undefined;
  payload: SparkplugPayload;
}

interface NamedMetric {
  /** `device/metric name` or `metric name`. */
  path: string;
  metric: SparkplugMetric;
  /** The type that the birth certificate told. */
  born: number | undefined;
}

export interface NodeOutcome {
  values: NamedMetric[];
  /** Paths that begin so have no value any more; the empty one is the node itself. */
  died?: string;
  /** Its birth certificate is wanted, because of this. */
  rebirth?: string;
  /** Values that could not be told from one another. */
  unknown: number;
}

interface Born {
  path: string;
  datatype: number | undefined;
}

const SEQUENCES = 256;
const MAX_METRICS = 100_000;
const BIRTH_SEQUENCE = 'bdSeq';

export class EdgeNode {
  readonly #byAlias = new Map<number, Born>();
  readonly #types = new Map<string, number | undefined>();
  #seq: number | undefined;
  #birthSeq: number | undefined;
  #isStale = true;

  get isStale(): boolean {
    return this.#isStale;
  }

  /** Nothing is known of what was said meanwhile. */
  miss(): void {
    this.#isStale = true;
    this.#seq = undefined;
  }

  take({ type, device, payload }: NodeMessage): NodeOutcome {
    switch (type) {
      case 'NBIRTH':
        return this.#beginAnew(payload);
      case 'NDEATH':
        return this.#die(payload);
      case 'DBIRTH':
      case 'NDATA':
      case 'DDATA':
      case 'DDEATH': {
        const gap = this.#follow(payload.seq);
        const outcome = type === 'DBIRTH' ? this.#bear(device, payload) : this.#data(type, device, payload);
        return gap === undefined ? outcome : { ...outcome, rebirth: gap };
      }
      default:
        return { values: [], unknown: 0 };
    }
  }

  #beginAnew(payload: SparkplugPayload): NodeOutcome {
    this.#byAlias.clear();
    this.#types.clear();
    this.#isStale = false;
    this.#seq = payload.seq ?? 0;
    this.#birthSeq = birthSeqOf(payload);
    return this.#bear(undefined, payload);
  }

  /** A node's will may come behind its next birth: then it is that of the life before. */
  #die(payload: SparkplugPayload): NodeOutcome {
    const seq = birthSeqOf(payload);
    if (seq !== undefined && this.#birthSeq !== undefined && seq !== this.#birthSeq) return { values: [], unknown: 0 };
    this.miss();
    return { values: [], unknown: 0, died: '' };
  }

  #follow(seq: number | undefined): string | undefined {
    const before = this.#seq;
    this.#seq = seq;
    if (this.#isStale) return 'its birth was not heard';
    if (seq === undefined || before === undefined || seq === (before + 1) % SEQUENCES) return undefined;
    this.#isStale = true;
    return `message ${seq} followed on message ${before}`;
  }

  #bear(device: string | undefined, payload: SparkplugPayload): NodeOutcome {
    const values: NamedMetric[] = [];
    for (const metric of payload.metrics) {
      if (metric.name === undefined) continue;
      const path = pathOf(device, metric.name);
      if (this.#types.size < MAX_METRICS) this.#types.set(path, metric.datatype);
      if (metric.alias !== undefined && this.#byAlias.size < MAX_METRICS) {
        this.#byAlias.set(metric.alias, { path, datatype: metric.datatype });
      }
      values.push({ path, metric, born: metric.datatype });
    }
    return { values, unknown: 0 };
  }

  #data(type: string, device: string | undefined, payload: SparkplugPayload): NodeOutcome {
    if (type === 'DDEATH') return { values: [], unknown: 0, died: `${device}/` };
    const outcome: NodeOutcome = { values: [], unknown: 0 };
    for (const metric of payload.metrics) {
      const { name, alias } = metric;
      const path = name === undefined || name === '' ? undefined : pathOf(device, name);
      if (path !== undefined) {
        outcome.values.push({ path, metric, born: this.#types.get(path) });
        continue;
      }
      const known = alias === undefined || this.#isStale ? undefined : this.#byAlias.get(alias);
      if (known) outcome.values.push({ path: known.path, metric, born: known.datatype });
      else {
        outcome.unknown++;
        outcome.rebirth ??= 'a value came by an alias that no birth certificate named';
      }
    }
    return outcome;
  }
}

function pathOf(device: string | undefined, name: string): string {
  return device === undefined ? name : `${device}/${name}`;
}

function birthSeqOf({ metrics }: SparkplugPayload): number | undefined {
  const value = metrics.find(({ name }) => name === BIRTH_SEQUENCE)?.value;
  return typeof value === 'number' || typeof value === 'bigint' ? Number(value) : undefined;
}
