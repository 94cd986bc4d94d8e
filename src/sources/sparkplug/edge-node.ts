/**
 * State of one edge node: the aliases of the configured metrics, and whether a message was missed. The class has no
 * side effects; `SparkplugSource` applies the outcome. Other metrics are not stored, so memory use is limited by the
 * configuration.
 *
 * States: *known* after a birth certificate; *unsure* after a new connection or a restart of the agent; *stale* after a
 * missed message. An unsure node becomes known if its next message has QoS 1 or 2 and the expected sequence number,
 * because the broker then stored all messages in between. It also becomes known if the message is a redelivery. The
 * aliases of a stale node may have changed, so values with only an alias are ignored until the next birth certificate.
 * Values with a name are always read.
 */
import { hash } from 'node:crypto';
import type { SparkplugMetric, SparkplugPayload } from './payload.ts';

/** Message type, for example `DBIRTH`; `device` is set for device messages. */
export interface NodeMessage {
  type: string;
  device: string | undefined;
  payload: SparkplugPayload;
  /** Whether the message has QoS 1 or 2. The broker stores such messages while the agent is not connected. */
  isKept: boolean;
}

interface NamedMetric {
  /** `device/metric name` or `metric name`. */
  path: string;
  metric: SparkplugMetric;
  /** Data type according to the birth certificate. */
  born: number | undefined;
}

export interface NodeOutcome {
  values: NamedMetric[];
  /** Path prefix of the metrics that are no longer valid; empty if the node itself is offline. */
  died?: string;
  /** Reason for requesting a birth certificate. */
  rebirth?: string;
  /** Number of values whose alias is unknown because the birth certificate is missing. */
  unknown: number;
  /**
   * Set if the birth certificate belongs to a different session of the node, so aliases in earlier messages cannot be
   * resolved.
   */
  isNewSession?: true;
}

const SEQUENCES = 256;
const BIRTH_SEQUENCE = 'bdSeq';

export class EdgeNode {
  /** Hash that identifies the set of configured metrics. */
  readonly #configured: string;
  /** Data types of the configured metrics according to the birth certificate, by path. */
  readonly #datatypes = new Map<string, number | undefined>();
  /** Paths of configured metrics by alias. */
  readonly #byAlias = new Map<number, string>();
  /** Devices with configured metrics, and whether their birth certificate has arrived. */
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

