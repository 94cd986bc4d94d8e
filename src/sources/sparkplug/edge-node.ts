/**
 * State of one edge node: the names, aliases and data types that its latest birth certificates define, and whether they
 * are still valid. Decides when a birth certificate must be requested. Has no side effects; `SparkplugSource` acts on
 * the decisions. Only configured metrics are stored, so memory use is limited by the configuration. Times are monotonic.
 *
 * States: *born* from a birth certificate until a missed message, the node's death or a new connection; otherwise
 * *unborn*. The aliases of an unborn node may have changed, so messages with aliases wait for the next birth
 * certificate, as do messages with integers whose data type only the birth certificate contains: -11 and 4294967285 are
 * encoded equally. All other metrics with a name are always read.
 */
import { isInteger, type SparkplugMetric, type SparkplugPayload } from './payload.ts';

export interface NodeMessage {
  /** For example `DBIRTH`. */
  type: string;
  /** Set for device messages. */
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

const SEQUENCES = 256;
const BIRTH_SEQUENCE = 'bdSeq';
/** Minimum interval between two birth certificate requests. A response can saturate a slow radio link. */
const REQUEST_MS = 20_000;
/**
 * Maximum time for which messages wait for a birth certificate. A missing response then also indicates that the client
 * may lack permission to publish the request.
 */
const NO_BIRTH_MS = 30_000;

export class EdgeNode {
  /** Data types of the configured metrics according to the birth certificate, by path. */
  readonly #datatypes = new Map<string, number | undefined>();
  /** Paths of configured metrics by alias. */
  readonly #byAlias = new Map<number, string>();
  /** Devices with configured metrics, and whether their birth certificate has arrived. */
  readonly #devices = new Map<string, boolean>();
  #isBorn = false;
  #seq: number | undefined;
  #birthSeq: number | undefined;
  /** Time since which a birth certificate is required, or `undefined` if none is. */
  #requiredSinceMs: number | undefined;
  /** Reason for the next request. */
  #reason: string | undefined;
  /** Time of the latest request on this connection. */
  #requestedMs = Number.NEGATIVE_INFINITY;

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

  /** Whether a required birth certificate has not arrived in time. Messages then do not wait for it any longer. */
  isOverdue(nowMs: number): boolean {
    return this.#requiredSinceMs !== undefined && nowMs - this.#requiredSinceMs >= NO_BIRTH_MS;
  }

  /** Returns the reason for which the birth certificate must be requested now, if any. */
  nextRequest(nowMs: number): string | undefined {
    const reason = this.#reason;
    if (reason === undefined || nowMs - this.#requestedMs < REQUEST_MS) return undefined;
    this.#reason = undefined;
    this.#requestedMs = nowMs;
    return reason;
  }

  /** Records that messages may be missing, because a message cannot be read. */
  miss(reason: string, nowMs: number): void {
    this.#isBorn = false;
    this.#require(reason, nowMs);
  }

  /** Records a new connection, which requires a birth certificate immediately. */
  reconnect(nowMs: number): void {
    this.#requiredSinceMs = undefined;
    this.#requestedMs = Number.NEGATIVE_INFINITY;
    this.miss('new connection', nowMs);
  }

  #require(reason: string, nowMs: number): void {
    this.#reason ??= reason;
    this.#requiredSinceMs ??= nowMs;
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

  /** Whether the message ends the node's session, so that the aliases in earlier messages can no longer be resolved. */
  endsSession({ type, payload }: NodeMessage): boolean {
    if (type === 'NBIRTH') return this.#isOfOtherSession(payload);
    return type === 'NDEATH' && !this.#isOfOtherSession(payload);
  }

  #isOfOtherSession(payload: SparkplugPayload): boolean {
    const seq = birthSeqOf(payload);
    return seq !== undefined && this.#birthSeq !== undefined && seq !== this.#birthSeq;
  }

