import type { Clock } from '../base/clock.ts';
import { browseNodes } from './browse.ts';
import { MAX_MESSAGE_BYTES } from './client.ts';
import { itemsWithHistory, readHistory } from './history.ts';
import { sessionProblem, UntrustedServer } from './problems.ts';
import {
  type Item,
  type KeptSubscription,
  MAX_VALUES_PER_LINE,
  type Question,
  type ReaderLine,
  type ReaderTask,
} from './protocol.ts';
import { readItems } from './readings.ts';
import { OversizedMessage, Session } from './session.ts';
import { type Notified, Subscription } from './subscription.ts';
import { TrustFolder } from './trust-folder.ts';
import { writeItem } from './writing.ts';

interface ReaderOptions {
  task: ReaderTask;
  send(line: ReaderLine): void;
  clock: Clock;
}

/** Maximum number of values that are not on disk yet. */
const MAX_UNSTORED = 10_000;
const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 30_000;
/** Minimum duration of a connection after which the pause is reset. */
const STABLE_MS = 5_000;
const TRUST_CHECK_MS = 1_000;

interface Unstored {
  ordinal: number;
  sequence: number;
  subscription: number;
  values: number;
}

/** Reads from one server. Each connection takes over the subscription of the previous connection. */
export class Reader {
  readonly #options: ReaderOptions;
  readonly #end = new AbortController();
  #deletesSubscription = false;
  readonly #unstored: Unstored[] = [];
  #unstoredValues = 0;
  #ordinal = 0;
  #kept: KeptSubscription | undefined;
  /** Latest message that the agent received, whether on disk or not, which is not requested again. */
  #received: { subscription: number; sequence: number } | undefined;
  /** Start time of a server that rejected a transfer of its subscription. */
  #rejectedBy: number | undefined;
  #session: Session | undefined;
  #subscription: Subscription | undefined;
  #wake: PromiseWithResolvers<void> = Promise.withResolvers();

  constructor(options: ReaderOptions) {
    this.#options = options;
    this.#kept = options.task.kept;
  }

