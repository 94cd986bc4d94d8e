import type { Reaction } from '../../config/reactions.ts';
import { MANUAL_WRITE } from '../../contract/value-events.ts';
import { nameActions } from '../actions.ts';
import type { EventFacts } from '../event-facts.ts';
import type { InboxEvent } from '../journal.ts';
import { matches } from '../rules.ts';
import type { Progress } from './progress.ts';
import type { RunResult } from './reaction-run.ts';
import { type RemovedAction, removedActions } from './removed-actions.ts';
import type { RetryOrder } from './retries.ts';

/**
 * Final or intermediate state of an event that has no reactions in progress. Interrupted events run again after the
 * next startup.
 */
export type EventVerdict = { state: 'done' | 'dead' | 'interrupted' } | { state: 'failed'; retryInMs: number };

/** An event with reactions in progress. */
export class OpenEvent {
  readonly event: InboxEvent;
  readonly facts: EventFacts;
  readonly progress: Progress;
  /** Called when the event is closed. */
  releaseMemory: () => void = () => {};
  /**
   * Unfinished reactions that are not in progress, because they are waiting for a slot, an earlier event or a retry.
   */
  readonly waiting: Set<Reaction>;
  readonly running = new Set<Reaction>();
  /** Resolves when the inbox has marked the event as running. */
  marked: Promise<void> = Promise.resolve();
  readonly closed = Promise.withResolvers<void>();
  readonly #configured: readonly Reaction[];
  /** All reactions that matched when the event was opened. */
  readonly #reactions: readonly Reaction[];
  readonly #results: RunResult[] = [];

  /** `configured`: all reactions in the configuration, including those that do not match. */
  constructor(
    event: InboxEvent,
    { facts, progress, configured }: Pick<OpenEvent, 'facts' | 'progress'> & { configured: readonly Reaction[] },
  ) {
    const reactions = configured.filter((one) => matches(one, facts));
    this.event = event;
    this.facts = facts;
    this.progress = progress;
    this.#configured = configured;
    this.#reactions = reactions;
    this.waiting = new Set(reactions.filter(({ name, actions }) => !progress.finalOutcome(name, nameActions(actions))));
  }

  /** Returns a key for a reaction and the event's object. Only one event per key runs at a time. */
  keyOf({ name }: Reaction): string {
    return `${name}\n${this.facts.object}`;
  }

  /** Returns the zero-based position of a reaction in the configuration. */
  positionOf(reaction: Reaction): number {
    return this.#configured.indexOf(reaction);
  }

  /** Records the end of a reaction run. */
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
    const hasFailed = this.progress.hasGivenUp() || this.removed.length > 0 || this.isManualWrite;
    return { state: hasFailed ? 'dead' : 'done' };
  }

  /** Whether an operator caused the event by a write, which only the operator may repeat. */
  get isManualWrite(): boolean {
    return this.event.eventType === MANUAL_WRITE;
  }

  /** Attempted actions that were removed from the configuration. */
  get removed(): RemovedAction[] {
    return removedActions(this.progress, { configured: this.#configured, matching: this.#reactions });
  }

  /**
   * Returns whether an action of the reaction could be attempted now. If not, starting the reaction would only cause
   * unnecessary commits.
   */
  canProgress(reaction: Reaction, retryOrder: RetryOrder, isClosed: (action: Reaction['actions'][number]) => boolean) {
    const names = nameActions(reaction.actions);
    return reaction.actions.some(
      (action, i) =>
        this.#isOpen(reaction, names[i]!) &&
        !retryOrder.isBlocked(reaction.name, this.facts.object, names[i]!, this.event.id) &&
        !isClosed(action),
    );
  }

  /** Blocks the unfinished actions of this event for later events of the same object. */
  keepOrder(retryOrder: RetryOrder): void {
    for (const reaction of this.#reactions) {
      const names = nameActions(reaction.actions);
      if (this.progress.finalOutcome(reaction.name, names)) continue;
      for (const name of names) {
        if (this.#isOpen(reaction, name)) retryOrder.block(reaction.name, this.facts.object, name, this.event.id);
      }
    }
  }

  #isOpen({ name: reaction }: Reaction, action: string): boolean {
    return !this.progress.isDone(reaction, action) && !this.progress.isGivenUp(reaction, action);
  }
}
