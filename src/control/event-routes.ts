/**
 * Control routes for events, the webhook and known objects. Commands call the listing functions directly if the agent
 * is stopped.
 */
import { MAX_OBJECTS, type ObjectListing, type ObjectQuery } from '../access/access-table.ts';
import { TagferryError, UsageError } from '../base/errors.ts';
import { depthOf, parseEvent } from '../contract/events/event-text.ts';
import type { ReactionRunner } from '../reactions/engine/runner.ts';
import type { Attempt } from '../store/event-journal.ts';
import type { CatchUp } from '../webhook/catch-up.ts';
import { type Deliveries, MAX_LISTED } from '../webhook/deliveries.ts';
import type { Inbox } from '../webhook/inbox.ts';
import { describeEvent, type EventLine, type InboxState, type ListedEvent } from '../webhook/inbox-event.ts';
import type { WebhookRegistration } from '../webhook/registration.ts';
import type { SelfTestLine } from '../webhook/self-test.ts';
import type { ControlRoutes } from './control-server.ts';
import { choiceIn, integersIn, numberIn, type Params, positiveIn, requiredIn, textIn } from './params.ts';

/** An inbox in this thread or in the store thread. */
export interface ReadableInbox {
  list(...query: Parameters<Inbox['list']>): ListedEvent[] | Promise<ListedEvent[]>;
  show(id: number): ReturnType<Inbox['show']> | Promise<ReturnType<Inbox['show']>>;
}

/** Known objects in this thread or in the store thread. */
export interface ReadableObjects {
  list(query: ObjectQuery): ObjectListing | Promise<ObjectListing>;
}

export interface OperatedEvents {
  readonly runner: Pick<ReactionRunner, 'replay'>;
  readonly catchUp: Pick<CatchUp, 'catchUpNow'>;
  readonly deliveries: Pick<Deliveries, 'list' | 'resend' | 'resendFailed'>;
  readonly registration: Pick<
    WebhookRegistration,
    'list' | 'register' | 'enable' | 'disable' | 'disabledBy' | 'rotateSecret' | 'delete' | 'prune'
  >;
  testWebhook(): Promise<SelfTestLine[]>;
}

const STATES: readonly InboxState[] = ['received', 'running', 'done', 'failed', 'dead'];
const MAX_EVENTS = 10_000;
const DEFAULT_EVENTS = 50;
const DEFAULT_OBJECTS = 100;
/** Maximum nesting depth. `JSON.stringify` overflows the stack at about 5,000 levels. */
const MAX_SHOWN_DEPTH = 100;
/** Maximum number of events that the inbox lists at once. */
const PAGE_EVENTS = 1_000;

/** An event with its payload and journal, as printed by `events show --json`. */
export interface EventSheet extends EventLine {
  damaged: boolean;
  payload: unknown;
  journal: (Omit<Attempt, 'durationMs' | 'atMs'> & { duration_ms: number; at: string })[];
}

export function eventRoutes(inbox: ReadableInbox, { catchUp, runner }: OperatedEvents): ControlRoutes {
  return {
    'events/ls': (params) => listEvents(inbox, params),
    'events/show': (params) => showEvent(inbox, params),
    'events/replay': (params) => replayEvent((id) => runner.replay(id), params),
    'events/catch-up': () => catchUp.catchUpNow(),
  };
}

/** `events/ls`: newest first. */
export async function listEvents(inbox: ReadableInbox, params: Params): Promise<{ events: EventLine[] }> {
  const limit = Math.min(MAX_EVENTS, positiveIn(params, 'limit') ?? DEFAULT_EVENTS);
  const eventType = textIn(params, 'type');
  const state = choiceIn(params, 'state', STATES);
  const events: EventLine[] = [];
  let beforeId: number | undefined;
  while (events.length < limit) {
    const page = await inbox.list({
      limit: Math.min(PAGE_EVENTS, limit - events.length),
      ...(beforeId === undefined ? {} : { beforeId }),
      ...(state === undefined ? {} : { state }),
      ...(eventType === undefined ? {} : { eventType }),
    });
    events.push(...page.map(describeEvent));
    if (page.length < PAGE_EVENTS) break;
    beforeId = page.at(-1)!.id;
  }
  return { events };
}

