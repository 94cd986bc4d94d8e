/** A request and its response, without tokens and bodies. */
export interface RequestEntry {
  /** Number of the request in order of completion, starting at 1. Sent in the response as `x-request-id`. */
  id: number;
  at: string;
  method: string;
  path: string;
  /** 0 if the connection was closed without a response. */
  status: number;
  durationMs: number;
  requestBytes: number;
  user: string | undefined;
  story: string | undefined;
  /** Reason for a rejection, as stated in the response. */
  refused?: string;
  /** Faults that affected the request. */
  fault: string | undefined;
}

/** A change that was not made by a request to the platform, for example to the site or the faults. */
export interface Happened {
  at: string;
  text: string;
}

const MAX_ENTRIES = 10_000;

/** Stores the latest requests, and the total number of requests. */
export class RequestLog {
  #entries: RequestEntry[] = [];
  #total = 0;
  #nextId = 1;
  readonly #requestListeners = new Set<(entry: RequestEntry, target: string) => void>();
  readonly #happenedListeners = new Set<(happened: Happened) => void>();

  /** ID of the next request. */
  get nextId(): number {
    return this.#nextId;
  }

  /** Adds a request. `target` contains its path and query, which may include a code or token. */
  add(entry: RequestEntry, target: string): void {
    this.#total++;
    this.#nextId = entry.id + 1;
    this.#entries.push(entry);
    if (this.#entries.length > MAX_ENTRIES) this.#entries = this.#entries.slice(-MAX_ENTRIES / 2);
    for (const listener of this.#requestListeners) listener(entry, target);
  }

  /** Calls the listener for every request. Returns a function that removes the listener. */
  onRequest(listener: (entry: RequestEntry, target: string) => void): () => void {
    this.#requestListeners.add(listener);
    return () => this.#requestListeners.delete(listener);
  }

  report(happened: Happened): void {
    for (const listener of this.#happenedListeners) listener(happened);
  }

  /** Calls the listener for every other change. Returns a function that removes the listener. */
  onHappened(listener: (happened: Happened) => void): () => void {
    this.#happenedListeners.add(listener);
    return () => this.#happenedListeners.delete(listener);
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
