import { isoTime } from '../base/amounts.ts';
import type { ActionProgress, Attempt } from '../store/event-journal.ts';
import type { SignatureHeaders } from './signature.ts';

/** State of an event. `failed` events are retried, `dead` events are not. */
export type InboxState = 'received' | 'running' | 'done' | 'failed' | 'dead';

/** Event type of the self-test, which the inbox stores once. */
export const SELF_TEST_TYPE = 'tagferry_self_test';

export interface InboxEvent {
  id: number;
  /** Short form of the identity (`digestOf`), which identifies the event in the log. */
  digest: string;
  eventType: string;
  /** Event time according to the platform clock; undefined if the event contains no valid time. */
  occurredAtMs: number | undefined;
  /** Arrival time according to the gateway's wall clock. */
  receivedAtMs: number;
  /** JSON text as received. */
  payload: string;
  state: InboxState;
  /** Number of times that its reactions were started. */
  attempts: number;
  unrecognised: boolean;
  /** Whether the event was replayed manually and runs regardless of its age. */
  replayed: boolean;
}

/** An event without its payload, for lists. */
export type ListedEvent = Omit<InboxEvent, 'payload'>;

/** An event that may run now, with its progress. */
export interface RunnableEvent extends InboxEvent {
  progress: ActionProgress[];
  /** Running time since the event was stored, in milliseconds. */
  storedAgoMs: number;
  /** Whether the event was stored before this process opened the inbox. */
  isFromEarlierRun: boolean;
}

export interface ShownEvent extends InboxEvent {
  journal: Attempt[];
  /** Whether the checksum of the row is wrong. */
  damaged: boolean;
}

export interface ListQuery {
  /** Maximum number of events, at most 1,000. Default: 50. */
  limit?: number;
  /** Lists only events with a lower ID. */
  beforeId?: number;
  state?: InboxState;
  /** Default: all except the self-test. */
  eventType?: string;
}

export interface InboxStats {
  events: number;
  /** Number of recognised events that have not run or will be retried. */
  waiting: number;
  /** Size of all events on disk, in bytes. */
  bytes: number;
  /** Number of damaged rows found since startup. */
  damaged: number;
}

/** An event in the output of `events ls --json`. Times are in ISO 8601 format (UTC). */
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

/** Returns the short form of an identity, used in the log. */
export function digestOf(identity: Uint8Array): string {
  return Buffer.from(identity.buffer, identity.byteOffset, identity.byteLength).toString('hex').slice(0, 12);
}

export function describeEvent(event: ListedEvent): EventLine {
  return {
    id: event.id,
    digest: event.digest,
    event_type: event.eventType,
    occurred_at: isoTime(event.occurredAtMs) ?? null,
    received_at: isoTime(event.receivedAtMs) ?? '',
    state: event.state,
    attempts: event.attempts,
    unrecognised: event.unrecognised,
  };
}

/** Retention limits of the inbox. */
export interface InboxLimits {
  /** Maximum age of events that have run, in milliseconds of running time. */
  keepMs: number;
  /** Size above which the oldest events that have run are deleted, in bytes. */
  keepBytes: number;
  /** Size above which new events are rejected, in bytes. */
  maxBytes: number;
}

export const INBOX_LIMITS: InboxLimits = {
  keepMs: 30 * 86_400_000,
  keepBytes: 64 * 1024 * 1024,
  maxBytes: 256 * 1024 * 1024,
};

/** Name of the note that contains the ID of the latest relayed event. Later events are not deleted. */
export const RELAYED_NOTE = 'relayed';

/** An event to relay, with the signatures of its delivery. */
export interface RelayedEvent {
  id: number;
  /** Whether the event was created on this gateway and is therefore not relayed. */
  isLocal: boolean;
  identity: Uint8Array;
  payload: Uint8Array;
  signatures: SignatureHeaders;
}
