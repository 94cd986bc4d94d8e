/** States of an event (issue "Inbox"): `failed` is tried again, `dead` is not. */
export type InboxState = 'received' | 'running' | 'done' | 'failed' | 'dead';

/** The event type of our own self-test: kept in the inbox once, and no event of the plant. */
export const SELF_TEST_TYPE = 'tagferry_self_test';

export interface InboxEvent {
  id: number;
  /** `digestOf` its identity: the name that its log lines carry from its arrival on. */
  digest: string;
  eventType: string;
  /** Platform's clock; `undefined` where the event says nothing readable. */
  occurredAtMs: number | undefined;
  /** This machine's wall clock at arrival. */
  receivedAtMs: number;
  /** JSON text as received. */
  payload: string;
  state: InboxState;
  /** How often its reactions were begun. */
  attempts: number;
  unrecognised: boolean;
  /** A person asked to run it again: its age is no reason against it. */
  replayed: boolean;
}

/** An event without its payload: a list of a thousand may not take a gigabyte. */
export type ListedEvent = Omit<InboxEvent, 'payload'>;

/** How far one action of an event has come. `action` is empty for what concerns the whole reaction. */
export interface ActionProgress {
  reaction: string;
  action: string;
  /** `begun`: a start that did not end yet, or never will. */
  state: 'begun' | 'failed' | 'done' | 'dead' | 'skipped';
  tries: number;
  /** How it failed last. */
  detail?: string;
}

/** An event that may run now, and what was done for it before. */
export interface RunnableEvent extends InboxEvent {
  progress: ActionProgress[];
}

/** One action's outcome, for the journal that people read. */
export interface Attempt {
  reaction: string;
  action: string;
  outcome: string;
  detail?: string;
  durationMs: number;
  /** Wall clock. */
  atMs: number;
}

export interface ShownEvent extends InboxEvent {
  journal: Attempt[];
  /** The row's checksum does not fit its bytes. */
  damaged: boolean;
}

export interface ListQuery {
  /** 50 unless told; 1,000 at most. */
  limit?: number;
  /** Only events older than this one: the next page. */
  beforeId?: number;
  state?: InboxState;
  /** All but that of the self-test unless told. */
  eventType?: string;
}

export interface InboxStats {
  events: number;
  /** Recognised ones that have not run yet, or run again later. */
  waiting: number;
  /** What all events cost on disk. */
  bytes: number;
  /** Rows whose checksum did not fit since the start. */
  damaged: number;
}

/** An event as `events ls --json` prints it (docs/interface.md, settled details). Times are ISO 8601, UTC. */
export interface EventLine {
  id: number;
  digest: string;
  event_type: string;
  occurred_at: string | null;
  received_at: string;
  state: InboxState;
  attempts: number;
  unrecognised: boolean;
}

/** So much of an event's identity as tells it from others in a log. */
export function digestOf(identity: Uint8Array): string {
  return Buffer.from(identity.buffer, identity.byteOffset, identity.byteLength).toString('hex').slice(0, 12);
}

export function describeEvent(event: ListedEvent): EventLine {
  return {
    id: event.id,
    digest: event.digest,
    event_type: event.eventType,
    occurred_at: isoOf(event.occurredAtMs),
    received_at: isoOf(event.receivedAtMs) ?? '',
    state: event.state,
    attempts: event.attempts,
    unrecognised: event.unrecognised,
  };
}

function isoOf(ms: number | undefined): string | null {
  if (ms === undefined || !Number.isFinite(ms) || Math.abs(ms) > 8.64e15) return null;
  return new Date(ms).toISOString();
}