  /**
   * Updates the state. Returns the path prefix of the metrics that are no longer valid, which is empty if the node itself
   * is offline, or `undefined` if all metrics are valid. Ignores a death certificate of the previous session that arrives
   * after the next birth certificate.
   */
  observe(message: NodeMessage, nowMs: number): string | undefined {
    const { type, device, payload } = message;
    if (type === 'NDEATH') {
      if (this.#isOfOtherSession(payload)) return undefined;
      this.#isBorn = false;
      return '';
    }
    if (type === 'NBIRTH') this.#restart(payload);
    else this.#follow(payload, nowMs);
    if (type.endsWith('BIRTH')) this.#recordBirth(device, payload);
    else if (!this.canResolve(message)) this.#require('no birth certificate of a device received', nowMs);
    if (type !== 'DDEATH') return undefined;
    this.#setDevice(device, false);
    return `${device}/`;
  }

  #restart(payload: SparkplugPayload): void {
    this.#byAlias.clear();
    for (const device of this.#devices.keys()) this.#devices.set(device, false);
    this.#isBorn = true;
    this.#seq = payload.seq ?? 0;
    this.#birthSeq = birthSeqOf(payload);
  }

  /** Updates the sequence number. */
  #follow({ seq }: SparkplugPayload, nowMs: number): void {
    const before = this.#seq;
    this.#seq = seq;
    const isNext = seq === undefined || before === undefined || seq === (before + 1) % SEQUENCES;
    if (!this.#isBorn) this.#require('no birth certificate received', nowMs);
    else if (!isNext) this.miss(`message ${seq} followed message ${before}`, nowMs);
  }

  #recordBirth(device: string | undefined, { metrics }: SparkplugPayload): void {
    this.#setDevice(device, true);
    if (this.#isBorn) this.#reason = this.#requiredSinceMs = undefined;
    for (const { name, alias, datatype } of metrics) {
      if (name === undefined) continue;
      const path = pathOf(device, name);
      if (alias !== undefined) this.#byAlias.delete(alias);
      if (!this.#datatypes.has(path)) continue;
      this.#datatypes.set(path, datatype);
      if (alias !== undefined) this.#byAlias.set(alias, path);
    }
  }

  #setDevice(device: string | undefined, isBorn: boolean): void {
    if (device !== undefined && this.#devices.has(device)) this.#devices.set(device, isBorn);
  }

  /**
   * Returns whether the aliases and data types of a message can be resolved now. Devices that are not configured do not
   * require them.
   */
  canResolve({ type, device, payload }: NodeMessage): boolean {
    if (this.#isBorn && (device === undefined || this.#devices.get(device) !== false)) return true;
    return !type.endsWith('DATA') || !payload.metrics.some((metric) => this.#needsBirth(device, metric));
  }

  #needsBirth(device: string | undefined, metric: SparkplugMetric): boolean {
    if (isAliased(metric)) return true;
    return isInteger(metric) && !metric.datatype && this.#datatypes.has(pathOf(device, metric.name!));
  }

  /** Returns the values of a message, and the number of metrics whose alias or data type is unknown. */
  read(message: NodeMessage): { values: NamedMetric[]; unknown: number } {
    const { type, device, payload } = message;
    const values: NamedMetric[] = [];
    let unknown = 0;
    if (type.endsWith('DEATH')) return { values, unknown };
    const canResolve = this.canResolve(message);
    for (const metric of payload.metrics) {
      let path: string | undefined;
      if (!canResolve && this.#needsBirth(device, metric)) unknown++;
      else if (isAliased(metric)) path = this.#byAlias.get(metric.alias ?? -1);
      else path = pathOf(device, metric.name!);
      if (path !== undefined) values.push({ path, metric, born: this.#datatypes.get(path) });
    }
    return { values, unknown };
  }
}

const isAliased = ({ name }: SparkplugMetric) => name === undefined || name === '';

/** Returns the path of a metric below its node. */
export const pathOf = (device: string | undefined, name: string) => (device === undefined ? name : `${device}/${name}`);

/** Returns the device of a path, or an empty text. Whether it is a device is known from its birth certificate. */
const deviceOf = (path: string) => path.slice(0, Math.max(0, path.indexOf('/')));

function birthSeqOf({ metrics }: SparkplugPayload): number | undefined {
  const value = metrics.find(({ name }) => name === BIRTH_SEQUENCE)?.value;
  return typeof value === 'number' || typeof value === 'bigint' ? Number(value) : undefined;
}
