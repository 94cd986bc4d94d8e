/**
 * Pure: whether a broker has given all that it gives before something is confirmed. No broker says how large its window is
 * (Mosquitto's is 20 unless told, HiveMQ's 10), so it is learned: a flow that stops, and comes in a burst once what waits was
 * confirmed, was stopped by the window. One that just was quiet is found out by one commit too early.
 */
const MIN_GUESS = 10;
/** What waits at the broker comes together, ... */
const BURST_MS = 20;
const BURST_MESSAGES = 3;
/** ... as soon as it has read the confirmations: a network and a busy machine lie between. */
const ANSWER_MS = 250;

export class BrokerWindow {
  #guess = MIN_GUESS;
  #size: number | undefined;
  readonly #maximum: number;
  /** The flow stopped with so many unconfirmed. */
  #stalled: { count: number; wasHurried: boolean } | undefined;
  #trial: { count: number; wasHurried: boolean; sinceMs: number; firstMs: number; arrived: number } | undefined;

  /** `maximum`: what this client allowed the broker at most. */
  constructor(maximum: number) {
    this.#maximum = maximum;
  }

  /** How many it gives, where that is known. */
  get size(): number | undefined {
    return this.#size;
  }

  /** A message came. */
  arrived(nowMs: number): void {
    this.#stalled = undefined;
    const trial = this.#trial;
    if (!trial) return;
    if (trial.arrived === 0) trial.firstMs = nowMs;
    if (trial.firstMs - trial.sinceMs > ANSWER_MS || nowMs - trial.firstMs > BURST_MS) this.#quiet(trial);
    else if (++trial.arrived >= Math.min(BURST_MESSAGES, trial.count)) {
      this.#size = trial.count;
      this.#guess = trial.count;
      this.#trial = undefined;
    }
  }

  /** Nothing came for a moment while `count` are unconfirmed. Gives whether the commit should come early. */
  stalled(count: number): boolean {
    // More than what was taken for all: it was not.
    if (this.#size !== undefined && count > this.#size) this.#size = undefined;
    const wasHurried = count >= Math.min(this.#guess, this.#maximum);
    this.#stalled = { count, wasHurried };
    return wasHurried;
  }

  /** All that waited is confirmed. */
  confirmed(nowMs: number): void {
    if (this.#trial) this.#quiet(this.#trial);
    this.#trial = this.#stalled && { ...this.#stalled, sinceMs: nowMs, firstMs: nowMs, arrived: 0 };
    this.#stalled = undefined;
  }

  /** It had nothing more to give: what was taken for a window was none. One that is known is not forgotten over a quiet moment. */
  #quiet(trial: { count: number; wasHurried: boolean }): void {
    this.#trial = undefined;
    if (trial.wasHurried && trial.count !== this.#size) this.#guess = Math.max(this.#guess, trial.count + 1);
  }
}
