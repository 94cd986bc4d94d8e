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
  receivedAtMs: number;
  /** JSON text as received. */
  payload: string;
  state: 'received' | 'running' | 'done' | 'failed' | 'dead';
  /** How often its reactions were begun, since it was received or replayed. */
  attempts: number;
  unrecognised: boolean;
  /** A person asked to run it again: neither age nor cooldown is a reason against it. */
  replayed?: boolean;
}

/** One action's outcome. */
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
   * Events that may run now, oldest first: recognised and received, or failed and due. What a crash left running is
   * received again. Only those with an id above `afterId`, so that one object's long queue hides no other's event.
   */
  runnable(limit: number, nowMs: number, afterId?: number): Promise<InboxEvent[]>;
  markRunning(id: number): Promise<void>;
  recordAttempt(id: number, attempt: Attempt): Promise<void>;
  /** `retryAtMs` by the wall clock. */
  finish(id: number, state: 'done' | 'failed' | 'dead', retryAtMs?: number): Promise<void>;
  replay(id: number): Promise<'queued' | 'unknown' | 'refused'>;
  show(id: number): Promise<{ journal: readonly Attempt[] } | undefined>;
  /** Until when, by the wall clock that set it. */
  cooldown(reaction: string, object: string): Promise<number | undefined>;
  setCooldown(reaction: string, object: string, untilMs: number): Promise<void>;
}
