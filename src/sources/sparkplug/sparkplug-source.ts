import { codeOf, messageOf, SourceStopped, TagferryError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import type { Broker } from '../../broker/broker.ts';
import type { Message } from '../../broker/connection.ts';
import { isValidTime } from '../intake/draft.ts';
import type { Reading } from '../intake/gate.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import { MAX_PAYLOAD_BYTES, PAYLOAD_TOO_LONG } from '../messages/payload.ts';
import type { Point } from '../points.ts';
import type { RunningSource, SourceContext } from '../source-kind.ts';
import { BirthRequests } from './birth-requests.ts';
import { EdgeNode, type NodeMessage, type NodeOutcome } from './edge-node.ts';
import { writeMetric } from './metric-writes.ts';
import { decodePayload, readingOf, rebirthCommand } from './payload.ts';
import {
  commandTopic,
  filterOf,
  nodeOf,
  readState,
  readTopic,
  type SparkplugSpec,
  type SparkplugValue,
} from './sparkplug-spec.ts';
import { type WaitingMessage, WaitingMessages } from './waiting-messages.ts';

type Context = SourceContext<SparkplugSpec, SparkplugValue>;

/** Maximum number of edge nodes per source. Nodes with the same name in different groups count separately. */
const MAX_NODES = 1_000;
/** Minimum interval between two announcements of the host application, so that two hosts cannot flood the broker. */
const ANNOUNCE_MS = 1_000;
/** Interval between checks for a new connection, in milliseconds. */
const CHECK_MS = 500;
/** Time after the request for a birth certificate after which the client may lack the right to send it. */
const NO_BIRTH_MS = 30_000;
const DONE = Promise.resolve();

interface Known {
  group: string;
  name: string;
  node: EdgeNode;
  /** Points by path. */
  points: ReadonlyMap<string, readonly Point<SparkplugValue>[]>;
  waiting: WaitingMessages;
  births: BirthRequests;
  /** Monotonic time of the first request since the latest birth certificate. */
  requestedMs: number | undefined;
}

/**
 * Values from the edge nodes of a Sparkplug B broker. The agent acts as a host application. A message is acknowledged
 * when its values are on disk. Missed messages are detected by sequence number and on each new connection; the node is
 * then asked for its birth certificate, which contains all its values.
 */
export class SparkplugSource implements RunningSource {
  readonly #context: Context;
  readonly #broker: Broker;
  readonly #trouble: TroubleLog;
  /** Points by `node/path`. */
  readonly #points: ReadonlyMap<string, readonly Point<SparkplugValue>[]>;
  readonly #nodes = new Map<string, Known>();
  /** Problems of points whose latest reading was not a number. */
  readonly #unreadable = new Map<Point<SparkplugValue>, string>();
  #leave: (() => void)[] = [];
  #cancelWatch: () => void = () => {};
  #announcedMs = Number.NEGATIVE_INFINITY;
  #cancelAnnouncement: (() => void) | undefined;
  #connectedSinceMs: number | undefined;
  #isStopped = false;

  /** Throws for an unknown broker. */
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
    const names = new Set([...this.#points.keys()].map(nodeOf));
    const regulation = {
      stalled: () => gate.commitSoon(),
      isFull: () => gate.isFull,
    };
    const handler = (message: Message) => this.#receive(message);
    for (const name of names) {
      this.#leave.push(this.#broker.subscribe(filterOf(group, name), handler, { qos, ...regulation }));
      // If the group is configured, a node can be asked before its first message arrives.
      if (group !== undefined) this.#nodeOf(group, name);
    }
    // QoS 0, because messages from before this connection do not matter.
    if (presence !== undefined) {
      const heard = (message: Message) => this.#receiveState(message);
      this.#leave.push(this.#broker.subscribe(presence, heard, { qos: 0 }));
    }
    this.#watchConnection();
  }

  async stop(isGone = false): Promise<void> {
    this.#isStopped = true;
    this.#cancelWatch();
    this.#cancelAnnouncement?.();
    for (const { waiting, births } of this.#nodes.values()) {
      waiting.reject(new SourceStopped());
      births.cancel();
    }
    if (isGone) this.leave();
    this.#context.gate.commitSoon();
  }

  leave(): void {
    for (const leave of this.#leave.splice(0)) leave();
  }

  /**
   * Periodically checks for a new connection, on which every node is asked for its birth certificate because messages
   * may have been missed. Also updates the problem of the source.
   */
  #watchConnection(): void {
    this.#checkConnection();
    this.#setProblem();
    this.#cancelWatch = this.#context.clock.after(CHECK_MS, () => this.#watchConnection());
  }

  #setProblem(): void {
    const { status, clock } = this.#context;
    const unborn = [...this.#nodes.values()].filter(({ node }) => !node.isBorn);
    const problem = waitingText(unborn) ?? this.#unreadableText();
    const nowMs = clock.monotonicMs();
    const silent = unborn.find(({ requestedMs = nowMs }) => nowMs - requestedMs >= NO_BIRTH_MS);
    status.problem = problem === undefined ? undefined : plain(problem);
    status.hint = silent && rightsHint(silent);
  }

  /**
   * Called before each message is processed and periodically, so that a new connection is detected before its first
   * message is processed.
   */
  #checkConnection(): void {
    const { connected, sinceMs } = this.#broker.state();
    if (!connected || sinceMs === this.#connectedSinceMs) return;
    this.#connectedSinceMs = sinceMs;
    for (const known of this.#nodes.values()) {
      known.node.miss();
      known.requestedMs = this.#context.clock.monotonicMs();
      known.births.requestNow('new connection');
    }
  }

  /** Returns `undefined` if the node limit is reached. */
  #nodeOf(group: string, name: string): Known | undefined {
    const key = `${group}/${name}`;
    const known = this.#nodes.get(key);
    if (known) return known;
    if (this.#nodes.size >= MAX_NODES) return undefined;
    const waiting = new WaitingMessages(this.#context.clock, async (messages) => {
      this.#reportDiscarded(name, messages.length);
      // Metrics with a name do not need the birth certificate. Aliases may belong to an earlier one.
      const written = messages.map((message) => {
        const one = decoded(message);
        return this.#apply(made, made.node.read(one, false), one.payload.timeMs);
      });
      await Promise.all(written);
    });
    const births: BirthRequests = new BirthRequests({
      clock: this.#context.clock,
      send: (reason) => this.#requestBirth(made, reason),
    });
    const own = [...this.#points].filter(([metric]) => nodeOf(metric) === name);
    const points = new Map(own.map(([metric, some]) => [metric.slice(name.length + 1), some]));
    const made: Known = {
      group,
      name,
      node: new EdgeNode([...points.keys()]),
      points,
      waiting,
      births,
      requestedMs: undefined,
    };
    this.#nodes.set(key, made);
    return made;
  }

  #receive({ topic, payload }: Message): Promise<void> {
    if (this.#isStopped) return Promise.reject(new SourceStopped());
    const parsed = readTopic(topic);
    if (parsed === undefined) return DONE;
    this.#checkConnection();
    const known = this.#nodeOf(parsed.group, parsed.node);
    if (known === undefined) {
      this.#context.status.errors++;
      this.#reportNodes(parsed.group, parsed.node);
      return DONE;
    }
    let stored = DONE;
    try {
      if (payload.length > MAX_PAYLOAD_BYTES) throw new RangeError(PAYLOAD_TOO_LONG);
      const message = { ...parsed, payload: decodePayload(payload) };
      this.#trouble.recovered('sparkplug.unreadable', { topic }, 'messages on a topic are readable again', topic);
      const { mustWait, written } = this.#read(known, message);
      stored = written;
      if (mustWait) return known.waiting.add({ ...parsed, payload });
    } catch (error) {
      this.#context.status.errors++;
      this.#context.status.reject(`${plain(topic)}: ${messageOf(error)}`);
      known.node.miss();
      const fields = { source: this.#context.source.name, topic: plain(topic), error: messageOf(error) };
      this.#trouble.report({ event: 'sparkplug.unreadable', ...fields }, 'failed to read message', topic);
      this.#request(known, 'unreadable message');
    }
    return stored;
  }

  /** `mustWait`: whether the message must wait for a birth certificate. */
  #read(known: Known, message: NodeMessage): { mustWait: boolean; written: Promise<void> } {
    const { type, payload } = message;
    if (type === 'NBIRTH') {
      known.births.cancel();
      known.requestedMs = undefined;
    }
    const outcome = known.node.process(message, known.waiting.accepts);
    if (outcome.isNewSession) known.waiting.discard();
    // Process waiting messages first, so that older values do not overwrite newer values.
    else if (type.endsWith('BIRTH')) known.waiting.release((earlier) => this.#readEarlier(known, earlier));
    const written = this.#apply(known, outcome, payload.timeMs);
    if (!type.endsWith('DATA')) this.#setProblem();
    return { mustWait: outcome.mustWait === true, written };
  }

  #readEarlier(known: Known, waiting: WaitingMessage): Promise<void> | undefined {
    const message = decoded(waiting);
    if (!known.node.canResolve(message)) return undefined;
    return this.#apply(known, known.node.read(message), message.payload.timeMs);
  }

  #request(known: Known, reason: string | undefined): void {
    if (reason === undefined) return;
    known.requestedMs ??= this.#context.clock.monotonicMs();
    known.births.request(reason);
  }

  /** Handles a STATE message with the name of this host application: from another client, or a late will message. */
  #receiveState({ topic, payload, retained }: Message): Promise<void> {
    const state = readState(payload);
    // A retained message is older than the subscription, and the announcement follows.
    if (this.#isStopped || retained || state.isOnline) return DONE;
    const { clock, source } = this.#context;
    const waitMs = this.#announcedMs + ANNOUNCE_MS - clock.monotonicMs();
    const announce = () => {
      this.#cancelAnnouncement = undefined;
      if (!this.#broker.contradictAbsence(state.timeMs)) return;
      this.#announcedMs = clock.monotonicMs();
      const fields = { event: 'sparkplug.host_offline', source: source.name, topic: plain(topic) };
      this.#trouble.report(fields, 'host was announced as offline, announced it as online again');
    };
    if (waitMs <= 0) announce();
    else this.#cancelAnnouncement ??= clock.after(waitMs, announce);
    return DONE;
  }

  /** Names the first point whose latest reading was not a number. */
  #unreadableText(): string | undefined {
    const [first] = this.#unreadable;
    if (first === undefined) return undefined;
    const [{ name, spec }, problem] = first;
    const more = this.#unreadable.size > 1 ? ` and ${this.#unreadable.size - 1} more` : '';
    return `${name} (${spec.metric})${more}: ${problem}`;
  }

  #reportNodes(group: string, node: string): void {
    const fields = { source: this.#context.source.name, group: plain(group), node: plain(node) };
    this.#trouble.report(
      { event: 'sparkplug.nodes_limit', ...fields },
      'messages of an edge node discarded: too many nodes',
    );
  }

  #reportDiscarded(node: string, messages: number): void {
    const fields = { event: 'sparkplug.discarded', source: this.#context.source.name, node: plain(node), messages };
    this.#trouble.report(fields, 'messages discarded: no birth certificate defines their aliases', node);
  }

  /** Resolves when the values are on disk. */
  #apply(known: Known, { values, died, rebirth, unknown }: NodeOutcome, timeMs: number | undefined): Promise<void> {
    const readings: Reading[] = [];
    for (const { path, metric, born } of values) {
      for (const point of known.points.get(path) ?? []) {
        const reading = readingOf(metric, born, point.map !== undefined);
        const time = metric.timeMs ?? timeMs;
        if ('problem' in reading) {
          const { problem } = reading;
          readings.push(metric.isNull ? { point, failure: problem } : { point, problem });
          if (!metric.isNull) this.#unreadable.set(point, problem);
          continue;
        }
        const { raw } = reading;
        this.#unreadable.delete(point);
        const own = time !== undefined && isValidTime(time) ? time : undefined;
        readings.push({ point, raw, timeMs: own, quality: metric.quality });
      }
    }
    if (died !== undefined) {
      for (const [metric, points] of this.#points) {
        if (!metric.startsWith(`${known.name}/${died}`)) continue;
        for (const point of points) {
          this.#unreadable.delete(point);
          readings.push({ point, failure: undefined });
        }
      }
    }
    this.#context.status.errors += unknown;
    this.#request(known, rebirth);
    return this.#context.gate.write(readings);
  }

  write({ spec }: Point, raw: number, ...rest: [guard: () => void, signal: AbortSignal]): Promise<void> {
    const nowMs = Math.round(this.#context.clock.wallMs());
    const { metric } = spec as SparkplugValue;
    return writeMetric(this.#nodes.values(), { broker: this.#broker, metric, raw, nowMs }, ...rest);
  }

  #requestBirth(known: Known, reason: string): void {
    const { clock, log, source } = this.#context;
    if (!source.spec.rebirth || this.#isStopped) return;
    const fields = { source: source.name, node: plain(known.name), reason };
    log.info({ event: 'sparkplug.rebirth', ...fields }, 'birth certificate requested');
    this.#broker
      .publish(commandTopic(known.group, known.name), rebirthCommand(Math.round(clock.wallMs())))
      .catch((error: unknown) => {
        // The request is repeated with the next message or connection.
        known.births.cancel();
        log.debug(
          { event: 'sparkplug.rebirth_failed', ...fields, code: codeOf(error) },
          'failed to request birth certificate',
        );
      });
  }
}

function decoded({ payload, ...message }: WaitingMessage): NodeMessage {
  return { ...message, payload: decodePayload(payload) };
}

function waitingText(unborn: readonly Known[]): string | undefined {
  const names = unborn.slice(0, 3).map(({ name }) => name);
  return names.length === 0 ? undefined : `waiting for the birth certificate of ${names.join(', ')}`;
}

function rightsHint({ group, name }: Known): string {
  return plain(`Check that the node is running, and allow this client to publish to ${commandTopic(group, name)}.`);
}
