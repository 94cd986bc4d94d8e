/** Reads from one server, one session at a time, and responds to requests of the agent. */
import { type Clock, raced } from '../base/clock.ts';
import { messageOf } from '../base/errors.ts';
import { problemOf } from './problems.ts';
import type { AnswerLine, Endpoint, MessageId, Question, ReaderLine, ReaderTask } from './protocol.ts';
import { readHistory, readItem, scan, writeItem } from './requests.ts';
import { inspect, Session } from './session.ts';
import { Subscription } from './subscription.ts';

/** node-opcua error message for messages that exceed the limits of the transport. */
const TOO_LARGE = /max (chunk count|message size) exceeded/;

export class Reader {
  readonly #send: (line: ReaderLine) => void;
  readonly #clock: Clock;
  readonly #stopping = new AbortController();
  #running = Promise.resolve();
  #endpoint: Partial<Endpoint> = {};
  #session: Session | undefined;
  #subscription: Subscription | undefined;
  /** Whether the server transfers subscriptions; `undefined` before the first session. */
  #canTransfer: boolean | undefined;

  constructor(send: (line: ReaderLine) => void, clock: Clock) {
    this.#send = send;
    this.#clock = clock;
  }

  /** Opens a session when the previous one is closed. */
  open(task: ReaderTask): void {
    this.#running = this.#running.then(() => this.#run(task));
  }

  /** Ends the session. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  /** Records that everything up to this message is on disk. */
  stored(message: MessageId): void {
    this.#subscription?.stored(message);
  }

  async answer(ask: number, question: Question): Promise<void> {
    const send = (part: Omit<AnswerLine, 'answer'>) => this.#send({ answer: ask, ...part });
    let endpoint = this.#endpoint;
    try {
      if ('inspect' in question) {
        endpoint = question.inspect;
        send({ inspected: await inspect(question.inspect) });
      } else if ('scan' in question) {
        endpoint = question.scan;
        for await (const part of scan(question.scan, question.below, this.#clock)) send(part);
      } else if (this.#session === undefined) throw new Error('server is not connected');
      else if ('read' in question) send({ reading: await readItem(this.#session, question.read) });
      else if ('history' in question) send({ page: await readHistory(this.#session, question.history) });
      else await writeItem(this.#session, question.write.node, question.write.raw, this.#clock);
      send({ end: true });
    } catch (error) {
      send({ failed: problemOf(error, endpoint) });
    }
  }

  async #run(task: ReaderTask): Promise<void> {
    const { endpoint } = task;
    this.#endpoint = endpoint;
    // Servers transfer a subscription only to the same user, or to an application with a certificate.
    this.#canTransfer ??= endpoint.policy !== 'None' || endpoint.user !== undefined;
    const ended = new AbortController();
    let failure: unknown;
    try {
      this.#session = await Session.open(endpoint, task.namespaces);
      this.#subscription = new Subscription(this.#session, task, this.#send);
      const serving = this.#serve(this.#subscription, this.#canTransfer, ended.signal);
      await raced(Promise.race([serving, this.#session.broken]), this.#stopping.signal);
    } catch (error) {
      failure = error;
    }
    ended.abort();
    const isOversized = TOO_LARGE.test(messageOf(failure));
    const session = this.#session;
    this.#session = undefined;
    // Sent first, because closing takes up to 15 s without a response, and requests of the agent would fail meanwhile.
    if (!this.#stopping.signal.aborted)
      this.#send({ disconnected: true, isOversized, ...problemOf(failure, endpoint) });
    // The server would send an oversized message again after a transfer.
    await session?.close(task.isTest || isOversized || this.#subscription?.isKept !== true);
    this.#subscription = undefined;
  }

  async #serve(subscription: Subscription, canTransfer: boolean, signal: AbortSignal): Promise<void> {
    await subscription.open(canTransfer);
    this.#canTransfer = subscription.isKept;
    await Promise.all([subscription.receive(), subscription.retryRejected(this.#clock, signal)]);
  }
}
