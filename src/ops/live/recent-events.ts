import type { RecentOutputs } from '../../reactions/command-output.ts';
import { readFacts } from '../../reactions/event-facts.ts';
import type { Inbox } from '../../webhook/inbox.ts';
import { describeEvent, type ListedEvent, type ShownEvent } from '../../webhook/inbox-event.ts';
import { envelopeOf } from '../../webhook/received-event.ts';
import type { LiveEvent } from './views.ts';

export interface RecentEventsParts {
  inbox: {
    list(query: { limit: number }): Promise<ListedEvent[]>;
    show(id: number): Promise<ReturnType<Inbox['show']>>;
  };
  /** Final output of an event's commands. */
  outputs: Pick<RecentOutputs, 'of'>;
}

const EVENTS = 50;
/** Maximum length of an event's JSON and of the details of an action. */
const MAX_CONTENT = 4_000;
const MAX_DETAIL = 1_000;
const MAX_JOURNAL = 20;

interface Read {
  event: LiveEvent;
  /** State and number of attempts at the time of reading. */
  mark: string;
}

/** Newest inbox events with their results. Only events that have changed since the previous call are read. */
export class RecentEvents {
  readonly #parts: RecentEventsParts;
  #read: ReadonlyMap<number, Read> = new Map();

  constructor(parts: RecentEventsParts) {
    this.#parts = parts;
  }

  /** Returns the newest events first. */
  async list(): Promise<LiveEvent[]> {
    const { inbox, outputs } = this.#parts;
    const before = this.#read;
    const read = new Map<number, Read>();
    for (const { id, state, attempts } of await inbox.list({ limit: EVENTS })) {
      const mark = `${state} ${attempts}`;
      const known = before.get(id);
      if (known?.mark === mark && state !== 'running') {
        read.set(id, known);
        continue;
      }
      const event = await inbox.show(id);
      if (event) read.set(id, { mark, event: { ...liveEvent(event), outputs: outputs.of(id) } });
    }
    this.#read = read;
    return [...read.values()].map(({ event }) => event);
  }
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
