import { codeOf, messageOf, SourceStopped, TagferryError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import type { Broker } from '../../broker/broker.ts';
import type { Message } from '../../broker/connection.ts';
import type { TestedValue } from '../arrivals.ts';
import { isTimeTaken } from '../draft.ts';
import type { Quality } from '../gate.ts';
import type { Point } from '../points.ts';
import type { RunningSource, ScanStep, SourceContext, SourceState } from '../source-kind.ts';
import { listenTo } from '../source-test.ts';
import { TroubleLog } from '../trouble-log.ts';
import { EdgeNode, type NodeMessage, type NodeOutcome } from './edge-node.ts';
import { HeldMessages } from './held-messages.ts';
import { NodeNotes } from './node-notes.ts';
import { decodePayload, numberOf } from './payload.ts';
import { rebirthCommand } from './rebirth-command.ts';
import { scanSparkplug } from './scan-sparkplug.ts';
import { nodeOf, type SparkplugSpec, type SparkplugValue } from './sparkplug-spec.ts';
import { commandTopic, filterOf, readTopic } from './topics.ts';

type Context = SourceContext<SparkplugSpec, SparkplugValue>;

const MAX_PAYLOAD_BYTES = 1024 * 1024;
/** Edge nodes of one source. Nodes of different groups may have the same name. */
const MAX_NODES = 1_000;
/** Minimum interval between two requests for a node's birth certificate. */
const REBIRTH_MS = 60_000;
/** The same while messages are held. */
const HELD_REBIRTH_MS = 5_000;
/** How often it is looked whether the connection is a new one. */
const LOOK_MS = 500;
const DONE = Promise.resolve();

interface Reported {
  raw: number;
  timeMs: number | undefined;
  quality: Quality | undefined;
}

interface Known {
  group: string;
  name: string;
  node: EdgeNode;
  held: HeldMessages;
  askedMs: number;
}

/**
 * Edge nodes of a Sparkplug B broker, listened to as a host application does. A message is confirmed when its values are on disk;
 * most come with QoS 0, so what is missed is known by its sequence number, and the node is asked for all of its values anew.
 */
export class SparkplugSource implements RunningSource {
  readonly #context: Context;
  readonly #broker: Broker;
  readonly #trouble: TroubleLog;
  /** By `node/path`. */
  readonly #points: ReadonlyMap<string, readonly Point<SparkplugValue>[]>;
  readonly #nodes = new Map<string, Known>();
  readonly #notes: NodeNotes;
  /** What each value is: nodes tell what changes, so the last word counts as long as none was missed. */
  readonly #reported = new Map<Point<SparkplugValue>, Reported>();
  #leave: (() => void)[] = [];
  #cancelLook: () => void = () => {};
  #connectedSinceMs: number | undefined;
  #isStopped = false;
  #errors = 0;

  /** `notes`: what an earlier process knew of the nodes. Throws where there is no such broker. */
  constructor(context: Context, notes: ReadonlyMap<string, string>) {
    const { source, brokers, points, log, clock } = context;
    const broker = brokers.get(source.name);
    if (!broker) throw new TagferryError(`there is no broker ${source.name}`, { code: 'broker.unknown' });
    this.#context = context;
    this.#broker = broker;
    this.#points = Map.groupBy(points, ({ spec }) => spec.metric);
    this.#trouble = new TroubleLog(log, clock);
    this.#notes = new NodeNotes(source.name, notes);
    const names = new Set([...this.#points.keys()].map(nodeOf));
    for (const key of this.#notes.nodes) {
      const [group = '', name = ''] = key.split('/');
      if (names.has(name)) this.#notes.restore(key, this.#nodeOf(group, name)!.node);
    }
  }

  start(): void {
    const { qos, group } = this.#context.source.spec;
    const names = new Set([...this.#points.keys()].map(nodeOf));
    const stalled = () => this.#context.gate.hurry();
    const handler = (message: Message) => this.#take(message);
    for (const name of names) {
      this.#leave.push(this.#broker.subscribe(filterOf(group, name), handler, { qos, stalled }));
      // Of a group that is named, the node can be asked before it says anything.
      if (group !== undefined) this.#nodeOf(group, name);
    }
    this.#look();
  }

  async stop(isGone = false): Promise<void> {
    this.#isStopped = true;
    this.#cancelLook();
    for (const { held } of this.#nodes.values()) held.reject(new SourceStopped());
    if (isGone) this.leave();
    this.#context.gate.hurry();
  }

  leave(): void {
    for (const leave of this.#leave.splice(0)) leave();
  }

  state(): SourceState {
    const { connected, sinceMs, problem, failures, dropped, discarded, window, certificateEndsMs } =
      this.#broker.state();
    const stale = [...this.#nodes.values()].filter(({ node }) => node.isStale).map(({ name }) => name);
    const waits =
      stale.length > 0 ? `the birth certificate of ${stale.slice(0, 3).join(', ')} is waited for` : undefined;
    const words = problem ?? waits;
    return {
      connected,
      sinceMs,
      ...(words === undefined ? {} : { problem: plain(words) }),
      errors: this.#errors + failures + dropped + discarded,
      window,
      pollsLate: 0,
      ...(certificateEndsMs === undefined ? {} : { certificateEndsMs }),
    };
  }

  /** What the nodes reported last; those of which something was missed are asked, and what comes is waited for. */
  async test(signal: AbortSignal, waitMs: number): Promise<TestedValue[]> {
    const { points, gate, clock } = this.#context;
    const isFresh = (name: string) => [...this.#nodes.values()].some((one) => one.name === name && !one.node.isStale);
    const wanting = points.filter((point) => !this.#reported.has(point) || !isFresh(nodeOf(point.spec.metric)));
    const names = new Set(wanting.map(({ spec }) => nodeOf(spec.metric)));
    for (const known of this.#nodes.values()) if (names.has(known.name)) this.#askForBirth(known, 'it is looked at');
    const heard = await listenTo(gate, wanting, clock, waitMs, signal);
    const other = new Map(heard.map((tested) => [tested.point, tested]));
    return points.map((point) => other.get(point) ?? testedOf(point, this.#reported.get(point)));
  }

  /** By a client of its own: the session is left alone. */
  scan(what: readonly string[], waitMs: number, signal: AbortSignal): AsyncGenerator<ScanStep> {
    const { source, brokers, clock } = this.#context;
    const { name, spec } = source;
    return scanSparkplug({ broker: brokers.beside(name, spec), spec, what, waitMs, clock, signal });
  }

  /** Every node is asked for its birth certificate on a new connection: messages may have been missed. */
  #look(): void {
    this.#meet();
    this.#cancelLook = this.#context.clock.after(LOOK_MS, () => this.#look());
  }

  /** Before the first message of a connection is looked at, or soon after it where none comes. */
  #meet(): void {
    const { connected, sinceMs } = this.#broker.state();
    if (!connected || sinceMs === this.#connectedSinceMs) return;
    this.#connectedSinceMs = sinceMs;
    for (const known of this.#nodes.values()) {
      known.node.reconnected();
      known.askedMs = Number.NEGATIVE_INFINITY;
      this.#askForBirth(known, 'the connection is new');
    }
  }

  /** `undefined` if the bound of nodes is reached. */
  #nodeOf(group: string, name: string): Known | undefined {
    const key = `${group}/${name}`;
    const known = this.#nodes.get(key);
    if (known) return known;
    if (this.#nodes.size >= MAX_NODES) return undefined;
    const held = new HeldMessages({
      clock: this.#context.clock,
      onDiscarded: (messages) => {
        this.#errors += messages;
        this.#reportDiscarded(name, messages);
      },
    });
    const made = { group, name, node: new EdgeNode(this.#pathsOf(name)), held, askedMs: Number.NEGATIVE_INFINITY };
    this.#nodes.set(key, made);
    return made;
  }

  /** Throws what is to be tried again. */
  #take({ topic, payload, qos }: Message): Promise<void> {
    const { gate } = this.#context;
    if (this.#isStopped) throw new SourceStopped();
    gate.demandRoom();
    const said = readTopic(topic);
    if (said === undefined) return DONE;
    this.#meet();
    const known = this.#nodeOf(said.group, said.node);
    if (known === undefined) {
      this.#errors++;
      this.#reportNodes(said.group, said.node);
      return DONE;
    }
    try {
      if (payload.length > MAX_PAYLOAD_BYTES) throw new RangeError('it is larger than 1 MiB');
      const message = { ...said, payload: decodePayload(payload), isKept: qos > 0 };
      this.#trouble.over('sparkplug.unreadable', { topic }, 'messages of a topic can be read again', topic);
      if (mustWait(known, message)) return this.#hold(known, message);
      this.#read(known, message);
    } catch (error) {
      this.#errors++;
      known.node.miss();
      const fields = { source: this.#context.source.name, topic: plain(topic), error: messageOf(error) };
      this.#trouble.again({ event: 'sparkplug.unreadable', ...fields }, 'a message cannot be read', topic);
      this.#askForBirth(known, 'a message could not be read');
    }
    return gate.committed();
  }

  #hold(known: Known, message: NodeMessage): Promise<void> {
    known.node.miss();
    const stored = known.held.hold(message);
    this.#askForBirth(known, 'messages wait for their aliases', HELD_REBIRTH_MS);
    return stored;
  }

  #read(known: Known, message: NodeMessage): void {
    const outcome = known.node.take(message);
    if (outcome.isOtherLife || outcome.died === '') known.held.discard();
    // Older values first: the latest ones remain the latest.
    else if (message.type.endsWith('BIRTH')) known.held.release((earlier) => this.#readEarlier(known, earlier));
    this.#carryOut(known, outcome, message.payload.timeMs);
    const key = `${known.group}/${known.name}`;
    if (message.type.endsWith('BIRTH')) this.#notes.born(key);
    if (message.isKept) this.#context.gate.note(...this.#notes.after(key, known.node));
    if (outcome.unknown > 0 && message.isKept) this.#reportDiscarded(known.name, 1);
  }

  #pathsOf(node: string): string[] {
    return [...this.#points.keys()]
      .filter((metric) => nodeOf(metric) === node)
      .map((metric) => metric.slice(node.length + 1));
  }

  #reportNodes(group: string, node: string): void {
    const fields = { source: this.#context.source.name, group: plain(group), node: plain(node) };
    this.#trouble.again(
      { event: 'sparkplug.nodes_limit', ...fields },
      'messages of an edge node discarded: too many nodes',
    );
  }

  #readEarlier(known: Known, message: NodeMessage): Promise<void> | undefined {
    const outcome = known.node.takeEarlier(message);
    if (outcome === undefined) return undefined;
    this.#carryOut(known, outcome, message.payload.timeMs);
    return this.#context.gate.committed();
  }

  #reportDiscarded(node: string, messages: number): void {
    const fields = { event: 'sparkplug.discarded', source: this.#context.source.name, node: plain(node), messages };
    this.#trouble.again(fields, 'messages discarded: no birth certificate names their aliases', node);
  }

  #carryOut(known: Known, { values, died, rebirth, unknown }: NodeOutcome, timeMs: number | undefined): void {
    const { gate } = this.#context;
    for (const { path, metric, born } of values) {
      for (const point of this.#points.get(`${known.name}/${path}`) ?? []) {
        const number = metric.isNull ? undefined : numberOf(metric, born);
        const time = metric.timeMs ?? timeMs;
        if (number === undefined) {
          this.#reported.delete(point);
          gate.fail(point, metric.isNull ? 'the metric is null' : 'the metric is not a number');
          continue;
        }
        const own = time !== undefined && isTimeTaken(time) ? time : undefined;
        // One of the past says nothing of now.
        if (!metric.isHistorical) this.#reported.set(point, { raw: number, timeMs: own, quality: metric.quality });
        gate.take(point, number, own, metric.quality);
      }
    }
    if (died !== undefined) {
      for (const [metric, points] of this.#points) {
        if (!metric.startsWith(`${known.name}/${died}`)) continue;
        for (const point of points) {
          this.#reported.delete(point);
          gate.fail(point);
        }
      }
    }
    this.#errors += unknown;
    if (rebirth !== undefined) this.#askForBirth(known, rebirth);
  }

  #askForBirth(known: Known, reason: string, intervalMs = REBIRTH_MS): void {
    const { clock, log, source } = this.#context;
    if (!source.spec.rebirth || this.#isStopped) return;
    const nowMs = clock.monotonicMs();
    if (nowMs - known.askedMs < intervalMs) return;
    known.askedMs = nowMs;
    const fields = { source: source.name, node: plain(known.name), reason };
    log.info({ event: 'sparkplug.rebirth', ...fields }, 'a node is asked for its birth certificate');
    this.#broker
      .publish(commandTopic(known.group, known.name), rebirthCommand(Math.round(clock.wallMs())))
      .catch((error: unknown) => {
        // It is asked for with the next message, or the next connection.
        known.askedMs = Number.NEGATIVE_INFINITY;
        log.debug({ event: 'sparkplug.rebirth_failed', ...fields, code: codeOf(error) }, 'a node could not be asked');
      });
  }
}

/** Whether a message waits for the next birth certificate, itself or behind others of its node. */
function mustWait({ node, held }: Known, message: NodeMessage): boolean {
  if (!message.isKept || !message.type.endsWith('DATA') || !held.isOpen) return false;
  return (held.size > 0 && node.isStale) || !node.canResolve(message);
}

/** It may have died meanwhile. */
function testedOf(point: Point<SparkplugValue>, reported: Reported | undefined): TestedValue {
  if (reported === undefined) return { point, problem: 'its node has no value of it any more' };
  const { raw, timeMs, quality } = reported;
  return { point, raw, ...(timeMs === undefined ? {} : { timeMs }), ...(quality === undefined ? {} : { quality }) };
}
