import { messageOf, SourceStopped, TagferryError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import type { Broker } from '../../broker/broker.ts';
import { READ_ACCESS } from '../../broker/broker-error.ts';
import type { Message } from '../../broker/connection.ts';
import type { Reading } from '../intake/gate.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import { MAX_PAYLOAD_BYTES, PAYLOAD_TOO_LONG } from '../messages/payload.ts';
import { deniedText } from '../messages/topic-plan.ts';
import type { Point } from '../points.ts';
import type { RunningSource, SourceContext } from '../source-kind.ts';
import { EdgeNode, type NodeMessage } from './edge-node.ts';
import { commandPayload, decodePayload, rebirthCommand } from './payload.ts';
import {
  commandTopic,
  filterOf,
  type NodeTopic,
  offlineTimeOf,
  readTopic,
  type SparkplugSpec,
  type SparkplugValue,
} from './sparkplug-spec.ts';

type Context = SourceContext<SparkplugSpec, SparkplugValue>;
/** Points by path below their node. */
type NodePoints = ReadonlyMap<string, readonly Point<SparkplugValue>[]>;

/** Maximum number of edge nodes per source. Nodes with the same name in different groups count separately. */
const MAX_NODES = 1_000;
/** Interval between checks for new connections and overdue birth certificates, in milliseconds. */
const CHECK_MS = 500;
/** Maximum number of messages per node that wait for a birth certificate. */
const MAX_WAITING = 1_000;
const HISTORICAL = 'the metric is historical, and its timestamp is ignored (time_from: arrival)';
/** Maximum number of nodes that a problem names. */
const MAX_NAMED = 3;

interface Known {
  group: string;
  name: string;
  state: EdgeNode;
  /**
   * Functions that process an unacknowledged message again, once its aliases and data types are known or must be
   * skipped.
   */
  waiting: ((pass: 'again' | 'final') => void)[];
}

/**
 * Values from the edge nodes of a Sparkplug B broker. The agent acts as a host application. A message is acknowledged
 * when its values are on disk. Missed messages are detected by sequence number and on each new connection. The agent
 * then requests the node's birth certificate, which contains all values of the node.
 */
export class SparkplugSource implements RunningSource {
  readonly #context: Context;
  readonly #broker: Broker;
  readonly #trouble: TroubleLog;
  /** By node name. */
  readonly #points: ReadonlyMap<string, NodePoints>;
  readonly #nodes = new Map<string, Known>();
  /** Filters that the broker rejects. */
  readonly #denied = new Set<string>();
  #unsubscribe: (() => void)[] = [];
  #cancelCheck: () => void = () => {};
  /** Timestamp of a message that announces this host as offline, and must be contradicted. */
  #offlineMs: number | undefined;
  #connectedSinceMs: number | undefined;
  #isStopped = false;

  constructor(context: Context) {
    const { source, brokers, points, log, clock, status } = context;
    this.#context = context;
    this.#broker = brokers.get(source.name) as Broker;
    status.broker = this.#broker;
    const byNode = [...Map.groupBy(points, ({ spec }) => nodeNameOf(spec.metric))];
    this.#points = new Map(
      byNode.map(([node, some]) => [node, Map.groupBy(some, ({ spec }) => spec.metric.slice(node.length + 1))]),
    );
    this.#trouble = new TroubleLog(log, clock);
  }

  start(): void {
    const { gate, source, isTest } = this.#context;
    const { group } = source.spec;
    const { qos, presence }: Pick<SparkplugSpec, 'qos' | 'presence'> = isTest ? { qos: 0 } : source.spec;
    const names = [...this.#points.keys()];
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
      const receiveState = (message: Message) => this.#receiveState(message);
      this.#unsubscribe.push(this.#broker.subscribe([presence], receiveState, { qos: 0 }));
    }
    this.#check();
  }

  async stop(isGone = false): Promise<void> {
    this.#isStopped = true;
    this.#cancelCheck();
    // The broker redelivers the waiting messages, because they are rejected.
    for (const known of this.#nodes.values()) this.#resume(known, 'final');
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
    const path = metric.slice(name.length + 1);
    const nodes = [...this.#nodes.values()].filter((known) => known.name === name && known.state.commandTarget(path));
    const target = nodes[0]?.state.commandTarget(path);
    if (target === undefined) throw writeFailed('no current birth certificate contains the metric');
    if (nodes.length > 1) throw writeFailed('several groups contain the edge node');
    const payload = commandPayload(target.name, target.datatype, raw, this.#context.clock.wallMs());
    if (payload === undefined) throw writeFailed(`${raw} does not fit the type of the metric`);
    const topic = commandTopic(nodes[0]!.group, name, target.device);
    await this.#broker.publish(topic, payload, { signal, beforeSend: guard });
  }

  /** Requests birth certificates, ends waits for overdue ones, and announces this host again. */
  #check(): void {
    const { clock } = this.#context;
    this.#checkConnection();
    for (const known of this.#nodes.values()) {
      this.#requestBirth(known);
      if (known.state.isOverdue(clock.monotonicMs())) this.#discard(known);
    }
    this.#announce();
    this.#setProblem();
    this.#cancelCheck = clock.after(CHECK_MS, () => this.#check());
  }

  /** Also called before each message, so that a new connection is detected before its first message is processed. */
  #checkConnection(): void {
    const sinceMs = this.#broker.connectedSinceMs;
    if (sinceMs === undefined || sinceMs === this.#connectedSinceMs) return;
    this.#connectedSinceMs = sinceMs;
    for (const known of this.#nodes.values()) {
      known.state.reconnect(this.#context.clock.monotonicMs());
      this.#requestBirth(known);
    }
  }

  #setProblem(): void {
    const { status, clock, source } = this.#context;
    const unborn = [...this.#nodes.values()].filter(({ state }) => state.awaitsBirth);
    const dead = unborn.filter(({ state }) => state.isDead);
    const awaited = unborn.filter(({ state }) => !state.isDead);
    const overdue = source.spec.rebirth && awaited.find(({ state }) => state.isOverdue(clock.monotonicMs()));
    const problems: string[] = [];
    if (awaited.length > 0) problems.push(`waiting for the birth certificate of ${namesOf(awaited)}`);
    if (dead.length > 0) problems.push(`${namesOf(dead)} ${dead.length === 1 ? 'is' : 'are'} offline`);
    const denied = deniedText(this.#denied);
    status.problem = denied ?? (problems.join('; ') || undefined);
    if (denied !== undefined) status.hint = READ_ACCESS;
    else status.hint = overdue ? rightsHint(overdue) : undefined;
  }

  /** Returns `undefined` if the node limit is reached. */
  #nodeOf(group: string, name: string): Known | undefined {
    const key = `${group}/${name}`;
    const known = this.#nodes.get(key);
    if (known || this.#nodes.size >= MAX_NODES) return known;
    const made: Known = { group, name, state: new EdgeNode(this.#points.get(name)!), waiting: [] };
    this.#nodes.set(key, made);
    return made;
  }

  #receive(message: Message): Promise<void> | undefined {
    const topic = readTopic(message.topic);
    const { group = topic?.group } = this.#context.source.spec;
    if (topic === undefined || topic.group !== group || !this.#points.has(topic.node)) return undefined;
    if (this.#isStopped) return Promise.reject(new SourceStopped());
    this.#checkConnection();
    const known = this.#nodeOf(topic.group, topic.node);
    if (known === undefined) {
      this.#context.status.errors++;
      const fields = { source: this.#context.source.name, group: plain(topic.group), node: plain(topic.node) };
      const text = 'messages of an edge node discarded: too many nodes';
      this.#trouble.report({ event: 'sparkplug.nodes_limit', ...fields }, text);
      return undefined;
    }
    const stored = this.#process(known, message, topic, 'new');
    this.#requestBirth(known);
    return stored;
  }

  /**
   * Processes a new message, or a waiting one again. Resolves when its values are on disk. A message that cannot be
   * read is reported, and acknowledged when earlier values are on disk, because the broker would send the same bytes
   * again. `final`: the message must not wait.
   */
  #process(known: Known, message: Message, topic: NodeTopic, pass: 'new' | 'again' | 'final'): Promise<void> {
    const { gate, clock } = this.#context;
    const { state, waiting } = known;
    const nowMs = clock.monotonicMs();
    if (this.#isStopped) return Promise.reject(new SourceStopped());
    try {
      const read = decode(message, topic);
      const words = 'messages on a topic are readable again';
      this.#trouble.recovered('sparkplug.unreadable', { topic: message.topic }, words, message.topic);
      if (pass === 'new') this.#observe(known, read, nowMs);
      const mayWait = pass !== 'final' && waiting.length < MAX_WAITING && !state.isOverdue(nowMs);
      if (mayWait && !state.canResolve(read)) {
        return new Promise((settle) => waiting.push((next) => settle(this.#process(known, message, topic, next))));
      }
      const { readings, unknown } = state.read(read);
      if (unknown > 0) this.#countUnknown(known, unknown);
      return gate.write(gate.timeFrom === 'source' ? readings : readings.filter((reading) => !this.#isPast(reading)));
    } catch (error) {
      if (error instanceof TagferryError) return Promise.reject(error);
      this.#reportUnreadable(message.topic, messageOf(error));
      state.miss('unreadable message', nowMs);
      return gate.write([]);
    }
  }

  /** Updates the state of the node. Waiting messages precede a birth certificate, because their values are older. */
  #observe(known: Known, message: NodeMessage, nowMs: number): void {
    // The next session may use the same aliases for other metrics.
    if (known.state.endsSession(message)) this.#discard(known);
    known.state.observe(message, nowMs);
    this.#recordMissing(known, message);
    if (message.type.endsWith('BIRTH')) {
      this.#resume(known, 'again');
      // Messages of a device wait no longer because the node and its other devices send their birth certificates.
      if (known.waiting.length === 0) known.state.endWait();
    }
    if (!message.type.endsWith('DATA')) this.#setProblem();
  }

  #recordMissing({ name, state }: Known, message: NodeMessage): void {
    for (const [metric, points] of state.missingMetrics(message)) {
      const place = plain(message.device === undefined ? name : `${name}/${message.device}`);
      const problem = `the birth certificate of ${place} contains no metric "${plain(metric)}"`;
      for (const point of points) this.#context.status.recordFailure(point, problem, {}, 0);
    }
  }

  #resume(known: Known, pass: 'again' | 'final'): void {
    for (const process of known.waiting.splice(0)) process(pass);
  }

  /** Writes only the identified metrics of the waiting messages, because the others can no longer be resolved. */
  #discard(known: Known): void {
    const messages = known.waiting.length;
    if (messages === 0) return;
    const node = plain(known.name);
    const fields = { event: 'sparkplug.discarded', source: this.#context.source.name, node, messages };
    const text = 'messages discarded: no birth certificate defines their aliases and data types';
    this.#trouble.report(fields, text, node);
    this.#resume(known, 'final');
  }

  /** Rejects a historical value whose timestamp is ignored, because it would be stored as a new measurement. */
  #isPast(reading: Reading): boolean {
    const isPast = 'raw' in reading && reading.arrival === 'unknown';
    if (isPast) this.#context.status.rejectTime(reading.point, HISTORICAL);
    return isPast;
  }

  #countUnknown({ name }: Known, metrics: number): void {
    const { status } = this.#context;
    status.errors += metrics;
    status.reject(`${plain(name)}: no birth certificate defines the name or data type of a metric`, metrics);
  }

  #requestBirth({ group, name, state }: Known): void {
    const { clock, log, source } = this.#context;
    const reason = source.spec.rebirth ? state.nextRequest(clock.monotonicMs()) : undefined;
    if (reason === undefined) return;
    const fields = { source: source.name, node: plain(name), reason };
    log.info({ event: 'sparkplug.rebirth', ...fields }, 'birth certificate requested');
    // A failed request is repeated with a later message or on the next connection.
    this.#broker.publish(commandTopic(group, name), rebirthCommand(clock.wallMs())).catch(() => {});
  }

  /**
   * Handles a STATE message for this host application that another client sent, or a late will message. A retained
   * message is older than the subscription, and the announcement on this connection replaces it.
   */
  #receiveState({ topic, payload, retained }: Message): undefined {
    const isOwn = topic === this.#context.source.spec.presence;
    if (isOwn && !retained) this.#offlineMs = offlineTimeOf(payload) ?? this.#offlineMs;
  }

  /** Announces this host again, at the interval of the checks, so that two hosts cannot flood the broker. */
  #announce(): void {
    if (this.#offlineMs === undefined) return;
    const { name, spec } = this.#context.source;
    if (this.#broker.contradictAbsence(this.#offlineMs)) {
      const fields = { event: 'sparkplug.host_offline', source: name, topic: plain(spec.presence ?? '') };
      this.#trouble.report(fields, 'host was announced as offline, announced it as online again');
    }
    this.#offlineMs = undefined;
  }

  #reportUnreadable(topic: string, error: string): void {
    const { status, source } = this.#context;
    status.errors++;
    status.reject(`${plain(topic)}: ${error}`);
    const fields = { source: source.name, topic: plain(topic), error };
    this.#trouble.report({ event: 'sparkplug.unreadable', ...fields }, 'failed to read message', topic);
  }
}

/** Throws if the message is not a Sparkplug B payload or exceeds a limit. */
function decode({ payload, retained }: Message, { type, device }: NodeTopic): NodeMessage {
  if (payload.length > MAX_PAYLOAD_BYTES) throw new RangeError(PAYLOAD_TOO_LONG);
  const decoded = decodePayload(payload);
  // A retained message may have been sent long before its arrival.
  if (retained) for (const metric of decoded.metrics) metric.isHistorical = true;
  return { type, device, payload: decoded };
}

function writeFailed(text: string): TagferryError {
  return new TagferryError(text, { code: 'write.failed', retryable: true });
}

/** Returns the names of the first nodes. */
function namesOf(nodes: readonly Known[]): string {
  return nodes
    .slice(0, MAX_NAMED)
    .map(({ name }) => plain(name))
    .join(', ');
}

/** Returns the name of a metric's edge node. */
function nodeNameOf(metric: string): string {
  return metric.slice(0, metric.indexOf('/'));
}

function rightsHint({ group, name }: Known): string {
  return plain(`Check that the node is running, and allow this client to publish to ${commandTopic(group, name)}.`);
}
