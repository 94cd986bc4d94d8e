import { codeOf, messageOf, SourceStopped, TagferryError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { type Broker, READ_ACCESS } from '../../broker/broker.ts';
import type { Message } from '../../broker/connection.ts';
import type { Reading } from '../intake/gate.ts';
import { readsTexts } from '../intake/shaping.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import { MAX_PAYLOAD_BYTES, PAYLOAD_TOO_LONG } from '../messages/payload.ts';
import { deniedText } from '../messages/topic-plan.ts';
import type { Point } from '../points.ts';
import type { RunningSource, SourceContext } from '../source-kind.ts';
import { commandPayload, rebirthCommand } from './commands.ts';
import { EdgeNode, type NodeMessage, type NodeOutcome } from './edge-node.ts';
import { decodePayload, readingOf } from './payload.ts';
import {
  commandTopic,
  filterOf,
  readState,
  readTopic,
  type SparkplugSpec,
  type SparkplugValue,
} from './sparkplug-spec.ts';

type Context = SourceContext<SparkplugSpec, SparkplugValue>;

/** Maximum number of edge nodes per source. Nodes with the same name in different groups count separately. */
const MAX_NODES = 1_000;
/** Minimum interval between two announcements of the host application, so that two hosts cannot flood the broker. */
const ANNOUNCE_MS = 1_000;
/** Interval between checks for new connections and expired times, in milliseconds. */
const CHECK_MS = 500;
/** Maximum number of birth certificate requests per node and minute. A response can saturate a slow radio link. */
const MAX_REQUESTS = 3;
const MINUTE_MS = 60_000;
/** Time allowed for a birth certificate before it is requested again, in milliseconds. */
const RESPONSE_MS = 5_000;
/**
 * Maximum time that messages wait for a birth certificate, in milliseconds. Unacknowledged messages block the broker
 * session. A missing response then also indicates that the client may lack permission to publish the request.
 */
const NO_BIRTH_MS = 30_000;
/** Maximum number of waiting messages per node. */
const MAX_WAITING = 1_000;
const DONE = Promise.resolve();

/** Unacknowledged message with aliases that are not known yet. */
interface Waiting {
  type: string;
  device: string | undefined;
  /** Encoded, because a decoded payload can use a hundred times as much memory. */
  payload: Uint8Array;
  sinceMs: number;
  settle(stored: Promise<void>): void;
}

interface Known {
  group: string;
  name: string;
  node: EdgeNode;
  /** Points by path. */
  points: ReadonlyMap<string, readonly Point<SparkplugValue>[]>;
  waiting: Waiting[];
  /** Whether waiting messages were discarded since the latest birth certificate. Further messages then do not wait. */
  isLate: boolean;
  /** Reason for which a birth certificate must be requested. */
  reason: string | undefined;
  /** Times of the requests within the latest minute. */
  requests: number[];
  /** Time of the first request since the latest birth certificate. */
  requestedMs: number | undefined;
}

/**
 * Values from the edge nodes of a Sparkplug B broker. The agent acts as a host application. A message is acknowledged
 * when its values are on disk. Missed messages are detected by sequence number and on each new connection. The agent
 * then requests the node's birth certificate, which contains all values of the node. Times are monotonic.
 */
export class SparkplugSource implements RunningSource {
  readonly #context: Context;
  readonly #broker: Broker;
  readonly #trouble: TroubleLog;
  /** Points by `node/path`. */
  readonly #points: ReadonlyMap<string, readonly Point<SparkplugValue>[]>;
  readonly #nodes = new Map<string, Known>();
  /** Filters that the broker rejects. */
  readonly #denied = new Set<string>();
  #unsubscribe: (() => void)[] = [];
  #cancelCheck: () => void = () => {};
  #announcedMs = Number.NEGATIVE_INFINITY;
  #cancelAnnouncement: (() => void) | undefined;
  #connectedSinceMs: number | undefined;
  #isStopped = false;

  /** Throws `broker.unknown`. */
  constructor(context: Context) {
    const { source, brokers, points, log, clock } = context;
    const broker = brokers.get(source.name);
    if (!broker) throw new TagferryError(`unknown broker ${source.name}`, { code: 'broker.unknown' });
    this.#context = context;
    this.#broker = broker;
    context.status.broker = broker;
    this.#points = Map.groupBy(points, ({ spec }) => spec.metric);
    this.#trouble = new TroubleLog(log, clock);
  }

  start(): void {
    const { gate, source, isTest } = this.#context;
    const { group } = source.spec;
    const { qos, presence }: Pick<SparkplugSpec, 'qos' | 'presence'> = isTest ? { qos: 0 } : source.spec;
    const names = [...new Set([...this.#points.keys()].map(nodeNameOf))];
    const filters = names.map((name) => filterOf(group, name));
    const unsubscribe = this.#broker.subscribe(filters, (message) => this.#receive(message), {
      qos,
      stalled: () => gate.commitSoon(),
      isFull: () => gate.isFull,
      permitted: (filter, isPermitted) => {
        if (isPermitted) this.#denied.delete(filter);
        else this.#denied.add(filter);
        this.#setProblem();
      },
    });
    this.#unsubscribe.push(unsubscribe);
    // If the group is configured, birth certificates can be requested before the first message of a node arrives.
    if (group !== undefined) for (const name of names) this.#nodeOf(group, name);
    // QoS 0, because messages sent before this connection are not needed.
    if (presence !== undefined) {
      const receiveState = async (message: Message) => this.#receiveState(message);
      this.#unsubscribe.push(this.#broker.subscribe([presence], receiveState, { qos: 0 }));
    }
    this.#check();
  }

  async stop(isGone = false): Promise<void> {
    this.#isStopped = true;
    this.#cancelCheck();
    this.#cancelAnnouncement?.();
    // The broker redelivers the waiting messages.
    for (const { waiting } of this.#nodes.values()) {
      for (const { settle } of waiting.splice(0)) settle(Promise.reject(new SourceStopped()));
    }
    if (isGone) this.leave();
    this.#context.gate.commitSoon();
  }

  leave(): void {
    for (const unsubscribe of this.#unsubscribe.splice(0)) unsubscribe();
  }

  /** Publishes a command in the type that the birth certificate specifies. */
  async write({ spec }: Point, raw: number, guard: () => void, signal: AbortSignal): Promise<void> {
    const { metric } = spec as SparkplugValue;
    const name = nodeNameOf(metric);
    const targets = [...this.#nodes.values()].flatMap((known) => {
      const target = known.name === name ? known.node.commandTarget(metric.slice(name.length + 1)) : undefined;
      return target === undefined ? [] : [{ ...target, group: known.group }];
    });
    const [target] = targets;
    if (target === undefined) throw writeFailed('no current birth certificate contains the metric');
    if (targets.length > 1) throw writeFailed('several groups contain the edge node');
    const payload = commandPayload(target.name, target.datatype, raw, this.#context.clock.wallMs());
    if (payload === undefined) throw writeFailed(`${raw} does not fit the type of the metric`);
    await this.#broker.publish(commandTopic(target.group, name, target.device), payload, { signal, beforeSend: guard });
  }

  /** Requests birth certificates on a new connection, ends expired waits, and updates the problem of the source. */
  #check(): void {
    const { clock } = this.#context;
    this.#checkConnection();
    for (const known of this.#nodes.values()) {
      this.#requestBirth(known);
      if (known.waiting.length === 0 || clock.monotonicMs() - known.waiting[0]!.sinceMs < NO_BIRTH_MS) continue;
      this.#discard(known);
      known.isLate = true;
    }
    this.#setProblem();
    this.#cancelCheck = clock.after(CHECK_MS, () => this.#check());
  }

  /** Also called before each message, so that a new connection is detected before its first message is processed. */
  #checkConnection(): void {
    const { connected, sinceMs } = this.#broker.state();
    if (!connected || sinceMs === this.#connectedSinceMs) return;
    this.#connectedSinceMs = sinceMs;
    for (const known of this.#nodes.values()) {
      known.node.miss();
      known.requests = [];
      known.requestedMs = undefined;
      this.#requestBirth(known, 'new connection');
    }
  }

  #setProblem(): void {
    const { status, clock } = this.#context;
    const nowMs = clock.monotonicMs();
    const unborn = [...this.#nodes.values()].filter(({ node }) => !node.isBorn);
    const silent = unborn.find(({ requestedMs = nowMs }) => nowMs - requestedMs >= NO_BIRTH_MS);
    const names = unborn.slice(0, 3).map(({ name }) => plain(name));
    const waiting = names.length === 0 ? undefined : `waiting for the birth certificate of ${names.join(', ')}`;
    const denied = deniedText(this.#denied);
    status.problem = denied ?? waiting;
    status.hint = denied === undefined ? silent && rightsHint(silent) : READ_ACCESS;
  }

  /** Returns `undefined` if the node limit is reached. */
  #nodeOf(group: string, name: string): Known | undefined {
    const key = `${group}/${name}`;
    const known = this.#nodes.get(key);
    if (known || this.#nodes.size >= MAX_NODES) return known;
    const own = [...this.#points].filter(([metric]) => nodeNameOf(metric) === name);
    const points = new Map(own.map(([metric, some]) => [metric.slice(name.length + 1), some]));
    const node = new EdgeNode(points.keys());
    const state = { waiting: [], isLate: false, reason: undefined, requests: [], requestedMs: undefined };
    const made: Known = { group, name, node, points, ...state };
    this.#nodes.set(key, made);
    return made;
  }

  #receive({ topic, payload, retained }: Message): Promise<void> {
    if (this.#isStopped) return Promise.reject(new SourceStopped());
    const parsed = readTopic(topic);
    if (parsed === undefined) return DONE;
    const { type, device } = parsed;
    this.#checkConnection();
    const known = this.#nodeOf(parsed.group, parsed.node);
    if (known === undefined) {
      this.#reportNodes(parsed.group, parsed.node);
      return DONE;
    }
    let message: NodeMessage;
    try {
      if (payload.length > MAX_PAYLOAD_BYTES) throw new RangeError(PAYLOAD_TOO_LONG);
      message = { type, device, payload: decodePayload(payload) };
      // A retained message can be older than its arrival.
      if (retained) for (const metric of message.payload.metrics) metric.isHistorical = true;
    } catch (error) {
      this.#reportUnreadable(topic, messageOf(error));
      known.node.miss();
      this.#requestBirth(known, 'unreadable message');
      return DONE;
    }
    this.#trouble.recovered('sparkplug.unreadable', { topic }, 'messages on a topic are readable again', topic);
    if (type === 'NBIRTH') known.reason = known.requestedMs = undefined;
    const outcome = known.node.process(message, !known.isLate && known.waiting.length < MAX_WAITING);
    if (outcome.isNewSession || type.endsWith('BIRTH')) known.isLate = false;
    // Process waiting messages first, so that older values do not overwrite newer values.
    if (outcome.isNewSession) this.#discard(known);
    else if (type.endsWith('BIRTH')) this.#release(known);
    const stored = this.#write(known, outcome, message);
    if (!type.endsWith('DATA')) this.#setProblem();
    if (!outcome.mustWait) return stored;
    const sinceMs = this.#context.clock.monotonicMs();
    return new Promise((resolve) => known.waiting.push({ type, device, payload, sinceMs, settle: resolve }));
  }

  /** Writes waiting messages in order, up to the first one whose aliases are still unknown. */
  #release(known: Known): void {
    for (let waiting = known.waiting[0]; waiting !== undefined; waiting = known.waiting[0]) {
      const message = decoded(waiting);
      if (!known.node.canResolve(message)) return;
      known.waiting.shift();
      waiting.settle(this.#write(known, known.node.read(message), message));
    }
  }

  /** Writes only the metrics with a name, because the aliases can no longer be resolved. */
  #discard(known: Known): void {
    const discarded = known.waiting.splice(0);
    if (discarded.length > 0) this.#reportDiscarded(known.name, discarded.length);
    for (const waiting of discarded) {
      const message = decoded(waiting);
      waiting.settle(this.#write(known, known.node.read(message, false), message));
    }
  }

  /** Resolves when the values are on disk. */
  #write(known: Known, { values, died, rebirth, unknown }: NodeOutcome, { payload }: NodeMessage): Promise<void> {
    const readings: Reading[] = [];
    for (const { path, metric, born } of values) {
      for (const point of known.points.get(path) ?? []) {
        const reading = readingOf(metric, born, readsTexts(point));
        const timeMs = metric.timeMs ?? payload.timeMs;
        if (metric.isHistorical && timeMs === undefined) {
          readings.push({ point, failure: 'the historical metric has no timestamp' });
        } else if ('raw' in reading) {
          const arrival = metric.isHistorical ? 'unknown' : undefined;
          readings.push({ point, raw: reading.raw, timeMs, msOfUnit: 1, arrival, quality: metric.quality });
        } else if (metric.isNull) readings.push({ point, failure: reading.problem });
        else readings.push({ point, problem: reading.problem });
      }
    }
    if (died !== undefined) {
      for (const [path, points] of known.points) {
        if (path.startsWith(died)) for (const point of points) readings.push({ point, failure: undefined });
      }
    }
    const { status } = this.#context;
    status.errors += unknown;
    if (unknown > 0)
      status.reject(`${plain(known.name)}: no birth certificate defines the name or data type of a metric`, unknown);
    if (rebirth !== undefined) this.#requestBirth(known, rebirth);
    return this.#context.gate.write(readings);
  }

  /** Requests the birth certificate for this reason, or for an earlier one, unless too many requests were sent. */
  #requestBirth(known: Known, reason = known.reason): void {
    const { clock, log, source } = this.#context;
    if (reason === undefined || !source.spec.rebirth || this.#isStopped) return;
    const nowMs = clock.monotonicMs();
    known.reason = reason;
    known.requests = known.requests.filter((ms) => nowMs - ms < MINUTE_MS);
    const isAwaited = known.requestedMs !== undefined && nowMs - (known.requests.at(-1) ?? 0) < RESPONSE_MS;
    if (isAwaited || known.requests.length >= MAX_REQUESTS) return;
    known.requests.push(nowMs);
    known.requestedMs ??= nowMs;
    known.reason = undefined;
    const fields = { source: source.name, node: plain(known.name), reason };
    log.info({ event: 'sparkplug.rebirth', ...fields }, 'birth certificate requested');
    // A failed request is retried with the next message or connection.
    this.#broker
      .publish(commandTopic(known.group, known.name), rebirthCommand(clock.wallMs()))
      .catch((error: unknown) => {
        const event = { event: 'sparkplug.rebirth_failed', ...fields, code: codeOf(error) };
        log.debug(event, 'failed to request birth certificate');
      });
  }

  /** Handles a STATE message for this host application that another client sent, or a late will message. */
  #receiveState({ topic, payload, retained }: Message): void {
    const state = readState(payload);
    // A retained message is older than the subscription. The announcement on this connection replaces it.
    if (this.#isStopped || retained || state.isOnline) return;
    const { clock, source } = this.#context;
    const announce = () => {
      this.#cancelAnnouncement = undefined;
      if (!this.#broker.contradictAbsence(state.timeMs)) return;
      this.#announcedMs = clock.monotonicMs();
      const fields = { event: 'sparkplug.host_offline', source: source.name, topic: plain(topic) };
      this.#trouble.report(fields, 'host was announced as offline, announced it as online again');
    };
    const waitMs = this.#announcedMs + ANNOUNCE_MS - clock.monotonicMs();
    if (waitMs <= 0) announce();
    else this.#cancelAnnouncement ??= clock.after(waitMs, announce);
  }

  #reportUnreadable(topic: string, error: string): void {
    const { status, source } = this.#context;
    status.errors++;
    status.reject(`${plain(topic)}: ${error}`);
    const fields = { source: source.name, topic: plain(topic), error };
    this.#trouble.report({ event: 'sparkplug.unreadable', ...fields }, 'failed to read message', topic);
  }

  #reportNodes(group: string, node: string): void {
    this.#context.status.errors++;
    const fields = { source: this.#context.source.name, group: plain(group), node: plain(node) };
    const message = 'messages of an edge node discarded: too many nodes';
    this.#trouble.report({ event: 'sparkplug.nodes_limit', ...fields }, message);
  }

  #reportDiscarded(node: string, messages: number): void {
    const fields = { event: 'sparkplug.discarded', source: this.#context.source.name, node: plain(node), messages };
    this.#trouble.report(fields, 'messages discarded: no birth certificate defines their aliases and data types', node);
  }
}

function writeFailed(text: string): TagferryError {
  return new TagferryError(text, { code: 'write.failed', retryable: true });
}

function decoded({ type, device, payload }: Waiting): NodeMessage {
  return { type, device, payload: decodePayload(payload) };
}

/** Returns the name of a metric's edge node. */
function nodeNameOf(metric: string): string {
  return metric.slice(0, metric.indexOf('/'));
}

function rightsHint({ group, name }: Known): string {
  return plain(`Check that the node is running, and allow this client to publish to ${commandTopic(group, name)}.`);
}
