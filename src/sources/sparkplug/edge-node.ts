/**
 * State of one edge node: the names and data types that its latest birth certificates define, and whether a message was
 * missed. Has no side effects; `SparkplugSource` applies the outcome. Only configured metrics are stored, so memory use
 * is limited by the configuration.
 *
 * States: *born* from a birth certificate until a missed message, the node's death or a new connection; otherwise
 * *unborn*. The aliases of an unborn node may have changed, so messages with aliases wait for the next birth
 * certificate, as do messages with integers whose data type only the birth certificate contains: -11 and 4294967285 are
 * encoded equally. All other metrics with a name are always read.
 */
import type { SparkplugMetric, SparkplugPayload } from './payload.ts';

/** Message type, for example `DBIRTH`; `device` is set for device messages. */
export interface NodeMessage {
  type: string;
  device: string | undefined;
  payload: SparkplugPayload;
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
  /** Number of values whose alias or data type is unknown. */
  unknown: number;
  /** Set if the message was not read and must wait for a birth certificate. */
  mustWait?: true;
  /** Set if waiting messages belong to an earlier session of the node, so that their aliases cannot be resolved. */
  isNewSession?: boolean;
}

const SEQUENCES = 256;
const BIRTH_SEQUENCE = 'bdSeq';

export class EdgeNode {
  /** Data types of the configured metrics according to the birth certificate, by path. */
  readonly #datatypes = new Map<string, number | undefined>();
  /** Paths of configured metrics by alias. */
  readonly #byAlias = new Map<number, string>();
  /** Devices with configured metrics, and whether their birth certificate has arrived. */
  readonly #devices = new Map<string, boolean>();
  #seq: number | undefined;
  #birthSeq: number | undefined;
  #isBorn = false;

  /** `paths`: the configured metrics, as `device/metric name` or `metric name`. */
  constructor(paths: Iterable<string>) {
    for (const path of paths) {
      this.#datatypes.set(path, undefined);
      this.#devices.set(deviceOf(path), false);
    }
  }

  get isBorn(): boolean {
    return this.#isBorn;
  }

  /** Records that messages may be missing: on a new connection, or because a message cannot be read. */
  miss(): void {
    this.#isBorn = false;
  }

