/** Bound of the memory for names that edge nodes report: nodes and metrics of one source. */
const MAX_BYTES = 24 * 1024 * 1024;
/** Cost of an entry beside its name. */
const ENTRY_BYTES = 150;
/** The same for a node. */
const NODE_BYTES = 2_000;

export class NamesBudget {
  #left = MAX_BYTES;

  /** Reserves an entry with a name. Returns its bytes, or 0 if they exceed what is left. */
  reserve(name = ''): number {
    return this.#take(ENTRY_BYTES + 2 * name.length);
  }

  /** Reserves a node. `false` if it exceeds what is left. */
  reserveNode(name: string): boolean {
    return this.#take(NODE_BYTES + 2 * name.length) > 0;
  }

  release(bytes: number): void {
    this.#left += bytes;
  }

  #take(bytes: number): number {
    if (bytes > this.#left) return 0;
    this.#left -= bytes;
    return bytes;
  }
}
