import { type Exchange, ExchangeRing } from '../requests/exchange.ts';
import type { RequestEntry } from './request-entry.ts';

/** Something that happened behind the scenes: a change of the site, a fault, a webhook that was disabled. */
export interface Happened {
  at: string;
  text: string;
}

/** The last requests, in a ring, with what is kept of them whole, and how many there were; with what happens between them it reads like a story. */
export class RequestLog {
  readonly #hearers = new Set<(happened: Happened) => void>();
  readonly #max: number;
  #entries: RequestEntry[] = [];
  #total = 0;
  #nextId = 1;
  readonly #exchanges = new ExchangeRing();
  readonly #listeners = new Set<(entry: RequestEntry, exchange: Exchange) => void>();

  constructor(max = 10_000) {
    this.#max = max;
  }

  /** The id of the request that ends next. */
  get nextId(): number {
    return this.#nextId;
  }

  add(exchange: Exchange): void {
    const { entry } = exchange;
    this.#total++;
    this.#nextId = entry.id + 1;
    this.#entries.push(entry);
    if (this.#entries.length > this.#max) this.#entries = this.#entries.slice(-Math.floor(this.#max / 2));
    this.#exchanges.add(exchange);
    for (const listener of this.#listeners) listener(entry, exchange);
  }

  /** A request whole; `undefined` once it has fallen away. */
  exchange(id: number): Exchange | undefined {
    return this.#exchanges.get(id);
  }

  onRequest(listener: (entry: RequestEntry, exchange: Exchange) => void): () => void {
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
    this.#exchanges.clear();
    this.#total = 0;
  }
}
