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
  /** Why it was refused, in the words of the answer. */
  refused?: string;
  /** Which faults had a hand in it. */
  fault: string | undefined;
}

/** Something that happened behind the scenes: a change of the site, a fault, a webhook that was disabled. */
export interface Happened {
  at: string;
  text: string;
}

/** The last requests, in a ring, and how many there were; with what happens between them it reads like a story. */
export class RequestLog {
  readonly #hearers = new Set<(happened: Happened) => void>();
  readonly #max: number;
  #entries: RequestEntry[] = [];
  #total = 0;
  readonly #listeners = new Set<(entry: RequestEntry) => void>();

  constructor(max = 10_000) {
    this.#max = max;
  }

  add(entry: RequestEntry): void {
    this.#total++;
    this.#entries.push(entry);
    if (this.#entries.length > this.#max) this.#entries = this.#entries.slice(-Math.floor(this.#max / 2));
    for (const listener of this.#listeners) listener(entry);
  }

  onRequest(listener: (entry: RequestEntry) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  tell(happened: Happened): void {
    for (const hearer of this.#hearers) hearer(happened);
  }

  /** Calls for everything that happens behind the scenes, in sentences for people. */
  onHappened(hearer: (happened: Happened) => void): () => void {
    this.#hearers.add(hearer);
    return () => this.#hearers.delete(hearer);
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
