/**
 * Where in each minute of a limit the requests of a share stand. They are evenly spaced, and the first comes at another part of its
 * interval in each minute: in five minutes once in each fifth of it, in an order of chance, and a little later each time. So within a few
 * minutes each agent has as many requests in any part of the minute as its share says, and a limit that closes before its minute ends
 * refuses all by the size of their shares, not by luck. It holds for any number of requests a minute, and for fewer than one. By chance in
 * the order, because shares move in minutes too: in a fixed one some would be those who are late whenever the limit closes.
 */
const MINUTE_MS = 60_000;
/** So many minutes make a round, and parts an interval. */
const PARTS = 5;
/** Of a part: multiples of it lie evenly in any number of them. */
const LATER = (Math.sqrt(5) - 1) / 2;
/** Parts of an interval: a request at its place is not asked for again because a number cannot be written wholly. */
const NOTHING = 1e-6;
/** Minutes that begin so close to each other are the same: the platform's `Date` has whole seconds. */
const SAME_MS = 2_000;

export class RequestPlaces {
  readonly #random: () => number;
  readonly #first: number;
  /** When a minute began, by whatever clock the times are of. */
  #openedMs = 0;
  /** The order of the parts in rounds that were asked for. */
  readonly #orders = new Map<number, readonly number[]>();

  constructor(random: () => number) {
    this.#random = random;
    this.#first = random();
  }

  /** The limit opens at this time: its minutes begin then. */
  opensAt(ms: number): void {
    const laterMs = (((ms - this.#openedMs) % MINUTE_MS) + MINUTE_MS) % MINUTE_MS;
    if (Math.min(laterMs, MINUTE_MS - laterMs) > SAME_MS) this.#openedMs = ms;
  }

  /** The first place after a time; one that is past where the time is `-Infinity`. */
  after(ms: number, perMinute: number): number {
    if (ms === Number.NEGATIVE_INFINITY) return ms;
    const sinceMs = ms - this.#openedMs;
    const from = Math.floor(sinceMs / MINUTE_MS);
    for (const round of this.#orders.keys()) if (round < Math.floor(from / PARTS)) this.#orders.delete(round);
    for (let minute = from; ; minute++) {
      const part = this.#part(minute);
      const gone = Math.max(0, sinceMs / MINUTE_MS - minute) * perMinute;
      const number = Math.max(0, Math.floor(gone - part + NOTHING) + 1);
      const place = (part + number) / perMinute;
      if (place < 1) return this.#openedMs + (minute + place) * MINUTE_MS;
    }
  }

  /** Of the interval, before the minute's first request. */
  #part(minute: number): number {
    const round = Math.floor(minute / PARTS);
    const order = this.#orders.get(round) ?? this.#shuffled();
    this.#orders.set(round, order);
    const part = this.#first + (order[minute - round * PARTS]! + round * LATER) / PARTS;
    return part - Math.floor(part);
  }

  #shuffled(): readonly number[] {
    return Array.from({ length: PARTS }, (_, part) => ({ part, at: this.#random() }))
      .sort((one, other) => one.at - other.at)
      .map(({ part }) => part);
  }
}
