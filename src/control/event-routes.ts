/** What `tagferry events` asks about the inbox: of the daemon through the control socket, or of a stopped one's file. */
import { TagferryError, UsageError } from '../base/errors.ts';
import { depthOf, parseEvent } from '../contract/events/event-text.ts';
import type { Inbox } from '../webhook/inbox.ts';
import {
  type Attempt,
  describeEvent,
  type EventLine,
  type InboxState,
  type ListedEvent,
} from '../webhook/inbox-event.ts';
import type { ControlRoutes } from './control-server.ts';
import type { OperatedEvents } from './operated-parts.ts';

/** The inbox, answering at once or later. */
export interface ReadableInbox {
  list(...query: Parameters<Inbox['list']>): ListedEvent[] | Promise<ListedEvent[]>;
  show(id: number): ReturnType<Inbox['show']> | Promise<ReturnType<Inbox['show']>>;
}

const STATES: readonly InboxState[] = ['received', 'running', 'done', 'failed', 'dead'];
const MAX_EVENTS = 10_000;
/** `JSON.stringify` fails at some 5,000. */
const MAX_SHOWN_DEPTH = 100;
/** What the inbox gives at once. */
const A_PAGE = 1_000;

/** An event with everything that is known of it, as `events show --json` prints it. */
export interface EventSheet extends EventLine {
  damaged: boolean;
  payload: unknown;
  journal: (Omit<Attempt, 'durationMs' | 'atMs'> & { duration_ms: number; at: string })[];
}

/** Of a daemon that runs. */
export function eventRoutes(inbox: ReadableInbox, { catchUp, runner }: OperatedEvents): ControlRoutes {
  return {
    'events/ls': (params) => listEvents(inbox, params),
    'events/show': (params) => showEvent(inbox, params),
    'events/replay': (params) => replayEvent((id) => runner.replay(id), params),
    'events/catch-up': () => catchUp.catchUpNow(),
  };
}

/** `events/ls`: newest first, 50 unless told. */
export async function listEvents(
  inbox: ReadableInbox,
  params: Record<string, unknown>,
): Promise<{ events: EventLine[] }> {
  const limit = Math.min(MAX_EVENTS, countIn(params, 'limit') ?? 50);
  const eventType = textIn(params, 'type');
  const state = textIn(params, 'state') as InboxState | undefined;
  if (state !== undefined && !STATES.includes(state)) {
    throw new UsageError(`there is no state "${state}"`, `Write one of ${STATES.join(', ')}.`);
  }
  const events: EventLine[] = [];
  let beforeId: number | undefined;
  while (events.length < limit) {
    const page = await inbox.list({
      limit: Math.min(A_PAGE, limit - events.length),
      ...(beforeId === undefined ? {} : { beforeId }),
      ...(state === undefined ? {} : { state }),
      ...(eventType === undefined ? {} : { eventType }),
    });
    events.push(...page.map(describeEvent));
    if (page.length === 0 || (page.length < A_PAGE && events.length < limit)) break;
    beforeId = page.at(-1)!.id;
  }
  return { events };
}

/** `events/show`. Throws `event.unknown`. */
export async function showEvent(inbox: ReadableInbox, params: Record<string, unknown>): Promise<EventSheet> {
  const id = idIn(params);
  const event = await inbox.show(id);
  if (!event) throw unknownEvent(id);
  return {
    ...describeEvent(event),
    damaged: event.damaged,
    payload: shownPayload(event.payload),
    journal: event.journal.map(({ durationMs, atMs, ...rest }) => ({
      ...rest,
      duration_ms: Math.round(durationMs),
      at: new Date(atMs).toISOString(),
    })),
  };
}

/** As text if it has so many levels that it cannot be written as JSON again. */
function shownPayload(text: string): unknown {
  return (depthOf(text) > MAX_SHOWN_DEPTH ? undefined : parseEvent(text)) ?? text;
}

/** `events/replay`. `replay` is the runner's, or the inbox's own where no runner is there. */
export async function replayEvent(
  replay: (id: number) => Promise<'queued' | 'unknown' | 'refused'> | 'queued' | 'unknown' | 'refused',
  params: Record<string, unknown>,
): Promise<{ id: number; replay: 'queued' }> {
  const id = idIn(params);
  const answer = await replay(id);
  if (answer === 'unknown') throw unknownEvent(id);
  if (answer === 'refused') {
    throw new TagferryError(`event ${id} cannot run again: it runs now, or it is unrecognised`, {
      code: 'event.not_replayed',
      hint: `See \`tagferry events show ${id}\`.`,
    });
  }
  return { id, replay: answer };
}

function unknownEvent(id: number): TagferryError {
  return new TagferryError(`there is no event ${id}`, { code: 'event.unknown', hint: 'See `tagferry events ls`.' });
}

function idIn(params: Record<string, unknown>): number {
  const id = countIn(params, 'id');
  if (id === undefined) throw new UsageError('the number of an event is missing', 'See `tagferry events ls`.');
  return id;
}

function countIn(params: Record<string, unknown>, name: string): number | undefined {
  const value = params[name];
  if (value === undefined) return undefined;
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 1) {
    throw new UsageError(`${name} is no whole number above 0`);
  }
  return value;
}

function textIn(params: Record<string, unknown>, name: string): string | undefined {
  const value = params[name];
  if (value !== undefined && typeof value !== 'string') throw new UsageError(`${name} is no text`);
  return value;
}
