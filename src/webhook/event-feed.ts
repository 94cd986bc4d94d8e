import { digestOf, type InboxEvent, type RunnableEvent } from './inbox-event.ts';
import type { ArrivedEvent } from './received-event.ts';

/**
 * How the inbox reaches its subscribers: each asks from where it stands (`reactions/` by the state of each event, `access/` by a
 * cursor of its own), and neither waits for the other. What both are given is the same event, parsed once.
 */
export interface FeedInbox {
  runnable(limit: number, afterId: number): Promise<RunnableEvent[]>;
  retried(limit: number, afterId: number): Promise<RunnableEvent[]>;
  ofAccess(limit: number, afterId: number): Promise<InboxEvent[]>;
}

/** An event with what its payload says; `{}` where that is no JSON object. */
export type Parsed<Event extends InboxEvent> = Event & { envelope: Readonly<Record<string, unknown>> };

/** What is kept parsed: events wait their turn, and are met again at each look. Larger ones cost less to parse than to keep. */
const MAX_KEPT = 512;
const MAX_KEPT_BYTES = 4_096;

export class EventFeed {
  readonly #inbox: FeedInbox;
  readonly #kept = new Map<number, Readonly<Record<string, unknown>>>();

  constructor(inbox: FeedInbox) {
    this.#inbox = inbox;
  }

  /** For reactions: what may run now. */
  async runnable(limit: number, afterId = 0): Promise<Parsed<RunnableEvent>[]> {
    return (await this.#inbox.runnable(limit, afterId)).map((event) => this.#parsed(event));
  }

  /** For reactions: what is to be tried again, due or not. */
  async retried(limit: number, afterId: number): Promise<Parsed<RunnableEvent>[]> {
    return (await this.#inbox.retried(limit, afterId)).map((event) => this.#parsed(event));
  }

  /** For access: what concerns it, whatever became of its reactions. */
  async ofAccess(limit: number, afterId: number): Promise<Parsed<InboxEvent>[]> {
    return (await this.#inbox.ofAccess(limit, afterId)).map((event) => this.#parsed(event));
  }

  #parsed<Event extends InboxEvent>(event: Event): Parsed<Event> {
    return { ...event, envelope: this.#envelopeOf(event) };
  }

  #envelopeOf(event: InboxEvent): Readonly<Record<string, unknown>> {
    const kept = this.#kept.get(event.id);
    if (kept) return kept;
    const envelope = parseObject(event.payload);
    if (event.payload.length > MAX_KEPT_BYTES) return envelope;
    if (this.#kept.size >= MAX_KEPT) this.#kept.delete(this.#kept.keys().next().value!);
    this.#kept.set(event.id, envelope);
    return envelope;
  }
}

/** One that is not in the inbox yet, as subscribers of it would be given it. */
export function parsedEvent(event: ArrivedEvent): Parsed<InboxEvent> {
  const payload = Buffer.from(event.payload).toString('utf8');
  return {
    id: 0,
    digest: digestOf(event.identity),
    eventType: event.eventType,
    occurredAtMs: event.occurredAtMs,
    receivedAtMs: event.receivedAtMs,
    payload,
    state: 'received',
    attempts: 0,
    unrecognised: event.unrecognised,
    replayed: false,
    envelope: parseObject(payload),
  };
}

function parseObject(text: string): Record<string, unknown> {
  try {
    const parsed: unknown = JSON.parse(text);
    if (typeof parsed === 'object' && parsed !== null && !Array.isArray(parsed))
      return parsed as Record<string, unknown>;
  } catch {
    // Told by the empty envelope.
  }
  return {};
}