  /** Position in the node's message sequence, as text; undefined while the node is stale. */
  get position(): string | undefined {
    if (this.isStale || this.#seq === undefined) return undefined;
    return JSON.stringify([this.#seq, this.#birthSeq ?? null, this.#bornMs ?? null, this.#latestMs ?? null]);
  }

  /** Birth certificate data for the configured metrics, as text. */
  get aliases(): string {
    const aliases = [...this.#byAlias].map(([alias, path]) => [alias, path, this.#datatypes.get(path) ?? null]);
    const devices = [...this.#devices].filter(([, isBorn]) => isBorn).map(([device]) => device);
    return JSON.stringify({ of: this.#configured, aliases, devices });
  }

  /**
   * Restores the state stored by a previous process. If the set of configured metrics has changed, the node remains
   * stale.
   */
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

  /**
   * Returns the device, name and data type with which a configured metric can be written, or `undefined` if the current
   * birth certificate does not contain the metric.
   */
  commandTarget(path: string): { device: string | undefined; name: string; datatype: number } | undefined {
    const datatype = this.#datatypes.get(path);
    if (this.isStale || datatype === undefined) return undefined;
    const device = path.slice(0, Math.max(0, path.indexOf('/')));
    if (device === '' || !this.#devices.get(device)) return { device: undefined, name: path, datatype };
    return { device, name: path.slice(device.length + 1), datatype };
  }

  /** Records a missed message. */
  miss(): void {
    this.#state = 'stale';
    this.#seq = undefined;
  }

  /** Records a new connection. Messages may have been missed before it. */
  reconnected(): void {
    if (this.#state === 'known') this.#state = 'unsure';
  }

  /** Returns whether all aliases in a data message can be resolved. */
  canResolve({ device, payload, isKept }: NodeMessage): boolean {
    return !hasAliases(payload) || (this.#gapBefore(payload, isKept) === undefined && this.#canResolveAliases(device));
  }

  /**
   * Returns the values of a data message that arrived before the latest birth certificate; `undefined` if the device's
   * birth certificate has not arrived yet.
   */
  processEarlier({ device, payload }: NodeMessage): NodeOutcome | undefined {
    if (hasAliases(payload) && !this.#canResolveAliases(device)) return undefined;
    return this.#data('NDATA', device, payload);
  }

  /**
   * Returns whether the birth certificate of a device or of the node has arrived. Devices without configured metrics do
   * not require one.
   */
  #canResolveAliases(device: string | undefined): boolean {
    return !this.isStale && (device === undefined || this.#devices.get(device) !== false);
  }

  process({ type, device, payload, isKept }: NodeMessage): NodeOutcome {
    switch (type) {
      case 'NBIRTH':
        return this.#restart(payload);
      case 'NDEATH':
        return this.#recordDeath(payload);
      case 'DBIRTH':
      case 'NDATA':
      case 'DDATA':
      case 'DDEATH': {
        const gap = this.#follow(payload, isKept);
        const outcome = type === 'DBIRTH' ? this.#recordBirth(device, payload) : this.#data(type, device, payload);
        return gap === undefined ? outcome : { ...outcome, rebirth: gap };
      }
      default:
        return { values: [], unknown: 0 };
    }
  }

  #restart(payload: SparkplugPayload): NodeOutcome {
    this.#byAlias.clear();
    for (const device of this.#devices.keys()) this.#devices.set(device, false);
    this.#state = 'known';
    this.#seq = payload.seq ?? 0;
    this.#bornMs = payload.timeMs;
    this.#latestMs = payload.timeMs;
    const before = this.#birthSeq;
    this.#birthSeq = birthSeqOf(payload);
    const outcome = this.#recordBirth(undefined, payload);
    return before === undefined || before === this.#birthSeq ? outcome : { ...outcome, isNewSession: true };
  }

  /**
   * Handles a death certificate. It is ignored if it belongs to the previous session and arrives after the next birth
   * certificate.
   */
  #recordDeath(payload: SparkplugPayload): NodeOutcome {
    const seq = birthSeqOf(payload);
    if (seq !== undefined && this.#birthSeq !== undefined && seq !== this.#birthSeq) return { values: [], unknown: 0 };
    this.miss();
    return { values: [], unknown: 0, died: '' };
  }

  /** Updates the position. Returns the reason for requesting a birth certificate, if one is required. */
  #follow(payload: SparkplugPayload, isKept: boolean): string | undefined {
    const gap = this.#gapBefore(payload, isKept);
    this.#seq = payload.seq;
    if (payload.timeMs !== undefined) this.#latestMs = Math.max(this.#latestMs ?? 0, payload.timeMs);
    this.#state = gap === undefined ? 'known' : 'stale';
    return gap;
  }

  /** Returns the reason why earlier messages may be missing, if any. */
  #gapBefore({ seq, timeMs }: SparkplugPayload, isKept: boolean): string | undefined {
    if (this.#state === 'stale') return 'no birth certificate received';
    if (this.#state === 'unsure' && !isKept) return 'new connection';
    if (this.#state === 'unsure' && this.#isRepeated(timeMs)) return undefined;
    const before = this.#seq;
    if (seq === undefined || before === undefined || seq === (before + 1) % SEQUENCES) return undefined;
    return `message ${seq} followed message ${before}`;
  }

  /** Returns whether a message is a redelivery: sent after the birth certificate, but not after the latest message. */
  #isRepeated(timeMs: number | undefined): boolean {
    const [from, to] = [this.#bornMs, this.#latestMs];
    return timeMs !== undefined && from !== undefined && to !== undefined && from <= timeMs && timeMs <= to;
  }

  #recordBirth(device: string | undefined, payload: SparkplugPayload): NodeOutcome {
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
        outcome.rebirth ??= 'the birth certificate for a value with an alias is missing';
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