  /** Resolves after `stop`, when the session is closed. */
  async run(): Promise<void> {
    const { clock } = this.#options;
    const { signal } = this.#end;
    let pauseMs = FIRST_PAUSE_MS;
    while (!signal.aborted) {
      const openedMs = clock.monotonicMs();
      const untrusted = await this.#connect();
      if (clock.monotonicMs() - openedMs > STABLE_MS) pauseMs = FIRST_PAUSE_MS;
      await this.#pause(pauseMs, untrusted).catch(() => {});
      pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS);
    }
  }

  /** Pauses before the next connection. Ends early if the rejected certificate is trusted in the meantime. */
  async #pause(pauseMs: number, untrusted: Buffer | undefined): Promise<void> {
    const { clock, task } = this.#options;
    const trust = new TrustFolder(task.endpoint.trustFolder);
    const endMs = clock.monotonicMs() + pauseMs;
    for (let leftMs = pauseMs; leftMs > 0; leftMs = endMs - clock.monotonicMs()) {
      await clock.sleep(Math.min(leftMs, TRUST_CHECK_MS), this.#end.signal);
      if (untrusted && trust.has(untrusted)) return;
    }
  }

  /** Ends the session. `deletesSubscription`: the agent no longer needs the subscription on the server. */
  stop(deletesSubscription: boolean): void {
    this.#deletesSubscription = deletesSubscription;
    this.#end.abort();
  }

  /** Records that everything up to this message is on disk. */
  stored(ordinal: number): void {
    while (this.#unstored.length > 0 && this.#unstored[0]!.ordinal <= ordinal) {
      const { sequence, subscription, values } = this.#unstored.shift()!;
      this.#unstoredValues -= values;
      if (subscription === this.#subscription?.id) this.#subscription.stored(sequence);
      if (subscription === this.#kept?.id) this.#kept = { ...this.#kept, stored: sequence };
    }
    this.#wake.resolve();
    this.#wake = Promise.withResolvers();
  }

  async respond(ask: number, question: Question): Promise<void> {
    const { task, send, clock } = this.#options;
    const session = this.#session;
    try {
      if (!session) throw new Error('server is not connected');
      if ('read' in question) send({ answer: ask, values: await readItems(session, question.read) });
      else if ('history' in question) send({ answer: ask, page: await readHistory(session, question.history) });
      else if ('write' in question) await writeItem(session, question.write, clock);
      else {
        for await (const step of browseNodes(session, question.browse, clock)) send({ answer: ask, ...step });
      }
      send({ answer: ask, end: true });
    } catch (error) {
      const { problem, hint } = sessionProblem(error, task.endpoint);
      send({ answer: ask, failed: problem, ...(hint === undefined ? {} : { hint }) });
    }
  }

  /** Runs one session. Returns the certificate of an untrusted server. */
  async #connect(): Promise<Buffer | undefined> {
    const { task, send } = this.#options;
    const { signal } = this.#end;
    let session: Session | undefined;
    const connection = new AbortController();
    const stopped = Promise.withResolvers<never>();
    stopped.promise.catch(() => {});
    const stop = () => stopped.reject(signal.reason);
    signal.addEventListener('abort', stop);
    try {
      session = await Session.open(task.endpoint);
      this.#session = session;
      signal.throwIfAborted();
      await Promise.race([this.#serve(session, task.items, connection.signal), session.broken, stopped.promise]);
    } catch (error) {
      if (error instanceof OversizedMessage) {
        // The server would send the same message again after a transfer.
        this.#kept = undefined;
        send({ oversized: MAX_MESSAGE_BYTES });
      }
      if (!signal.aborted) send({ connected: false, ...sessionProblem(error, task.endpoint) });
      return error instanceof UntrustedServer ? error.certificate : undefined;
    } finally {
      signal.removeEventListener('abort', stop);
      connection.abort();
      this.#session = undefined;
      this.#subscription = undefined;
      const isKept = this.#kept !== undefined && this.#mayTransfer(this.#kept.serverStartMs);
      await session?.close(this.#deletesSubscription || !isKept);
    }
  }

  async #serve(session: Session, items: readonly Item[], ended: AbortSignal): Promise<void> {
    const { send, clock } = this.#options;
    const expiry = session.certificateEndsMs;
    if (items.length === 0) {
      send({ connected: true, ...(expiry === undefined ? {} : { certificateEndsMs: expiry }) });
      return await session.broken;
    }
    const subscription = new Subscription(session, items, {
      subscribed: (current, isNew) => {
        if (isNew && this.#kept?.serverStartMs === current.serverStartMs) this.#rejectedBy = current.serverStartMs;
        this.#kept = {
          ...current,
          ...(isNew || this.#kept?.stored === undefined ? {} : { stored: this.#kept.stored }),
        };
        send({ subscription: current, isNew });
      },
      rejected: (refused) => send({ refused }),
      notified: (message) => this.#report(subscription.id, message),
      lost: (messages) => send({ lost: messages }),
      ready: () => this.#ready(),
      pause: (ms) => clock.sleep(ms, ended),
    });
    this.#subscription = subscription;
    const received = this.#received?.subscription === this.#kept?.id ? this.#received?.sequence : undefined;
    await subscription.open(this.#kept, received, this.#mayTransfer(this.#kept?.serverStartMs));
    send({ connected: true, ...(expiry === undefined ? {} : { certificateEndsMs: expiry }) });
    // Live values are reported without waiting for the history check.
    itemsWithHistory(session, items).then(
      (history) => !ended.aborted && send({ history }),
      () => {},
    );
    await subscription.run();
  }

  /** Servers transfer a subscription only to the same user, or to an application with a certificate. */
  #mayTransfer(serverStartMs: number | undefined): boolean {
    const { policy, user } = this.#options.task.endpoint;
    if (serverStartMs !== undefined && serverStartMs === this.#rejectedBy) return false;
    return policy !== 'None' || user !== undefined;
  }

  #report(subscription: number, { sequence, values }: Notified): void {
    const ordinal = ++this.#ordinal;
    this.#unstored.push({ ordinal, sequence, subscription, values: values.length });
    this.#unstoredValues += values.length;
    this.#received = { subscription, sequence };
    const { send } = this.#options;
    let from = 0;
    for (; values.length - from > MAX_VALUES_PER_LINE; from += MAX_VALUES_PER_LINE) {
      send({ values: values.slice(from, from + MAX_VALUES_PER_LINE) });
    }
    send({ values: values.slice(from), ordinal, subscription, sequence });
  }

  async #ready(): Promise<void> {
    while (this.#unstoredValues >= MAX_UNSTORED) await this.#wake.promise;
  }
}
