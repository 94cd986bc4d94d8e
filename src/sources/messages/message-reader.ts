import { countText } from '../../base/amounts.ts';
import { messageOf, TagferryError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import type { Availability } from '../../broker/broker-spec.ts';
import type { TopicGrammar } from '../../broker/topic-filters.ts';
import { quote } from '../intake/address-book.ts';
import type { Reading } from '../intake/gate.ts';
import { parseJson, unpadded } from '../intake/text-parsers.ts';
import { TroubleLog, USABLE_MS } from '../intake/trouble-log.ts';
import type { Point } from '../points.ts';
import type { SourceContext } from '../source-kind.ts';
import { type MessageTimes, type MessageValue, readMessage, textOf } from './payload.ts';
import { TopicRouter } from './topic-plan.ts';

type Context = SourceContext<{ zone?: string; availability?: Availability }, MessageValue>;

/** A value whose device announces its availability on a topic. Texts are in lower case. */
interface AvailabilityRule {
  topic: string;
  point: Point<MessageValue>;
  available: string;
  unavailable: string;
}

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
  readonly #router: TopicRouter;
  readonly #trouble: TroubleLog;
  /** By availability topic. */
  readonly #rules: ReadonlyMap<string, readonly AvailabilityRule[]>;
  /** Topics whose latest message announces an unavailable device, and the affected values. */
  readonly #unavailable = new Map<string, readonly Point<MessageValue>[]>();

  constructor(context: Context, grammar: TopicGrammar) {
    const { points, source, log, clock } = context;
    this.#context = context;
    this.#grammar = grammar;
    this.#router = new TopicRouter(points, grammar);
    this.#trouble = new TroubleLog(log, clock, `${grammar.name}s`);
    const rules = points.flatMap((point) => {
      const {
        topic,
        available = 'online',
        unavailable = 'offline',
      } = {
        ...source.spec.availability,
        ...point.spec.availability,
      };
      return topic === undefined ? [] : [{ topic, point, available, unavailable }];
    });
    this.#rules = Map.groupBy(rules, ({ topic }) => topic);
  }

  /** Topics on which devices announce that they are offline. */
  get availabilityPlaces(): readonly { spec: { topic: string; template: string } }[] {
    return [...this.#rules.keys()].map((topic) => ({ spec: { topic, template: topic } }));
  }

  /** Problem of the source while devices are unavailable. */
  get unavailable(): string | undefined {
    const [first] = this.#unavailable.keys();
    if (first === undefined) return undefined;
    const { size } = this.#unavailable;
    const devices = size === 1 ? 'device unavailable' : `${countText(size)} devices unavailable, for example`;
    return `${devices} according to ${first.length > SHOWN_TOPIC ? `${first.slice(0, SHOWN_TOPIC)}…` : first}`;
  }

  /**
   * Handles a message on an availability topic. Resolves when the latest values of an unavailable device are on disk
   * with the status bad. Returns `undefined` for other topics. Ignores empty messages, which only remove a retained
   * message.
   */
  writeAvailability(topic: string, payload: Uint8Array): Promise<void> | undefined {
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

  /** Returns the values in the messages of a topic. */
  pointsOf(topic: string): readonly Point<MessageValue>[] {
    return this.#router.pointsOf(topic);
  }

  /** Writes the values of a message. Resolves when they are on disk. */
  write(
    topic: string,
    message: Parameters<typeof readMessage>[0],
    points: readonly Point<MessageValue>[],
    times?: Partial<MessageTimes>,
  ): Promise<void> {
    const { gate, source, clock } = this.#context;
    const { kind, spec } = source;
    const read = readMessage(message, points, { arrivalMs: clock.wallMs(), zone: spec.zone, ...times });
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
    if (times?.isPast === true && this.#unavailable.size > 0) {
      return gate.write(readings.map((reading) => this.#withAvailability(reading)));
    }
    return gate.write(readings);
  }

  /**
   * Calls `read`, which returns a promise of the gate. If `read` throws, the message is reported, and acknowledged when
   * its earlier values are on disk, because the next delivery would fail in the same way.
   */
  handle(topic: string, read: () => Promise<void>): Promise<void> {
    try {
      return read();
    } catch (error) {
      if (error instanceof TagferryError) return Promise.reject(error);
      this.#reportUnreadable(topic, messageOf(error));
      return this.#context.gate.write([]);
    }
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

/** Returns the text of a message, or of its member `state`, in lower case. Returns other JSON as it was sent. */
function wordIn(payload: Uint8Array): string {
  const text = textOf(payload.subarray(0, MAX_ANNOUNCEMENT_BYTES));
  const json = parseJson(text);
  const word = typeof json === 'object' ? (json as { state?: unknown } | null)?.state : json;
  return (word === undefined || typeof word === 'object' ? text : unpadded(String(word))).toLowerCase();
}