  /**
   * Returns the device, name and data type with which a configured metric can be written, or `undefined` if the current
   * birth certificate does not contain the metric.
   */
  commandTarget(path: string): { device: string | undefined; name: string; datatype: number } | undefined {
    const datatype = this.#datatypes.get(path);
    if (!this.#isBorn || datatype === undefined) return undefined;
    const device = deviceOf(path);
    if (device === '' || !this.#devices.get(device)) return { device: undefined, name: path, datatype };
    return { device, name: path.slice(device.length + 1), datatype };
  }

  /**
   * Returns whether the aliases and data types of a data message can be resolved now. Devices that are not configured
   * do not require them.
   */
  canResolve({ device, payload }: Pick<NodeMessage, 'device' | 'payload'>): boolean {
    if (!payload.metrics.some((metric) => this.#needsBirth(device, metric))) return true;
    return this.#isBorn && (device === undefined || this.#devices.get(device) !== false);
  }

  #needsBirth(device: string | undefined, metric: SparkplugMetric): boolean {
    if (isAliased(metric)) return true;
    return metric.isInteger && !metric.datatype && this.#datatypes.has(pathOf(device, metric.name!));
  }

  /** `mayWait`: whether a message with unknown aliases can wait for a birth certificate. */
  process(message: NodeMessage, mayWait = false): NodeOutcome {
    const { type, device, payload } = message;
    if (type === 'NBIRTH') return this.#restart(payload);
    if (type === 'NDEATH') return this.#recordDeath(payload);
    if (!['DBIRTH', 'NDATA', 'DDATA', 'DDEATH'].includes(type)) return { values: [], unknown: 0 };
    const rebirth = this.#follow(payload);
    if (mayWait && type.endsWith('DATA') && !this.canResolve(message)) {
      const reason = rebirth ?? 'no birth certificate of a device received';
      return { values: [], unknown: 0, mustWait: true, rebirth: reason };
    }
    const outcome = type === 'DBIRTH' ? this.#recordBirth(device, payload) : this.read(message);
    return rebirth === undefined ? outcome : { ...outcome, rebirth };
  }

  /** Updates the sequence number. Returns the reason for requesting a birth certificate if one is required. */
  #follow({ seq }: SparkplugPayload): string | undefined {
    const before = this.#seq;
    this.#seq = seq;
    if (!this.#isBorn) return 'no birth certificate received';
    if (seq === undefined || before === undefined || seq === (before + 1) % SEQUENCES) return undefined;
    this.#isBorn = false;
    return `message ${seq} followed message ${before}`;
  }

  /** Returns the values of a data message. Counts unresolved aliases and data types. */
  read({ type, device, payload }: NodeMessage, canResolve = this.canResolve({ device, payload })): NodeOutcome {
    if (type === 'DDEATH') {
      if (device !== undefined && this.#devices.has(device)) this.#devices.set(device, false);
      return { values: [], unknown: 0, died: `${device}/` };
    }
    const outcome: NodeOutcome = { values: [], unknown: 0 };
    for (const metric of payload.metrics) {
      let path: string | undefined;
      if (!canResolve && this.#needsBirth(device, metric)) outcome.unknown++;
      else if (isAliased(metric)) path = this.#byAlias.get(metric.alias ?? -1);
      else path = pathOf(device, metric.name!);
      if (path !== undefined) outcome.values.push({ path, metric, born: this.#datatypes.get(path) });
    }
    return outcome;
  }

  #restart(payload: SparkplugPayload): NodeOutcome {
    this.#byAlias.clear();
    for (const device of this.#devices.keys()) this.#devices.set(device, false);
    this.#isBorn = true;
    this.#seq = payload.seq ?? 0;
    const before = this.#birthSeq;
    this.#birthSeq = birthSeqOf(payload);
    const isNewSession = before !== undefined && before !== this.#birthSeq;
    return { ...this.#recordBirth(undefined, payload), isNewSession };
  }

  /** Ignores a death certificate of the previous session that arrives after the next birth certificate. */
  #recordDeath(payload: SparkplugPayload): NodeOutcome {
    const seq = birthSeqOf(payload);
    if (seq !== undefined && this.#birthSeq !== undefined && seq !== this.#birthSeq) return { values: [], unknown: 0 };
    this.#isBorn = false;
    return { values: [], unknown: 0, died: '', isNewSession: true };
  }

  #recordBirth(device: string | undefined, payload: SparkplugPayload): NodeOutcome {
    const values: NamedMetric[] = [];
    if (device !== undefined && this.#devices.has(device)) this.#devices.set(device, true);
    for (const metric of payload.metrics) {
      if (metric.name === undefined) continue;
      const path = pathOf(device, metric.name);
      if (metric.alias !== undefined) this.#byAlias.delete(metric.alias);
      if (this.#datatypes.has(path)) {
        this.#datatypes.set(path, metric.datatype);
        if (metric.alias !== undefined) this.#byAlias.set(metric.alias, path);
      }
      values.push({ path, metric, born: metric.datatype });
    }
    return { values, unknown: 0 };
  }
}

const isAliased = ({ name }: SparkplugMetric) => name === undefined || name === '';

const pathOf = (device: string | undefined, name: string) => (device === undefined ? name : `${device}/${name}`);

/** Returns the device of a path, or an empty text. Whether it is a device is known from its birth certificate. */
const deviceOf = (path: string) => path.slice(0, Math.max(0, path.indexOf('/')));

function birthSeqOf({ metrics }: SparkplugPayload): number | undefined {
  const value = metrics.find(({ name }) => name === BIRTH_SEQUENCE)?.value;
  return typeof value === 'number' || typeof value === 'bigint' ? Number(value) : undefined;
}
