/**
 * State of one edge node: the metric of each alias, and whether a message was missed. Pure; `SparkplugSource` carries out the outcome.
 *
 * States: *known* from a birth certificate on; *unsure* after a new connection; *stale* after a missed message. An unsure node is known
 * again if its next message has QoS 1 or 2 and the next sequence number, because the broker stored everything between. The aliases of
 * a stale node may have changed: their values are left out until the next birth certificate. Values by name are always read.
 */
import type { NamesBudget } from './names-budget.ts';
import type { SparkplugMetric, SparkplugPayload } from './payload.ts';

/** `DBIRTH`, and its like, with the device where there is one. */
export interface NodeMessage {
  type: string;
  device: string | undefined;
  payload: SparkplugPayload;
  /** QoS 1 or 2: the broker keeps such messages while the agent is not connected. */
  isKept: boolean;
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
  /** Values whose alias no birth certificate names. */
  unknown: number;
  /** Metrics of a birth certificate that exceed the bound of names. */
  unnamed?: number;
  /** A birth certificate of another life of the node: aliases of earlier messages are lost. */
  isOtherLife?: true;
}

interface Born {
  path: string;
  datatype: number | undefined;
}

const SEQUENCES = 256;
const BIRTH_SEQUENCE = 'bdSeq';

export class EdgeNode {
  readonly #names: NamesBudget;
  #reserved = 0;
  readonly #byAlias = new Map<number, Born>();
  readonly #byPath = new Map<string, Born>();
  #seq: number | undefined;
  #birthSeq: number | undefined;
  #state: 'known' | 'unsure' | 'stale' = 'stale';

  constructor(names: NamesBudget) {
    this.#names = names;
  }

  get isStale(): boolean {
    return this.#state === 'stale';
  }

  /** A message was missed. */
  miss(): void {
    this.#state = 'stale';
    this.#seq = undefined;
  }

  /** The connection is new: messages may have been missed. */
  reconnected(): void {
    if (this.#state === 'known') this.#state = 'unsure';
  }

  /** Whether every alias of a data message can be resolved. */
  canResolve({ payload, isKept }: NodeMessage): boolean {
    const aliases = aliasesOf(payload);
    return aliases.length === 0 || (this.#gapBefore(payload.seq, isKept) === undefined && this.#knows(aliases));
  }

  /** Values of a data message that arrived before the latest birth certificate; `undefined` if an alias is not known yet. */
  takeEarlier({ device, payload }: NodeMessage): NodeOutcome | undefined {
    return this.#knows(aliasesOf(payload)) ? this.#data('NDATA', device, payload) : undefined;
  }

  #knows(aliases: readonly (number | undefined)[]): boolean {
    return aliases.every((alias) => alias !== undefined && this.#byAlias.has(alias));
  }

  take({ type, device, payload, isKept }: NodeMessage): NodeOutcome {
    switch (type) {
      case 'NBIRTH':
        return this.#beginAnew(payload);
      case 'NDEATH':
        return this.#die(payload);
      case 'DBIRTH':
      case 'NDATA':
      case 'DDATA':
      case 'DDEATH': {
        const gap = this.#follow(payload.seq, isKept);
        const outcome = type === 'DBIRTH' ? this.#bear(device, payload) : this.#data(type, device, payload);
        return gap === undefined ? outcome : { ...outcome, rebirth: gap };
      }
      default:
        return { values: [], unknown: 0 };
    }
  }

  #beginAnew(payload: SparkplugPayload): NodeOutcome {
    this.#byAlias.clear();
    this.#byPath.clear();
    this.#names.release(this.#reserved);
    this.#reserved = 0;
    this.#state = 'known';
    this.#seq = payload.seq ?? 0;
    const before = this.#birthSeq;
    this.#birthSeq = birthSeqOf(payload);
    const outcome = this.#bear(undefined, payload);
    return before === undefined || before === this.#birthSeq ? outcome : { ...outcome, isOtherLife: true };
  }

  /** A node's will may come behind its next birth: then it is that of the life before. */
  #die(payload: SparkplugPayload): NodeOutcome {
    const seq = birthSeqOf(payload);
    if (seq !== undefined && this.#birthSeq !== undefined && seq !== this.#birthSeq) return { values: [], unknown: 0 };
    this.miss();
    return { values: [], unknown: 0, died: '' };
  }

  /** Returns the reason for a rebirth, if one is needed. */
  #follow(seq: number | undefined, isKept: boolean): string | undefined {
    const gap = this.#gapBefore(seq, isKept);
    this.#seq = seq;
    this.#state = gap === undefined ? 'known' : 'stale';
    return gap;
  }

  /** Why messages may have been missed before this one. */
  #gapBefore(seq: number | undefined, isKept: boolean): string | undefined {
    if (this.#state === 'stale') return 'its birth was not heard';
    if (this.#state === 'unsure' && !isKept) return 'the connection is new';
    const before = this.#seq;
    if (seq === undefined || before === undefined || seq === (before + 1) % SEQUENCES) return undefined;
    return `message ${seq} followed on message ${before}`;
  }

  #bear(device: string | undefined, payload: SparkplugPayload): NodeOutcome {
    const values: NamedMetric[] = [];
    let unnamed = 0;
    for (const metric of payload.metrics) {
      if (metric.name === undefined) continue;
      const path = pathOf(device, metric.name);
      if (!this.#define(path, metric)) unnamed++;
      values.push({ path, metric, born: metric.datatype });
    }
    return { values, unknown: 0, ...(unnamed === 0 ? {} : { unnamed }) };
  }

  /** `false` if the bound of names is reached. */
  #define(path: string, { alias, datatype }: SparkplugMetric): boolean {
    let born = this.#byPath.get(path);
    if (born) born.datatype = datatype;
    else {
      if (!this.#reserve(path)) return false;
      born = { path, datatype };
      this.#byPath.set(path, born);
    }
    if (alias === undefined) return true;
    if (!this.#byAlias.has(alias) && !this.#reserve()) return false;
    this.#byAlias.set(alias, born);
    return true;
  }

  #reserve(name?: string): boolean {
    const bytes = this.#names.reserve(name);
    this.#reserved += bytes;
    return bytes > 0;
  }

  #data(type: string, device: string | undefined, payload: SparkplugPayload): NodeOutcome {
    if (type === 'DDEATH') return { values: [], unknown: 0, died: `${device}/` };
    const outcome: NodeOutcome = { values: [], unknown: 0 };
    for (const metric of payload.metrics) {
      const { name, alias } = metric;
      const path = name === undefined || name === '' ? undefined : pathOf(device, name);
      if (path !== undefined) {
        outcome.values.push({ path, metric, born: this.#byPath.get(path)?.datatype });
        continue;
      }
      const known = alias === undefined || this.isStale ? undefined : this.#byAlias.get(alias);
      if (known) outcome.values.push({ path: known.path, metric, born: known.datatype });
      else {
        outcome.unknown++;
        outcome.rebirth ??= 'a value came by an alias that no birth certificate named';
      }
    }
    return outcome;
  }
}

/** Aliases of the metrics without a name. */
function aliasesOf({ metrics }: SparkplugPayload): (number | undefined)[] {
  return metrics.filter(({ name }) => name === undefined || name === '').map(({ alias }) => alias);
}

function pathOf(device: string | undefined, name: string): string {
  return device === undefined ? name : `${device}/${name}`;
}

function birthSeqOf({ metrics }: SparkplugPayload): number | undefined {
  const value = metrics.find(({ name }) => name === BIRTH_SEQUENCE)?.value;
  return typeof value === 'number' || typeof value === 'bigint' ? Number(value) : undefined;
}
