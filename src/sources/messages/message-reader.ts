import { countText } from '../../base/amounts.ts';
import { messageOf, TagferryError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { READ_ACCESS } from '../../broker/broker-error.ts';
import type { Availability } from '../../broker/broker-spec.ts';
import { covers, hasWildcard, type TopicGrammar } from '../../broker/topic-filters.ts';
import { quote } from '../intake/address-book.ts';
import type { Reading } from '../intake/gate.ts';
import { parseJson } from '../intake/text-parsers.ts';
import { TroubleLog, USABLE_MS } from '../intake/trouble-log.ts';
import type { Point } from '../points.ts';
import type { SourceContext } from '../source-kind.ts';
import { canonicalWord } from './message-members.ts';
import { type MessageTimes, type MessageValue, readMessage, textOf } from './payload.ts';
import { deniedText } from './topic-plan.ts';

type Context = SourceContext<{ zone?: string; availability?: Availability }, MessageValue>;

/** A value whose device announces its availability on a topic. Texts are in lower case. */
interface AvailabilityRule {
  topic: string;
  point: Point<MessageValue>;
  available: string;
  unavailable: string;
}

type Read = Parameters<typeof readMessage>[0];
type Times = Partial<MessageTimes>;

const MAX_ANNOUNCEMENT_BYTES = 1_024;
const SHOWN_TOPIC = 100;

/**
 * Reads the messages of one source. An unreadable message is logged, counted and acknowledged, because the broker would
 * send the same bytes again.
 *
 * On availability topics, brokers, gateways and devices announce that a device is offline, often through a will
 * message. The latest values of the device are then sent with the status bad.
 */
export class MessageReader {
  readonly #context: Context;
  readonly #grammar: TopicGrammar;
  /** Values by configured topic, so that thousands of topics require only one lookup. Includes availability topics. */
  readonly #byTopic: ReadonlyMap<string, readonly Point<MessageValue>[]>;
  readonly #wild: readonly Point<MessageValue>[];
  readonly #trouble: TroubleLog;
  /** By availability topic. */
  readonly #rules: ReadonlyMap<string, readonly AvailabilityRule[]>;
  /** Topics whose latest message announces an unavailable device, and the affected values. */
  readonly #unavailable = new Map<string, readonly Point<MessageValue>[]>();
  /** Filters that the broker rejects. */
  readonly #denied = new Set<string>();

  constructor(context: Context, grammar: TopicGrammar) {
    const { points, source, log, clock } = context;
    this.#context = context;
    this.#grammar = grammar;
    this.#trouble = new TroubleLog(log, clock, `${grammar.name}s`);
    const rules = points.flatMap((point) => {
      const availability = { ...source.spec.availability, ...point.spec.availability };
      const { topic, available = 'online', unavailable = 'offline' } = availability;
      return topic === undefined ? [] : [{ topic, point, available, unavailable }];
    });
    this.#rules = Map.groupBy(rules, ({ topic }) => topic);
    const byTopic = Map.groupBy(points, ({ spec }) => spec.topic);
    for (const topic of this.#rules.keys()) if (!byTopic.has(topic)) byTopic.set(topic, []);
    this.#byTopic = byTopic;
    this.#wild = points.filter(({ spec }) => hasWildcard(spec.topic, grammar));
  }

  /** Topics on which devices announce that they are offline. */
  get availabilityTopics(): readonly string[] {
    return [...this.#rules.keys()];
  }

  /** Returns the values in the messages of a topic, or `undefined` if the source does not use the topic. */
  pointsOf(topic: string): readonly Point<MessageValue>[] | undefined {
    const exact = this.#byTopic.get(topic);
    if (this.#wild.length === 0) return exact;
    const wild = this.#wild.filter(({ spec }) => covers(spec.topic, topic, this.#grammar));
    return wild.length === 0 ? exact : [...(exact ?? []), ...wild];
  }

  /** Records whether the broker accepts a filter. A rejected filter is reported as a problem of the source. */
  setPermitted(filter: string, isPermitted: boolean): void {
    if (isPermitted) this.#denied.delete(filter);
    else this.#denied.add(filter);
    this.#showProblem();
  }

  #showProblem(): void {
    const { status, isTest } = this.#context;
    // A test reports the problems of each value.
    if (isTest) return;
    const denied = deniedText(this.#denied);
    status.problem = denied ?? this.#unavailableText();
    status.hint = denied && READ_ACCESS;
  }

  #unavailableText(): string | undefined {
    const [first] = this.#unavailable.keys();
    if (first === undefined) return undefined;
    const { size } = this.#unavailable;
    const devices = size === 1 ? 'device unavailable' : `${countText(size)} devices unavailable, for example`;
    return `${devices} according to ${first.length > SHOWN_TOPIC ? `${first.slice(0, SHOWN_TOPIC)}…` : first}`;
  }

  /**
   * Writes the values in a message, and the latest values of devices that the message announces as unavailable.
   * Resolves when these values are on disk. An unreadable message is reported, and acknowledged when earlier values are
   * on disk, because the next delivery would fail in the same way.
   */
  write(topic: string, message: Read, points: readonly Point<MessageValue>[], times: Times = {}): Promise<void> {
    try {
      const written = this.#writeAvailability(topic, message.payload);
      if (written !== undefined) this.#showProblem();
      return points.length === 0 ? (written ?? Promise.resolve()) : this.#writeValues(topic, message, points, times);
    } catch (error) {
      if (error instanceof TagferryError) return Promise.reject(error);
      this.#reportUnreadable(topic, messageOf(error));
      return this.#context.gate.write([]);
    }
  }

  /**
   * Handles a message on an availability topic. Resolves when the latest values of an unavailable device are on disk
   * with the status bad. Returns `undefined` for other topics. Ignores empty messages, which only remove a retained
   * message.
   */
  #writeAvailability(topic: string, payload: Uint8Array): Promise<void> | undefined {
    const { gate, source } = this.#context;
    const rules = this.#rules.get(topic);
    if (rules === undefined || payload.length === 0) return rules && gate.write([]);
    const word = wordIn(payload);
    const points = rules.filter(({ unavailable }) => unavailable === word).map(({ point }) => point);
    const { kind } = source;
    const fields = { source: source.name, [this.#grammar.name]: topic };
    if (points.length > 0) {
      const isRepeated = this.#unavailable.has(topic);
      this.#unavailable.set(topic, points);
      if (!isRepeated) this.#trouble.report({ event: `${kind}.unavailable`, ...fields }, 'device unavailable', topic);
    } else if (rules.some(({ available }) => available === word)) {
      this.#unavailable.delete(topic);
      this.#trouble.recovered(`${kind}.unavailable`, fields, 'device available again', topic);
    } else {
      const [{ available, unavailable }] = rules as [AvailabilityRule];
      this.#reportUnreadable(topic, `${quote(word)} is neither ${quote(available)} nor ${quote(unavailable)}`);
    }
    const failure = `device unavailable according to ${topic}`;
    return gate.write(points.map((point) => ({ point, failure, isUnavailable: true, count: 0 })));
  }

  #writeValues(topic: string, message: Read, points: readonly Point<MessageValue>[], times: Times): Promise<void> {
    const { gate, source, clock } = this.#context;
    const { kind, spec } = source;
    const { arrivalMs = clock.wallMs(), timeOf, isPast = false } = times;
    const read = readMessage(message, points, { arrivalMs, timeOf, isPast, zone: spec.zone });
    const { readings, problem, zoneProblem } = read;
    if (zoneProblem !== undefined) gate.reportMissingZone(zoneProblem);
    if (problem === undefined) {
      const words = `messages on a ${this.#grammar.name} contain values again`;
      const fields = { [this.#grammar.name]: topic };
      this.#trouble.recovered(`${kind}.unreadable`, fields, words, topic, USABLE_MS);
    } else if (!readings.every((reading) => this.#isOmitted(reading))) {
      this.#reportUnreadable(topic, problem);
    }
    // A message that can be older than its arrival does not show that the device is available again.
    if (isPast && this.#unavailable.size > 0) {
      return gate.write(readings.map((reading) => this.#withAvailability(reading)));
    }
    return gate.write(readings);
  }

  #reportUnreadable(topic: string, problem: string): void {
    const { status, source } = this.#context;
    status.errors++;
    status.recordRejected(`${plain(topic)}: ${plain(problem)}`);
    const { kind } = source;
    const fields = { source: source.name, [this.#grammar.name]: topic, error: problem };
    this.#trouble.report({ event: `${kind}.unreadable`, ...fields }, 'message without a value', topic);
  }

  /** Whether a message omits a value that an earlier message contained, because the device sends only changes. */
  #isOmitted(reading: Reading): boolean {
    return 'absent' in reading && this.#context.status.latestOf(reading.point.series) !== undefined;
  }

  #withAvailability(reading: Reading): Reading {
    const isBad = [...this.#unavailable.values()].some((points) =>
      points.includes(reading.point as Point<MessageValue>),
    );
    return isBad && 'raw' in reading ? { ...reading, quality: 'bad' } : reading;
  }
}

/** Returns the text of a message, or of its member `state`. Returns other JSON as it was sent, in lower case. */
function wordIn(payload: Uint8Array): string {
  const text = textOf(payload.subarray(0, MAX_ANNOUNCEMENT_BYTES));
  const json = parseJson(text);
  const word = typeof json === 'object' ? (json as { state?: unknown } | null)?.state : json;
  return canonicalWord(word === undefined || typeof word === 'object' ? text : String(word));
}
