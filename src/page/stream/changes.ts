/** Notifies listeners about changes to a model, once per batch. */
export class Changes {
  readonly #listeners = new Set<() => void>();
  #isDue = false;

  /** Returns a function that removes the listener. */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  notify(): void {
    if (this.#isDue) return;
    this.#isDue = true;
    window.setTimeout(() => {
      this.#isDue = false;
      for (const listener of this.#listeners) listener();
    }, 0);
  }
}
