/**
 * Limits the total memory of the bodies read by a listener. Large bodies share at most three quarters, so that there is
 * always room for small ones, such as deliveries and readings. The threshold for small bodies is chosen so that all
 * concurrent bodies fit in the remaining quarter if they are small.
 */
const MiB = 1024 * 1024;
const SMALL_BYTES = 64 * 1024;
/**
 * Number of concurrent small bodies that the budget allows for. If there are more, connections with slow bodies are
 * closed.
 */
const SMALL_BODIES = 128;

export interface MemoryBudgetOptions {
  maxBytes: number;
  /** Maximum number of concurrent bodies. */
  bodies: number;
  /**
   * Makes room by closing the connection with a slow body, whose memory is released before the call returns. Returns
   * `false` if there is none.
   */
  makeRoom?: () => boolean;
}

/** Returns one eighth of the memory limit, but at least enough to read and process one body of maximum size. */
export function ingestBudgetBytes(memoryLimitBytes: number): number {
  return Math.min(48 * MiB, Math.max(20 * MiB, memoryLimitBytes / 8));
}

/** Returns 1/32 of the memory limit, because deliveries are small and the listener is exposed to the network. */
export function webhookBudgetBytes(memoryLimitBytes: number): number {
  return Math.min(32 * MiB, Math.max(4 * MiB, memoryLimitBytes / 32));
}

/** Returns 1/16 of the memory limit, but at least enough for one event of maximum size. */
export function reactionBudgetBytes(memoryLimitBytes: number): number {
  return Math.min(64 * MiB, Math.max(8 * MiB, memoryLimitBytes / 16));
}

export class MemoryBudget {
  readonly #maxBytes: number;
  readonly #maxLargeBytes: number;
  readonly #smallBytes: number;
  #makeRoom: () => boolean;
  #usedBytes = 0;
  #usedByLargeBytes = 0;

  constructor({ maxBytes, bodies, makeRoom }: MemoryBudgetOptions) {
    this.#maxBytes = maxBytes;
    this.#maxLargeBytes = (maxBytes * 3) / 4;
    this.#smallBytes = Math.min(SMALL_BYTES, maxBytes / 4 / Math.min(SMALL_BODIES, bodies));
    this.#makeRoom = makeRoom ?? (() => false);
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }

  /** Returns an empty reservation for a new body. */
  reserve(): Reservation {
    return new Reservation(this);
  }

  /**
   * Returns whether a body can grow by `more` bytes, making room if necessary. Making room may close the connection of
   * the body itself, whose reservation is then empty.
   */
  hasRoom(body: Readonly<{ bytes: number }>, more: number): boolean {
    while (!this.#fits(body.bytes, body.bytes + more)) if (!this.#makeRoom()) return false;
    return true;
  }

  /** Changes the size of one body without checking the limit. */
  change(before: number, after: number): void {
    this.#usedBytes += after - before;
    this.#usedByLargeBytes += this.#large(after) - this.#large(before);
  }

  #fits(before: number, after: number): boolean {
    const large = this.#large(after);
    if (this.#usedBytes + after - before > this.#maxBytes) return false;
    return large === 0 || this.#usedByLargeBytes + large - this.#large(before) <= this.#maxLargeBytes;
  }

  #large(bytes: number): number {
    return bytes > this.#smallBytes ? bytes : 0;
  }
}

/** Share of the budget used by one request. */
export class Reservation {
  readonly #budget: MemoryBudget;
  #bytes = 0;

  constructor(budget: MemoryBudget) {
    this.#budget = budget;
  }

  /** Returns `false` if there is no room. */
  grow(bytes: number): boolean {
    if (!this.#budget.hasRoom(this, bytes)) return false;
    this.set(this.#bytes + bytes);
    return true;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Sets the size of the reservation. */
  set(bytes: number): void {
    this.#budget.change(this.#bytes, bytes);
    this.#bytes = bytes;
  }
}
