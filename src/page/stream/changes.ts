/** Who wants to know that a page's model has changed: told once for all that came together. */
export class Changes {
  readonly #listeners = new Set<() => void>();
  #isDue = false;

  /** Returns what ends it. */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  tell(): void {
    if (this.#isDue) return;
    this.#isDue = true;
    window.setTimeout(() => {
      this.#isDue = false;
      for (const listener of this.#listeners) listener();
    }, 0);
  }
}
