/**
 * State of one edge node: the aliases of the configured metrics, and whether a message was missed. Pure; `SparkplugSource` carries out
 * the outcome. Other metrics leave nothing here, so the configuration bounds the memory.
 *
 * States: *known* from a birth certificate on; *unsure* after a new connection or a restart of the agent; *stale* after a missed message.
 * An unsure node is known again if its next message has QoS 1 or 2 and the next sequence number, or was sent between the birth certificate
 * and the latest message, because the broker stored everything between. The aliases of a stale node may have changed: their values are
 * left out until the next birth certificate. Values by name are always read.
 */
import { hash } from 'node:crypto';
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
  /** Values by alias for which the birth certificate is missing. */
  unknown: number;
  /** A birth certificate of another life of the node: aliases of earlier messages are lost. */
  isOtherLife?: true;
}

const SEQUENCES = 256;
const BIRTH_SEQUENCE = 'bdSeq';

export class EdgeNode {
  /** Identifies the configured metrics. */
  readonly #configured: string;
  /** Type of each configured metric by its path, as the birth certificate tells it. */
  readonly #datatypes = new Map<string, number | undefined>();
  /** Paths of configured metrics. */
  readonly #byAlias = new Map<number, string>();
  /** Devices of configured metrics, and whether their birth certificate has arrived. */
  readonly #devices = new Map<string, boolean>();
  #seq: number | undefined;
  #birthSeq: number | undefined;
  /** Times of the birth certificate and of the latest message, in milliseconds since 1970. */
  #bornMs: number | undefined;
  #latestMs: number | undefined;
  #state: 'known' | 'unsure' | 'stale' = 'stale';

  /** `paths`: the configured metrics, as `device/metric name` or `metric name`. */
  constructor(paths: readonly string[]) {
    this.#configured = hash('sha256', JSON.stringify(paths.toSorted()), 'base64url').slice(0, 22);
    for (const path of paths) {
      this.#datatypes.set(path, undefined);
      this.#devices.set(path.slice(0, Math.max(0, path.indexOf('/'))), false);
    }
  }

