import type { Clock } from '../base/clock.ts';
import { browseNodes } from './browse.ts';
import {
  type Item,
  type KeptSubscription,
  MAX_VALUES_PER_LINE,
  type Question,
  type ReaderLine,
  type ReaderTask,
} from './protocol.ts';
import { readItems } from './read-items.ts';
import { OversizedMessage, Session, UntrustedServer } from './session.ts';
import { type Notified, Subscription } from './subscription.ts';
import { MAX_MESSAGE_BYTES } from './transport.ts';
import { troubleWords } from './trouble-words.ts';
import { TrustFolder } from './trust-folder.ts';

export interface ReaderOptions {
  task: ReaderTask;
  tell(line: ReaderLine): void;
  clock: Clock;
}

/** Values that were given and are not on disk: more are not asked for. */
const MAX_UNSTORED = 10_000;
const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 30_000;
/** A connection that was there so long was sound: the next pause is the first again. */
const SOUND_MS = 5_000;
const LOOK_MS = 1_000;

interface Unstored {
  ordinal: number;
  sequence: number;
  subscription: number;
  values: number;
}

/** Reads one server as long as somebody wants it to: each connection takes over what the one before has left behind. */
export class Reader {
  readonly #options: ReaderOptions;
  readonly #end = new AbortController();
  readonly #unstored: Unstored[] = [];
  #unstoredValues = 0;
  #ordinal = 0;
  #kept: KeptSubscription | undefined;
  /** Latest message that the agent has, on disk or not. It is not requested again. */
  #given: { subscription: number; sequence: number } | undefined;
  /** A server that would not have its subscription taken over. */
  #refusedBy: number | undefined;
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
      if (clock.monotonicMs() - openedMs > SOUND_MS) pauseMs = FIRST_PAUSE_MS;
      await this.#rest(pauseMs, untrusted).catch(() => {});
      pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS);
    }
  }

  /** Ends as soon as somebody trusts the server that was refused. */
  async #rest(pauseMs: number, untrusted: Buffer | undefined): Promise<void> {
    const { clock, task } = this.#options;
    const trust = new TrustFolder(task.endpoint.trustFolder);
    const endMs = clock.monotonicMs() + pauseMs;
    for (let leftMs = pauseMs; leftMs > 0; leftMs = endMs - clock.monotonicMs()) {
      await clock.sleep(Math.min(leftMs, LOOK_MS), this.#end.signal);
      if (untrusted && trust.has(untrusted)) return;
    }
  }

  #isGone = false;

  /** `isGone`: nobody will come for what is left on the server. */
  stop(isGone: boolean): void {
    this.#isGone = isGone;
    this.#end.abort();
  }

  /** Everything up to this message is on disk. */
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

  async answer(ask: number, question: Question): Promise<void> {
    const { task, tell, clock } = this.#options;
    const session = this.#session;
    try {
      if (!session) throw new Error('the server is not connected');
      if ('read' in question) tell({ answer: ask, values: await readItems(session, question.read) });
      else {
        for await (const step of browseNodes(session, question.browse, clock)) tell({ answer: ask, ...step });
      }
      tell({ answer: ask, end: true });
    } catch (error) {
      const { problem, hint } = troubleWords(error, task.endpoint);
      tell({ answer: ask, failed: problem, ...(hint === undefined ? {} : { hint }) });
    }
  }

  /** One session, from its beginning to its end; gives the certificate that nobody trusts, where there was none for that. */
  async #connect(): Promise<Buffer | undefined> {
    const { task, tell } = this.#options;
    const { signal } = this.#end;
    let session: Session | undefined;
    // Ends what waits for this session alone.
    const over = new AbortController();
    const stopped = Promise.withResolvers<never>();
    stopped.promise.catch(() => {});
    const stop = () => stopped.reject(signal.reason);
    signal.addEventListener('abort', stop);
    try {
      session = await Session.open(task.endpoint);
      this.#session = session;
      signal.throwIfAborted();
      await Promise.race([this.#serve(session, task.items, over.signal), session.broken, stopped.promise]);
    } catch (error) {
      if (error instanceof OversizedMessage) {
        // The server would send the same message again to whoever takes its subscription over.
        this.#kept = undefined;
        tell({ oversized: MAX_MESSAGE_BYTES });
      }
      if (!signal.aborted) tell({ connected: false, ...troubleWords(error, task.endpoint) });
      return error instanceof UntrustedServer ? error.certificate : undefined;
    } finally {
      signal.removeEventListener('abort', stop);
      over.abort();
      this.#session = undefined;
      this.#subscription = undefined;
      await session?.close(this.#isGone || !this.#mayTransfer(this.#kept?.serverStartMs));
    }
  }

  async #serve(session: Session, items: readonly Item[], over: AbortSignal): Promise<void> {
    const { tell, clock } = this.#options;
    const ends = session.certificateEndsMs;
    if (items.length === 0) {
      tell({ connected: true, ...(ends === undefined ? {} : { certificateEndsMs: ends }) });
      return await session.broken;
    }
    const subscription = new Subscription(session, items, {
      known: (known, isNew) => {
        if (isNew && this.#kept?.serverStartMs === known.serverStartMs) this.#refusedBy = known.serverStartMs;
        this.#kept = { ...known, ...(isNew || this.#kept?.stored === undefined ? {} : { stored: this.#kept.stored }) };
        tell({ subscription: known, isNew });
      },
      refused: (refused) => tell({ refused }),
      notified: (message) => this.#give(subscription.id, message),
      lost: (messages) => tell({ lost: messages }),
      ready: () => this.#ready(),
      pause: (ms) => clock.sleep(ms, over),
    });
    this.#subscription = subscription;
    const given = this.#given?.subscription === this.#kept?.id ? this.#given?.sequence : undefined;
    await subscription.open(this.#kept, given, this.#mayTransfer(this.#kept?.serverStartMs));
    tell({ connected: true, ...(ends === undefined ? {} : { certificateEndsMs: ends }) });
    await subscription.run();
  }

  /** Servers let a subscription be taken over by the user who made it, or by an application that they know by its certificate. */
  #mayTransfer(serverStartMs: number | undefined): boolean {
    const { policy, user } = this.#options.task.endpoint;
    if (serverStartMs !== undefined && serverStartMs === this.#refusedBy) return false;
    return policy !== 'None' || user !== undefined;
  }

  #give(subscription: number, { sequence, values, overflows }: Notified): void {
    const ordinal = ++this.#ordinal;
    this.#unstored.push({ ordinal, sequence, subscription, values: values.length });
    this.#unstoredValues += values.length;
    this.#given = { subscription, sequence };
    const { tell } = this.#options;
    let from = 0;
    for (; values.length - from > MAX_VALUES_PER_LINE; from += MAX_VALUES_PER_LINE) {
      tell({ values: values.slice(from, from + MAX_VALUES_PER_LINE) });
    }
    tell({ values: values.slice(from), ordinal, subscription, sequence, overflows });
  }

  async #ready(): Promise<void> {
    while (this.#unstoredValues >= MAX_UNSTORED) await this.#wake.promise;
  }
}
