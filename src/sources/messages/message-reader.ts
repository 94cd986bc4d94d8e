import { messageOf, TagferryError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import type { Availability } from '../../broker/broker-spec.ts';
import type { TopicGrammar } from '../../broker/topic-filters.ts';
import type { Reading } from '../intake/gate.ts';
import { TroubleLog, USABLE_MS } from '../intake/trouble-log.ts';
import type { Point } from '../points.ts';
import type { SourceContext } from '../source-kind.ts';
import { DeviceAvailability } from './availability.ts';
import { type MessageTimes, type MessageValue, readMessage } from './payload.ts';
import { TopicRouter } from './topic-plan.ts';

type Context = SourceContext<{ zone?: string; availability?: Availability }, MessageValue>;

/**
 * Reads the messages of one source. An unreadable message is logged, counted and acknowledged, because the broker would
 * send the same bytes again.
 */
export class MessageReader {
  readonly #context: Context;
  readonly #grammar: TopicGrammar;
  readonly #router: TopicRouter;
  readonly #trouble: TroubleLog;
  readonly #availability: DeviceAvailability;

  constructor(context: Context, grammar: TopicGrammar) {
    this.#context = context;
    this.#grammar = grammar;
    this.#router = new TopicRouter(context.points, grammar);
    this.#trouble = new TroubleLog(context.log, context.clock, `${grammar.name}s`);
    this.#availability = new DeviceAvailability(context.points, context.source.spec.availability);
  }

  /** Topics on which devices announce that they are offline. */
  get availabilityPlaces(): readonly { spec: { topic: string; template: string } }[] {
    return this.#availability.topics.map((topic) => ({ spec: { topic, template: topic } }));
  }

  /** Problem of the source while devices are unavailable. */
  get unavailable(): string | undefined {
    return this.#availability.problem;
  }

  /**
   * Handles a message on an availability topic. Resolves when the latest values of an unavailable device are on disk with
   * the status bad. Returns `undefined` for other topics.
   */
  writeAvailability(topic: string, payload: Uint8Array): Promise<void> | undefined {
    const { gate, source } = this.#context;
    const { kind } = source;
    const read = this.#availability.read(topic, payload);
    if (read === undefined) return undefined;
    const { unavailable, isRepeated, problem } = read;
    const fields = { source: source.name, [this.#grammar.name]: topic };
    const failure = `device unavailable according to ${topic}`;
    if (problem !== undefined) this.#reportUnreadable(topic, problem);
    else if (unavailable.length > 0) {
      if (!isRepeated) this.#trouble.report({ event: `${kind}.unavailable`, ...fields }, 'device unavailable', topic);
    } else {
      this.#trouble.recovered(`${kind}.unavailable`, fields, 'device available again', topic);
    }
    return gate.write(unavailable.map((point) => ({ point, failure, isUnavailable: true, count: 0 })));
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
    const { zone } = source.spec;
    const { readings, problem, zoneProblem } = readMessage(message, points, {
      arrivalMs: clock.wallMs(),
      zone,
      ...times,
    });
    if (zoneProblem !== undefined) gate.reportMissingZone(zoneProblem);
    const { kind } = source;
    const { name } = this.#grammar;
    if (problem === undefined) {
      const words = `messages on a ${name} contain values again`;
      this.#trouble.recovered(`${kind}.unreadable`, { [name]: topic }, words, topic, USABLE_MS);
    } else if (!readings.every((reading) => this.#isOmitted(reading))) {
      this.#reportUnreadable(topic, problem);
    }
    // A message that can be older than its arrival does not show that the device is available again.
    if (times?.isPast === true && this.#availability.problem !== undefined) {
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
      if (error instanceof TagferryError) throw error;
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
    const isBad = 'raw' in reading && this.#availability.isUnavailable(reading.point as Point<MessageValue>);
    return isBad ? { ...reading, quality: 'bad' } : reading;
  }
}
