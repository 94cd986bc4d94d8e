/**
 * Which event an action still belongs to. An action that failed is tried again while later events of the same object go on; but the same
 * action of a later event waits for it, so that the plant never sees "closed" of the first event after "opened" of the second.
 * Kept in memory: at startup the runner restores it from the inbox (`ReactionRunner`).
 */
export class RetryOrder {
  readonly #owners = new Map<string, number>();

  /** Whether an earlier event still has to do this. */
  isTaken(reaction: string, object: string, action: string, eventId: number): boolean {
    const owner = this.#owners.get(keyOf(reaction, object, action));
    return owner !== undefined && owner < eventId;
  }

  /** The event will try this again. */
  take(reaction: string, object: string, action: string, eventId: number): void {
    const key = keyOf(reaction, object, action);
    const owner = this.#owners.get(key);
    if (owner === undefined || owner > eventId) this.#owners.set(key, eventId);
  }

  done(reaction: string, object: string, action: string, eventId: number): void {
    const key = keyOf(reaction, object, action);
    if (this.#owners.get(key) === eventId) this.#owners.delete(key);
  }

  /** The event is over, whatever became of it. */
  release(eventId: number): void {
    for (const [key, owner] of this.#owners) if (owner === eventId) this.#owners.delete(key);
  }
}

function keyOf(reaction: string, object: string, action: string): string {
  return `${reaction}\n${object}\n${action}`;
}
