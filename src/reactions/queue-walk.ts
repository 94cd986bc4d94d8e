import type { InboxEvent } from './journal.ts';

/** What a walk does with the events that it meets. */
export interface QueueVisitor {
  /** A page of events with an id above `afterId`, oldest first; an empty one is the end. */
  page(limit: number, afterId: number): Promise<InboxEvent[]>;
  /** Whether any reaction may begin now. */
  hasRoom(): boolean;
  /** Reactions with their objects that are in progress, or wait in an event that is. */
  busyKeys(): Iterable<string>;
  /** Begins the reactions of an event that are not in `busy` and find a place; adds all of them to `busy`. */
  begin(event: InboxEvent, busy: Set<string>): void;
  /** The same for events that are open already, with ids between those of two events of the queue. */
  passOpen(afterId: number, beforeId: number, busy: Set<string>): void;
}

/** How far into the queue, and which reactions of which objects are in progress or wait for an event before that. */
interface Stride {
  after: number;
  readonly busy: Set<string>;
}

/** `full`: there is no room for more; `more`: the queue goes on beyond this walk. */
export type WalkEnd = 'over' | 'full' | 'more';

const PAGE = 32;
/** What one stride reads at most: a look at a queue of a hundred thousand must not read it whole. */
const MAX_EVENTS = 1_000;

/**
 * Walks through a queue of the inbox and begins the reactions that may begin. Each walk reads the head; if the queue is longer, a second
 * stride continues where that of the previous walk ended, and starts over at the end. An alarm behind ten thousand events of a slow
 * reaction is found within a few walks, and reading stays bounded.
 *
 * Invariant: a reaction begins only if no earlier event of the same object waits for it. `busy` contains the key of every reaction that
 * was passed over, for as long as the stride lasts.
 */
export class QueueWalk {
  readonly #visitor: QueueVisitor;
  #far: Stride | undefined;

  constructor(visitor: QueueVisitor) {
    this.#visitor = visitor;
  }

  /** Rules have changed, or an earlier event is runnable again: the far stride starts over. */
  forget(): void {
    this.#far = undefined;
  }

  async walk(): Promise<WalkEnd> {
    const head: Stride = { after: 0, busy: new Set(this.#visitor.busyKeys()) };
    const end = await this.#stride(head);
    if (end !== 'more') return end;
    const known =
      this.#far && this.#far.after > head.after ? this.#far : { after: head.after, busy: new Set<string>() };
    for (const key of head.busy) known.busy.add(key);
    this.#far = known;
    const farEnd = await this.#stride(known);
    if (farEnd === 'over') this.#far = undefined;
    // The head may hold what the far stride took for waiting: the next walk begins it.
    return farEnd === 'over' ? 'more' : farEnd;
  }

  async #stride(stride: Stride): Promise<WalkEnd> {
    for (let read = 0; read < MAX_EVENTS; ) {
      if (!this.#visitor.hasRoom()) return 'full';
      const page = await this.#visitor.page(PAGE, stride.after);
      if (page.length === 0) {
        this.#visitor.passOpen(stride.after, Number.POSITIVE_INFINITY, stride.busy);
        return 'over';
      }
      for (const event of page) {
        // An inbox that does not page would return the same events for ever.
        if (event.id <= stride.after) return 'over';
        if (!this.#visitor.hasRoom()) return 'full';
        this.#visitor.passOpen(stride.after, event.id, stride.busy);
        this.#visitor.begin(event, stride.busy);
        stride.after = event.id;
      }
      read += page.length;
    }
    return 'more';
  }
}