/** `events/show`: throws `event.unknown` if the event does not exist. */
export async function showEvent(inbox: ReadableInbox, params: Params): Promise<EventSheet> {
  const id = requiredIn(params, 'id');
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

/** Returns the parsed payload, or the text if it is invalid or too deeply nested to be formatted. */
function shownPayload(text: string): unknown {
  return (depthOf(text) > MAX_SHOWN_DEPTH ? undefined : parseEvent(text)) ?? text;
}

type ReplayAnswer = 'queued' | 'unknown' | 'refused';

/** `events/replay`: `replay` is the method of the runner, or of a stopped agent's inbox. */
export async function replayEvent(
  replay: (id: number) => Promise<ReplayAnswer> | ReplayAnswer,
  params: Params,
): Promise<{ id: number; replay: 'queued' }> {
  const id = requiredIn(params, 'id');
  const answer = await replay(id);
  if (answer === 'unknown') throw unknownEvent(id);
  if (answer === 'refused') {
    throw new TagferryError(`event ${id} cannot be replayed: it is running now, or it is unrecognised`, {
      code: 'event.not_replayed',
      hint: `Run \`tagferry events show ${id}\`.`,
    });
  }
  return { id, replay: answer };
}

function unknownEvent(id: number): TagferryError {
  return new TagferryError(`event ${id} not found`, { code: 'event.unknown', hint: 'Run `tagferry events ls`.' });
}

export function assetRoutes(objects: ReadableObjects): ControlRoutes {
  return { 'assets/ls': (params) => listObjects(objects, params) };
}

/** `assets/ls`: most recently seen first. */
export async function listObjects(objects: ReadableObjects, params: Params): Promise<ObjectListing> {
  const limit = positiveIn(params, 'limit') ?? DEFAULT_OBJECTS;
  return objects.list({ text: textIn(params, 'text') ?? '', limit: Math.min(limit, MAX_OBJECTS) });
}

/** Routes for this gateway's webhook on the platform. */
export function webhookRoutes(events: OperatedEvents): ControlRoutes {
  const { registration, deliveries } = events;
  return {
    'webhook/ls': async () => ({ webhooks: await registration.list() }),
    'webhook/register': async () => {
      const { webhook } = await registration.register();
      return { webhook, registered: true, disabled: registration.disabledBy !== undefined };
    },
    'webhook/enable': async (params) => {
      await registration.enable(positiveIn(params, 'id'));
      return { enabled: true };
    },
    'webhook/disable': async (params) => {
      await registration.disable(positiveIn(params, 'id'));
      return { disabled: true };
    },
    'webhook/rotate-secret': async () => {
      await registration.rotateSecret();
      return { rotated: true };
    },
    'webhook/delete': async (params) => {
      await registration.delete(positiveIn(params, 'id'));
      return { deleted: true };
    },
    'webhook/prune': async (params) => ({ deleted: await registration.prune(integersIn(params, 'ids')) }),
    'webhook/deliveries': (params) => {
      const status = textIn(params, 'status');
      const eventType = textIn(params, 'event_type');
      const sinceMs = numberIn(params, 'since_ms');
      const limit = positiveIn(params, 'limit');
      return deliveries.list({
        webhook: positiveIn(params, 'webhook'),
        ...(status === undefined ? {} : { status }),
        ...(eventType === undefined ? {} : { eventType }),
        ...(sinceMs === undefined ? {} : { sinceMs }),
        ...(limit === undefined ? {} : { limit }),
      });
    },
    'webhook/resend': (params) => {
      const webhook = positiveIn(params, 'webhook');
      if (params.all_failed === true) return deliveries.resendFailed(webhook);
      const ids = integersIn(params, 'ids');
      if (ids.length === 0 || ids.length > MAX_LISTED) throw new UsageError(`ids must be 1 to ${MAX_LISTED} numbers`);
      return deliveries.resend(ids, webhook);
    },
    'webhook/test': async () => ({ checks: await events.testWebhook() }),
  };
}
