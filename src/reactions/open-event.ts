import type { Reaction } from '../config/reactions.ts';
import { nameActions } from './action.ts';
import type { EventFacts } from './event-facts.ts';
import type { InboxEvent } from './journal.ts';
import type { Progress } from './progress.ts';
import type { RunResult } from './reaction-run.ts';
import type { RetryOrder } from './retry-order.ts';

/** The state of an event whose reactions have ended, or wait; `interrupted` events run again at the next start. */
export type EventVerdict = { state: 'done' | 'dead' | 'interrupted' } | { state: 'failed'; retryInMs: number };

/** An event with reactions in progress. */
export class OpenEvent {
  readonly event: InboxEvent;
  readonly facts: EventFacts;
  readonly progress: Progress;
  /** Called when the event closes. */
  releaseMemory: () => void = () => {};
  /** Reactions that have not ended and are not in progress: for lack of a place, of their turn, or before a retry. */
  readonly waiting: Set<Reaction>;
  readonly running = new Set<Reaction>();
  /** The inbox has been asked to mark the event as running. */
  marked: Promise<void> = Promise.resolve();
  readonly closed = Promise.withResolvers<void>();
  /** All reactions that matched when the event was opened. */
  readonly #reactions: readonly Reaction[];
  readonly #results: RunResult[] = [];

  constructor(
    event: InboxEvent,
    { facts, progress, reactions }: Pick<OpenEvent, 'facts' | 'progress'> & { reactions: readonly Reaction[] },
  ) {
    this.event = event;
    this.facts = facts;
    this.progress = progress;
    this.#reactions = reactions;
    this.waiting = new Set(reactions.filter(({ name, actions }) => !progress.finalOutcome(name, nameActions(actions))));
  }

  /** The reaction and the object of the event: runs for one event at a time. */
  keyOf({ name }: Reaction): string {
    return `${name}\n${this.facts.object}`;
  }

  /** A reaction in progress has ended. */
  ended(reaction: Reaction, result: RunResult, nowMs: number): void {
    this.running.delete(reaction);
    this.#results.push(result);
    if (result.retryInMs !== undefined) this.progress.postpone(reaction.name, nowMs + result.retryInMs);
  }

  verdict(nowMs: number): EventVerdict {
    if (this.#results.some(({ outcome }) => outcome === 'interrupted')) return { state: 'interrupted' };
    const retries = [
      ...this.#results.flatMap(({ retryInMs }) => retryInMs ?? []),
      ...[...this.waiting].map(({ name }) => Math.max(0, this.progress.waitMs(name, nowMs))),
    ];
    if (retries.length > 0) return { state: 'failed', retryInMs: Math.min(...retries) };
    const isDead = ({ name, actions }: Reaction) => this.progress.finalOutcome(name, nameActions(actions)) === 'dead';
    return { state: this.#reactions.some(isDead) ? 'dead' : 'done' };
  }

  /** Whether an action of the reaction could be tried now. If not, beginning it would only cost commits. */
  canProgress(reaction: Reaction, retryOrder: RetryOrder, isClosed: (action: Reaction['actions'][number]) => boolean) {
    const names = nameActions(reaction.actions);
    return reaction.actions.some(
      (action, i) =>
        this.#isOpen(reaction, names[i]!) &&
        !retryOrder.isTaken(reaction.name, this.facts.object, names[i]!, this.event.id) &&
        !isClosed(action),
    );
  }

  /** The actions that are still to be done keep their place before those of later events of the object. */
  keepOrder(retryOrder: RetryOrder): void {
    for (const reaction of this.#reactions) {
      const names = nameActions(reaction.actions);
      if (this.progress.finalOutcome(reaction.name, names)) continue;
      for (const name of names) {
        if (this.#isOpen(reaction, name)) retryOrder.take(reaction.name, this.facts.object, name, this.event.id);
      }
    }
  }

  #isOpen({ name: reaction }: Reaction, action: string): boolean {
    return !this.progress.isDone(reaction, action) && !this.progress.isGivenUp(reaction, action);
  }
}