  /** Where the node is in its messages, as text; `undefined` while it is stale. */
  get position(): string | undefined {
    if (this.isStale || this.#seq === undefined) return undefined;
    return JSON.stringify([this.#seq, this.#birthSeq ?? null, this.#bornMs ?? null, this.#latestMs ?? null]);
  }

  /** What the birth certificates told of the configured metrics, as text. */
  get aliases(): string {
    const aliases = [...this.#byAlias].map(([alias, path]) => [alias, path, this.#datatypes.get(path) ?? null]);
    const devices = [...this.#devices].filter(([, isBorn]) => isBorn).map(([device]) => device);
    return JSON.stringify({ of: this.#configured, aliases, devices });
  }

  /** Continues where an earlier process was. Texts that belong to other metrics leave the node stale. */
  restore(position: string, aliases: string): void {
    const known = JSON.parse(aliases) as { of: string; aliases: [number, string, number | null][]; devices: string[] };
    if (known.of !== this.#configured) return;
    for (const [alias, path, datatype] of known.aliases) {
      this.#byAlias.set(alias, path);
      this.#datatypes.set(path, datatype ?? undefined);
    }
    for (const device of known.devices) this.#devices.set(device, true);
    const [seq, birthSeq, bornMs, latestMs] = JSON.parse(position) as (number | null)[];
    this.#seq = seq ?? undefined;
    this.#birthSeq = birthSeq ?? undefined;
    this.#bornMs = bornMs ?? undefined;
    this.#latestMs = latestMs ?? undefined;
    this.#state = 'unsure';
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
  canResolve({ device, payload, isKept }: NodeMessage): boolean {
    return !hasAliases(payload) || (this.#gapBefore(payload, isKept) === undefined && this.#canResolveAliases(device));
  }

  /** Values of a data message that arrived before the latest birth certificate; `undefined` if its device has not been born yet. */
  takeEarlier({ device, payload }: NodeMessage): NodeOutcome | undefined {
    if (hasAliases(payload) && !this.#canResolveAliases(device)) return undefined;
    return this.#data('NDATA', device, payload);
  }

  /** Whether the birth certificate of a device, or of the node, has arrived. No alias of a device that is not configured is needed. */
  #canResolveAliases(device: string | undefined): boolean {
    return !this.isStale && (device === undefined || this.#devices.get(device) !== false);
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
        const gap = this.#follow(payload, isKept);
        const outcome = type === 'DBIRTH' ? this.#bear(device, payload) : this.#data(type, device, payload);
        return gap === undefined ? outcome : { ...outcome, rebirth: gap };
      }
      default:
        return { values: [], unknown: 0 };
    }
  }

  #beginAnew(payload: SparkplugPayload): NodeOutcome {
    this.#byAlias.clear();
    for (const device of this.#devices.keys()) this.#devices.set(device, false);
    this.#state = 'known';
    this.#seq = payload.seq ?? 0;
    this.#bornMs = payload.timeMs;
    this.#latestMs = payload.timeMs;
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
  #follow(payload: SparkplugPayload, isKept: boolean): string | undefined {
    const gap = this.#gapBefore(payload, isKept);
    this.#seq = payload.seq;
    if (payload.timeMs !== undefined) this.#latestMs = Math.max(this.#latestMs ?? 0, payload.timeMs);
    this.#state = gap === undefined ? 'known' : 'stale';
    return gap;
  }

  /** Why messages may have been missed before this one. */
  #gapBefore({ seq, timeMs }: SparkplugPayload, isKept: boolean): string | undefined {
    if (this.#state === 'stale') return 'its birth was not heard';
    if (this.#state === 'unsure' && !isKept) return 'the connection is new';
    if (this.#state === 'unsure' && this.#isRepeated(timeMs)) return undefined;
    const before = this.#seq;
    if (seq === undefined || before === undefined || seq === (before + 1) % SEQUENCES) return undefined;
    return `message ${seq} followed on message ${before}`;
  }

  /** Whether a message was sent since the birth certificate, and not after the latest message: the broker sends it again. */
  #isRepeated(timeMs: number | undefined): boolean {
    const [from, to] = [this.#bornMs, this.#latestMs];
    return timeMs !== undefined && from !== undefined && to !== undefined && from <= timeMs && timeMs <= to;
  }

  #bear(device: string | undefined, payload: SparkplugPayload): NodeOutcome {
    const values: NamedMetric[] = [];
    if (device !== undefined && this.#devices.has(device)) this.#devices.set(device, true);
    for (const metric of payload.metrics) {
      if (metric.name === undefined) continue;
      const path = pathOf(device, metric.name);
      if (this.#datatypes.has(path)) {
        this.#datatypes.set(path, metric.datatype);
        if (metric.alias !== undefined) this.#byAlias.set(metric.alias, path);
      }
      values.push({ path, metric, born: metric.datatype });
    }
    return { values, unknown: 0 };
  }

  #data(type: string, device: string | undefined, payload: SparkplugPayload): NodeOutcome {
    if (type === 'DDEATH') {
      if (device !== undefined && this.#devices.has(device)) this.#devices.set(device, false);
      return { values: [], unknown: 0, died: `${device}/` };
    }
    const outcome: NodeOutcome = { values: [], unknown: 0 };
    const canResolve = this.#canResolveAliases(device);
    for (const metric of payload.metrics) {
      const { name, alias } = metric;
      const path = name === undefined || name === '' ? undefined : pathOf(device, name);
      if (path !== undefined) outcome.values.push({ path, metric, born: this.#datatypes.get(path) });
      else if (canResolve) {
        const known = alias === undefined ? undefined : this.#byAlias.get(alias);
        if (known !== undefined) outcome.values.push({ path: known, metric, born: this.#datatypes.get(known) });
      } else {
        outcome.unknown++;
        outcome.rebirth ??= 'the birth certificate of a value by alias is missing';
      }
    }
    return outcome;
  }
}

function hasAliases({ metrics }: SparkplugPayload): boolean {
  return metrics.some(({ name }) => name === undefined || name === '');
}

function pathOf(device: string | undefined, name: string): string {
  return device === undefined ? name : `${device}/${name}`;
}

function birthSeqOf({ metrics }: SparkplugPayload): number | undefined {
  const value = metrics.find(({ name }) => name === BIRTH_SEQUENCE)?.value;
  return typeof value === 'number' || typeof value === 'bigint' ? Number(value) : undefined;
}
