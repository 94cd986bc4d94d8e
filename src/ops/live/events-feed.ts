import type { RecentOutputs } from '../../reactions/command-output.ts';
import { readFacts } from '../../reactions/event-facts.ts';
import type { Inbox } from '../../webhook/inbox.ts';
import { describeEvent, type ListedEvent, type ShownEvent } from '../../webhook/inbox-event.ts';
import { envelopeOf } from '../../webhook/received-event.ts';
import type { LiveEvent } from './live-events.ts';
import { type Feed, frame } from './live-stream.ts';

export interface EventsFeedParts {
  inbox: {
    list(query: { limit: number }): Promise<ListedEvent[]>;
    show(id: number): Promise<ReturnType<Inbox['show']>>;
  };
  /** Final output of an event's commands. */
  outputs: Pick<RecentOutputs, 'of'>;
  /** Returns the number of requests rejected by the webhook listener since startup, by reason. */
  rejected(): Record<string, number>;
  /** Number of events received since startup. */
  received(): number;
}

const EVENTS = 50;
/** Maximum length of an event's JSON and of the details of an action. */
const MAX_CONTENT = 4_000;
const MAX_DETAIL = 1_000;
const MAX_JOURNAL = 20;

/** Sends the newest inbox events, and sends an event again when its state or journal changes. */
export function eventsFeed({ inbox, outputs, rejected, received }: EventsFeedParts): Feed {
  let sent = new Map<number, string>();
  let counts = '';
  const look = async (known: ReadonlyMap<number, string>) => {
    const newest = await inbox.list({ limit: EVENTS });
    const marks = new Map(newest.map((event) => [event.id, `${event.state} ${event.attempts}`]));
    // An event's journal can grow while its reactions run.
    const changed = newest.filter(({ id, state }) => known.get(id) !== marks.get(id) || state === 'running');
    const events: LiveEvent[] = [];
    for (const { id } of changed) {
      const event = await inbox.show(id);
      if (event) events.push({ ...liveEvent(event), outputs: outputs.of(id) });
    }
    return { marks, events };
  };
  const eventsNow = (whole: boolean, events: LiveEvent[]) =>
    frame('events', { whole, events, rejected: rejected(), received: received() });
  return {
    async begin() {
      return [eventsNow(true, (await look(new Map())).events)];
    },
    async next() {
      const { marks, events } = await look(sent);
      sent = marks;
      const now = JSON.stringify([rejected(), received()]);
      if (events.length === 0 && now === counts) return [];
      counts = now;
      return [eventsNow(false, events)];
    },
  };
}

function liveEvent(event: ShownEvent): Omit<LiveEvent, 'outputs'> {
  const { id, eventType, occurredAtMs, payload } = event;
  const journal = event.journal.slice(-MAX_JOURNAL).map(({ detail = '', ...attempt }) => ({
    reaction: attempt.reaction,
    action: attempt.action,
    outcome: attempt.outcome,
    // The end of a command's output is the most relevant part.
    detail: detail.slice(-MAX_DETAIL),
    durationMs: Math.round(attempt.durationMs),
    atMs: attempt.atMs,
  }));
  const { object } = readFacts({ id, eventType, occurredAtMs, payload, envelope: envelopeOf(payload) });
  return { ...describeEvent(event), object, content: payload.slice(0, MAX_CONTENT), journal };
}
