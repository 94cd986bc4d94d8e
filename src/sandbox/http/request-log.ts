/** One request as it was answered. No tokens, no bodies. */
export interface RequestEntry {
  at: string;
  method: string;
  path: string;
  /** 0: the connection was broken instead of an answer. */
  status: number;
  durationMs: number;
  requestBytes: number;
  user: string | undefined;
  story: string | undefined;
  /** Which faults had a hand in it. */
  fault: string | undefined;
}

/** The last requests, in a ring, and how many there were of each kind. */
export class RequestLog {
  readonly #most: number;
  #entries: RequestEntry[] = [];
  #total = 0;
  readonly #listeners = new Set<(entry: RequestEntry) => void>();

  constructor(most = 10_000) {
    this.#most = most;
  }

  add(entry: RequestEntry): void {
    this.#total++;
    this.#entries.push(entry);
    if (this.#entries.length > this.#most) this.#entries = this.#entries.slice(-Math.floor(this.#most / 2));
    for (const listener of this.#listeners) listener(entry);
  }

  onRequest(listener: (entry: RequestEntry) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  get total(): number {
    return this.#total;
  }

  list(): readonly RequestEntry[] {
    return this.#entries;
  }

  clear(): void {
    this.#entries = [];
    this.#total = 0;
  }
}
