/**
 * State of one edge node: aliases and data types of its configured metrics in the latest birth certificates, and
 * whether these are still valid. Reads messages, and decides when a birth certificate must be requested. Has no side
 * effects; `SparkplugSource` acts on the decisions. Times are monotonic.
 *
 * States: *born* from a birth certificate until a missed message, the node's death or a new connection; otherwise
 * *unborn*. The aliases of an unborn node may have changed, so messages with aliases wait for the next birth
 * certificate, as do messages with integers whose data type only the birth certificate contains: -11 and 4294967285 are
 * encoded equally. All other metrics with a name are always read.
 */
import type { Reading } from '../intake/gate.ts';
import { readsTexts } from '../intake/shaping.ts';
import type { Point } from '../points.ts';
import { isInteger, readingOf, type SparkplugMetric, type SparkplugPayload } from './payload.ts';

export interface NodeMessage {
  /** For example `DBIRTH`. */
  type: string;
  /** Set for device messages. */
  device: string | undefined;
  payload: SparkplugPayload;
}

interface ConfiguredMetric {
  points: readonly Point[];
  /** Data type according to the birth certificate. */
  datatype: number | undefined;
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
  /** By path: `device/metric name` or `metric name`. */
  readonly #metrics: ReadonlyMap<string, ConfiguredMetric>;
  /** By device and alias. Some nodes use the same alias for metrics of two devices. */
  readonly #byAlias = new Map<string | undefined, Map<number, ConfiguredMetric>>();
  /** Devices with configured metrics, and whether their birth certificate has arrived. */
  readonly #devices: Map<string, boolean>;
  #isBorn = false;
  #isDead = false;
  #seq: number | undefined;
  #birthSeq: number | undefined;
  /** Time since which a birth certificate is required, or `undefined` if none is. */
  #requiredSinceMs: number | undefined;
  /** Reason for the next request. */
  #reason: string | undefined;
  /** Time of the latest request on this connection. */
  #requestedMs = Number.NEGATIVE_INFINITY;

  /** `points`: the configured metrics, by path. */
  constructor(points: ReadonlyMap<string, readonly Point[]>) {
    this.#metrics = new Map([...points].map(([path, some]) => [path, { points: some, datatype: undefined }]));
    this.#devices = new Map([...points.keys()].map((path) => [deviceOf(path), false]));
  }

  /** Whether the birth certificate of the node, or of a device that sends data, is missing. */
  get awaitsBirth(): boolean {
    return !this.#isBorn || this.#requiredSinceMs !== undefined;
  }

  /** Whether the latest message of the node was its death certificate. */
  get isDead(): boolean {
    return this.#isDead;
  }

  /** Whether a required birth certificate is overdue, so that messages no longer wait for the certificate. */
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

  /** Records that no message waits for a birth certificate after one has arrived. */
  endWait(): void {
    if (this.#isBorn) this.#reason = this.#requiredSinceMs = undefined;
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
    const datatype = this.#metrics.get(path)?.datatype;
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

  /** Updates the state. */
  observe(message: NodeMessage, nowMs: number): void {
    const { type, device, payload } = message;
    if (type === 'NDEATH') {
      // A death certificate of the previous session can arrive after the next birth certificate.
      if (!this.endsSession(message)) return;
      this.#isBorn = false;
      this.#isDead = true;
      return;
    }
    // The wait of a node that resumes without a birth certificate begins now.
    if (this.#isDead) this.#requiredSinceMs = undefined;
    this.#isDead = false;
    if (type === 'NBIRTH') this.#restart(payload);
    else this.#follow(payload, nowMs);
    if (type.endsWith('BIRTH')) this.#recordBirth(device, payload);
    else if (type === 'DDEATH') this.#setDevice(device, false);
    else if (!this.canResolve(message)) this.#require('no birth certificate of a device received', nowMs);
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
    if (device !== undefined && !this.#devices.has(device)) return;
    const aliases = new Set<number>();
    const byAlias = new Map<number, ConfiguredMetric>();
    this.#byAlias.set(device, byAlias);
    for (const { name = '', alias, datatype } of metrics) {
      const metric = this.#metrics.get(pathOf(device, name));
      if (metric !== undefined) metric.datatype = datatype;
      if (alias === undefined) continue;
      // An alias that two metrics share identifies neither.
      if (metric === undefined || aliases.has(alias)) byAlias.delete(alias);
      else byAlias.set(alias, metric);
      aliases.add(alias);
    }
  }

  /**
   * Returns the configured metrics that are not in a birth certificate, by name. A path with a slash may belong to a
   * device, so the birth certificate of a node is compared only with the other paths.
   */
  missingMetrics({ type, device, payload }: NodeMessage): [name: string, points: readonly Point[]][] {
    if (!type.endsWith('BIRTH')) return [];
    const names = new Set(payload.metrics.map(({ name }) => pathOf(device, name ?? '')));
    return [...this.#metrics].flatMap(([path, { points, datatype }]) => {
      const isMissing = deviceOf(path) === (device ?? '') && datatype === undefined && !names.has(path);
      return isMissing ? [[device === undefined ? path : path.slice(device.length + 1), points]] : [];
    });
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
    return isInteger(metric) && !metric.datatype && this.#metrics.has(pathOf(device, metric.name!));
  }

  /**
   * Returns the readings in a message, and the number of metrics whose alias or data type is unknown. A death
   * certificate is a failure of all metrics of its node or device.
   */
  read(message: NodeMessage): { readings: Reading[]; unknown: number } {
    const { type, device, payload } = message;
    const readings: Reading[] = [];
    let unknown = 0;
    if (type.endsWith('DEATH')) {
      const prefix = device === undefined ? '' : `${device}/`;
      for (const [path, { points }] of this.#metrics) {
        if (!path.startsWith(prefix) || (type === 'NDEATH' && !this.endsSession(message))) continue;
        for (const point of points) readings.push({ point, failure: undefined });
      }
      return { readings, unknown };
    }
    const canResolve = this.canResolve(message);
    const byAlias = this.#byAlias.get(device);
    for (const metric of payload.metrics) {
      let known: ConfiguredMetric | undefined;
      if (!canResolve && this.#needsBirth(device, metric)) unknown++;
      else if (isAliased(metric)) known = byAlias?.get(metric.alias ?? -1);
      else known = this.#metrics.get(pathOf(device, metric.name!));
      if (known !== undefined) addReadings(readings, metric, known, payload.timeMs);
    }
    return { readings, unknown };
  }
}

function addReadings(
  readings: Reading[],
  metric: SparkplugMetric,
  { points, datatype }: ConfiguredMetric,
  payloadMs: number | undefined,
): void {
  const { timeMs = payloadMs, isHistorical, quality } = metric;
  const arrival = isHistorical ? 'unknown' : undefined;
  for (const point of points) {
    const reading = readingOf(metric, datatype, readsTexts(point));
    if (isHistorical && timeMs === undefined) {
      readings.push({ point, problem: 'the historical metric has no timestamp' });
    } else if ('problem' in reading) readings.push({ point, problem: reading.problem, timeMs, arrival });
    else readings.push({ point, raw: reading.raw, timeMs, msOfUnit: 1, arrival, quality });
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
