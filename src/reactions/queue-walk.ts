import type { InboxEvent } from './journal.ts';

/** What a walk does with the events that it meets. */
export interface QueueVisitor {
  /** Runnable events with an id above `afterId`, oldest first. */
  page(limit: number, afterId: number): Promise<InboxEvent[]>;
  /** Whether one more event may be under way. */
  hasRoom(): boolean;
  /** Objects of what is under way now. */
  busyObjects(): Iterable<string>;
  /** Begins an event unless its object is in `busy`, and puts its object there. */
  begin(event: InboxEvent, busy: Set<string>): void;
}

/** How far into the queue, and which objects have an event that is under way or waits before that. */
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
 * Walks through the queue of the inbox and begins what may begin. Each walk looks at the head; where the queue is longer, a second
 * stride goes on where that of the last walk ended, until it has come to the end and begins anew. So an alarm of one object that
 * stands behind ten thousand of another with a slow reaction is found within some walks, and reading stays bounded.
 *
 * Invariant: an event begins only when no earlier one of its object waits. `busy` holds the object of whatever was passed over, for as
 * long as the stride lasts; where an event was passed over for lack of room, nothing behind it begins in that walk.
 */
export class QueueWalk {
  readonly #visitor: QueueVisitor;
  #far: Stride | undefined;

  constructor(visitor: QueueVisitor) {
    this.#visitor = visitor;
  }

  /** Rules have changed, or an earlier event came back: what was found out about the queue does not count any more. */
  forget(): void {
    this.#far = undefined;
  }

  async walk(): Promise<WalkEnd> {
    const head: Stride = { after: 0, busy: new Set(this.#visitor.busyObjects()) };
    const end = await this.#stride(head);
    if (end !== 'more') return end;
    const known =
      this.#far && this.#far.after > head.after ? this.#far : { after: head.after, busy: new Set<string>() };
    for (const object of head.busy) known.busy.add(object);
    this.#far = known;
    const farEnd = await this.#stride(known);
    if (farEnd === 'over') this.#far = undefined;
    // The head may hold what the far stride took for waiting: the next walk begins it.
    return farEnd === 'over' ? 'more' : farEnd;
  }

  async #stride(stride: Stride): Promise<WalkEnd> {
    for (let read = 0; read < MAX_EVENTS; read += PAGE) {
      if (!this.#visitor.hasRoom()) return 'full';
      const page = await this.#visitor.page(PAGE, stride.after);
      for (const event of page) {
        // An inbox that does not page would answer the same for ever.
        if (event.id <= stride.after) return 'over';
        if (!this.#visitor.hasRoom()) return 'full';
        this.#visitor.begin(event, stride.busy);
        stride.after = event.id;
      }
      if (page.length < PAGE) return 'over';
    }
    return 'more';
  }
}
