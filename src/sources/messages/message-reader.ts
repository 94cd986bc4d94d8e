import { plain } from '../../base/foreign-text.ts';
import type { TopicGrammar } from '../../broker/topic-filters.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import type { Point } from '../points.ts';
import type { SourceContext } from '../source-kind.ts';
import { type MessageTimes, type MessageValue, readMessage } from './payload.ts';
import { TopicRouter } from './topic-plan.ts';

/**
 * Reads the messages of one source. An unreadable message is logged, counted and acknowledged, because the broker would
 * send the same bytes again.
 */
export class MessageReader {
  readonly #context: SourceContext<{ zone?: string }, MessageValue>;
  readonly #grammar: TopicGrammar;
  readonly #router: TopicRouter;
  readonly #trouble: TroubleLog;

  constructor(context: SourceContext<{ zone?: string }, MessageValue>, grammar: TopicGrammar) {
    this.#context = context;
    this.#grammar = grammar;
    this.#router = new TopicRouter(context.points, grammar);
    this.#trouble = new TroubleLog(context.log, context.clock, `${grammar.name}s`);
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
    const { gate, status, source, clock } = this.#context;
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
      this.#trouble.recovered(`${kind}.unreadable`, { [name]: topic }, words, topic);
    } else {
      status.errors++;
      status.recordRejected(`${plain(topic)}: ${problem}`);
      const fields = { source: source.name, [name]: topic, error: problem };
      this.#trouble.report({ event: `${kind}.unreadable`, ...fields }, 'message without a value', topic);
    }
    return gate.write(readings);
  }
}
