/** Reads from one server, and answers the questions of the agent. */
import { once } from 'node:events';
import type { Clock } from '../base/clock.ts';
import { problemOf } from './problems.ts';
import type { AnswerLine, Endpoint, MessageId, Question, ReaderLine, ReaderTask } from './protocol.ts';
import { browse, itemsWithHistory, readHistory, readItem, writeItem } from './requests.ts';
import { inspect, MAX_MESSAGE_BYTES, OversizedMessage, Session } from './session.ts';
import { Progress, Subscription } from './subscription.ts';

const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 30_000;
/** Minimum duration of a connection after which the pause is reset. */
const STABLE_MS = 5_000;

type Answer = AnswerLine extends infer Line ? (Line extends AnswerLine ? Omit<Line, 'answer'> : never) : never;

export class Reader {
  readonly #send: (line: ReaderLine) => void;
  readonly #clock: Clock;
  readonly #end = new AbortController();
  #running: Promise<void> | undefined;
  #deletesSubscription = false;
  #endpoint: Endpoint | undefined;
  #progress: Progress | undefined;
  #session: Session | undefined;

  constructor(send: (line: ReaderLine) => void, clock: Clock) {
    this.#send = send;
    this.#clock = clock;
  }

  start(task: ReaderTask): void {
    this.#endpoint = task.endpoint;
    this.#progress = new Progress(task);
    this.#running = this.#run(task, this.#progress);
  }

  /** Ends the session. `deletesSubscription`: the agent no longer needs the subscription on the server. */
  async stop(deletesSubscription: boolean): Promise<void> {
    this.#deletesSubscription = deletesSubscription;
    this.#end.abort();
    await this.#running;
  }

  /** Records that everything up to this message is on disk. */
  stored(message: MessageId): void {
    this.#progress?.stored(message);
  }

  async answer(ask: number, question: Question): Promise<void> {
    const send = (answer: Answer) => this.#send({ answer: ask, ...answer });
    try {
      if ('inspect' in question) send({ inspected: await inspect(question.inspect) });
      else if ('scan' in question) await this.#scan(question.scan, question.below, send);
      else if (this.#session === undefined) throw new Error('server is not connected');
      else if ('read' in question) send({ reading: await readItem(this.#session, question.read) });
      else if ('history' in question) send({ page: await readHistory(this.#session, question.history) });
      else await writeItem(this.#session, question.write.node, question.write.raw, this.#clock);
      send({ end: true });
    } catch (error) {
      send({ failed: problemOf(error, serverOf(question) ?? this.#endpoint ?? {}) });
    }
  }

  async #scan(endpoint: Endpoint, below: readonly string[], send: (answer: Answer) => void): Promise<void> {
    const session = await Session.open(endpoint);
    try {
      for await (const step of browse(session, below, this.#clock)) send(step);
    } finally {
      await session.close(true);
    }
  }

  /** Each connection takes over the subscription of the previous connection. */
  async #run(task: ReaderTask, progress: Progress): Promise<void> {
    const { signal } = this.#end;
    let pauseMs = FIRST_PAUSE_MS;
    while (!signal.aborted) {
      const openedMs = this.#clock.monotonicMs();
      await this.#connect(task, progress);
      if (this.#clock.monotonicMs() - openedMs > STABLE_MS) pauseMs = FIRST_PAUSE_MS;
      await this.#clock.sleep(pauseMs, signal).catch(() => {});
      pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS);
    }
  }

  /** Runs one session. */
  async #connect(task: ReaderTask, progress: Progress): Promise<void> {
    const { signal } = this.#end;
    const ended = new AbortController();
    const stopped = once(signal, 'abort', { signal: ended.signal });
    stopped.catch(() => {});
    let session: Session | undefined;
    try {
      session = await Session.open(task.endpoint);
      this.#session = session;
      signal.throwIfAborted();
      await Promise.race([this.#serve(session, task, progress, ended.signal), session.broken, stopped]);
    } catch (error) {
      if (error instanceof OversizedMessage) {
        // The server would send the same message again after a transfer.
        progress.kept = undefined;
        this.#send({ oversized: MAX_MESSAGE_BYTES });
      }
      if (!signal.aborted) this.#send({ connected: false, ...problemOf(error, task.endpoint) });
    } finally {
      ended.abort();
      this.#session = undefined;
      const isKept = progress.kept !== undefined && progress.canTransfer;
      await session?.close(this.#deletesSubscription || !isKept);
    }
  }

  async #serve(session: Session, { items }: ReaderTask, progress: Progress, signal: AbortSignal): Promise<void> {
    const { certificateEndsMs } = session;
    const subscription = new Subscription({ session, items, progress, send: this.#send, clock: this.#clock, signal });
    await subscription.open();
    this.#send({ connected: true, ...(certificateEndsMs === undefined ? {} : { certificateEndsMs }) });
    // Live values are reported without waiting for the history check.
    itemsWithHistory(session, items).then(
      (history) => !signal.aborted && this.#send({ history }),
      () => {},
    );
    await subscription.run();
  }
}

/** Returns the server of a question that opens a connection of its own. */
function serverOf(question: Question): Partial<Endpoint> | undefined {
  if ('scan' in question) return question.scan;
  return 'inspect' in question ? question.inspect : undefined;
}
