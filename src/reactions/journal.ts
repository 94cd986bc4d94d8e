import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { Repeats } from '../base/repeats.ts';

/**
 * What the runner needs of the inbox. It lives in the store thread and belongs to `webhook/`; this is the part of it that
 * reactions stand on, with every method answered later.
 */
export interface InboxEvent {
  id: number;
  /** The name that the event's log lines carry from its arrival on. */
  digest?: string;
  eventType: string;
  /** Platform's clock; `undefined` where the event says nothing readable. */
  occurredAtMs: number | undefined;
  /** JSON text as received. */
  payload: string;
  /** The parsed payload; `{}` if it is not a JSON object. */
  readonly envelope: Readonly<Record<string, unknown>>;
  /** A person asked to run it again: neither age nor cooldown is a reason against it. */
  replayed?: boolean;
  /** How far its actions have come, since it was received or replayed. */
  progress: readonly ActionProgress[];
}

/** How far one action of an event has come. `action` is empty for what concerns the whole reaction. */
export interface ActionProgress {
  reaction: string;
  action: string;
  /** `begun`: it was started, and nothing says that it ended. */
  state: 'begun' | 'failed' | 'done' | 'dead' | 'skipped';
  /** Of a command its starts, of everything else its failures. */
  tries: number;
  /** How it failed last. */
  detail?: string;
}

/** One action's outcome, for people. */
export interface Attempt {
  reaction: string;
  action: string;
  outcome: string;
  detail?: string;
  durationMs: number;
  /** Wall clock. */
  atMs: number;
}

export interface Journal {
  /**
   * A page of recognised events that have not run, oldest first, with ids above `afterId`. An empty page is the end: pages are limited by
   * bytes as well. Events that a crash left running have not run.
   */
  fresh(limit: number, afterId: number): Promise<InboxEvent[]>;
  /** A page of failed events whose retry is due. */
  due(limit: number, afterId: number): Promise<InboxEvent[]>;
  /** A page of failed events, due or not. */
  retried(limit: number, afterId: number): Promise<InboxEvent[]>;
  markRunning(id: number): Promise<void>;
  /** On disk when it resolves. Without an `attempt` people are shown nothing. */
  record(id: number, progress: ActionProgress | undefined, attempt?: Attempt): Promise<void>;
  /** `failed` runs again after `retryInMs` of running time. */
  finish(id: number, state: 'done' | 'failed' | 'dead', retryInMs?: number): Promise<void>;
  replay(id: number): Promise<'queued' | 'unknown' | 'refused'>;
  /** How much longer a reaction rests for an object, in running time. */
  cooldown(reaction: string, object: string): Promise<number | undefined>;
  setCooldown(reaction: string, object: string, restMs: number): Promise<void>;
}

/** The journal cannot be read or written: nothing waits for that, and it is said once for all events that meet it. */
export function sayJournal(
  error: unknown,
  about: { inboxId: number; digest?: string | undefined; reaction?: string },
  parts: { clock: Clock; logger: Logger; repeats: Repeats },
): void {
  const code = codeOf(error);
  const count = parts.repeats.note(`journal:${code}`, parts.clock.monotonicMs());
  const level = count === undefined ? 'debug' : 'warn';
  const fields = { event: 'reaction.journal', ...about, code, error: messageOf(error), count };
  parts.logger[level](fields, 'the journal of reactions cannot be used');
}
