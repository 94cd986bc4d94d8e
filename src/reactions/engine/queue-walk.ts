import type { InboxEvent } from '../journal.ts';

/** Callbacks for a queue walk. */
export interface QueueVisitor {
  /** Returns a page of events with IDs above `afterId`, oldest first. An empty page marks the end. */
  page(limit: number, afterId: number): Promise<InboxEvent[]>;
  /** Returns whether any reaction may start. */
  hasRoom(): boolean;
  /** Returns the keys of the reactions in progress. A key identifies a reaction and an object. */
  busyKeys(): Iterable<string>;
  /**
   * Starts the reactions of an event whose keys are not in `busy` and for which a slot is available. Adds the keys of
   * all its reactions to `busy`.
   */
  begin(event: InboxEvent, busy: Set<string>): void;
  /** Does the same for open events with IDs between two events in the queue. */
  passOpen(afterId: number, beforeId: number, busy: Set<string>): void;
}

/** Position in the queue, and the keys of reactions that are in progress or must wait for an earlier event. */
interface Stride {
  after: number;
  readonly busy: Set<string>;
}

/** `over`: the end of the queue was reached. `full`: no slot is available. `more`: the queue contains more events. */
export type WalkEnd = 'over' | 'full' | 'more';

const PAGE = 32;
/** Maximum number of events per stride. */
const MAX_EVENTS = 1_000;

/**
 * Walks through an inbox queue and starts reactions that may start. Each walk reads the first events in the queue. If
 * the queue is longer, a second stride continues where the second stride of the previous walk ended; at the end of the
 * queue, it starts over. An alarm behind ten thousand events of a slow reaction is therefore found within a few walks,
 * and the number of events read per walk is limited.
 *
 * Invariant: a reaction starts only if no earlier event of the same object is waiting for this reaction. Until the
 * stride ends, `busy` contains the keys of all reactions that were passed over.
 */
export class QueueWalk {
  readonly #visitor: QueueVisitor;
  #far: Stride | undefined;

  constructor(visitor: QueueVisitor) {
    this.#visitor = visitor;
  }

  /** Restarts the second stride. Called if rules have changed or an earlier event may run again. */
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
    // Report `more`, so that the next walk can start reactions that the second stride treated as waiting.
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
        // Guards against an endless loop if `page` ignores `afterId`.
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
