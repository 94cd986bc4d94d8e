/**
 * How much memory the bodies under way at a listener may take, all together. Large ones share three quarters of it at most, so
 * that a small one, which is what deliveries and readings are, finds room whatever the large ones do. A body is small until
 * it has grown beyond a size of which the last quarter holds one for every body that may be under way.
 */
const MiB = 1024 * 1024;
const SMALL_BYTES = 64 * 1024;
/** More small bodies than these are rarely under way at once; where they are, the slow ones give way. */
const SMALL_BODIES = 128;

export interface MemoryBudgetOptions {
  maxBytes: number;
  /** Bodies that may be under way at once. */
  bodies: number;
  /** Makes room by ending a body that comes slowly, which gives its memory back before this returns; gives whether there was one. */
  makeRoom?: () => boolean;
}

/** Of the memory that the unit allows: an eighth, but room for one body of the largest size with what is made of it. */
export function ingestBudgetBytes(memoryLimitBytes: number): number {
  return Math.min(48 * MiB, Math.max(20 * MiB, memoryLimitBytes / 8));
}

/** A thirty-second: deliveries are small, and their listener is the one that strangers reach. */
export function webhookBudgetBytes(memoryLimitBytes: number): number {
  return Math.min(32 * MiB, Math.max(4 * MiB, memoryLimitBytes / 32));
}

/** Of the memory that the unit allows: a sixteenth, but room for one event of the largest size. */
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

  /** A new body's share, empty. */
  reserve(): Reservation {
    return new Reservation(this);
  }

  /** Whether there is room for so much more of a body, or could be made. That may be by ending this one: it holds nothing then. */
  hasRoom(body: Readonly<{ bytes: number }>, more: number): boolean {
    while (!this.#fits(body.bytes, body.bytes + more)) if (!this.#makeRoom()) return false;
    return true;
  }

  /** From `before` to `after` bytes of one body, whatever the bound says. */
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

/** One request's share of the budget. */
export class Reservation {
  readonly #budget: MemoryBudget;
  #bytes = 0;

  constructor(budget: MemoryBudget) {
    this.#budget = budget;
  }

  /** `false` where there is no room. */
  grow(bytes: number): boolean {
    if (!this.#budget.hasRoom(this, bytes)) return false;
    this.set(this.#bytes + bytes);
    return true;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** The request takes exactly so many bytes from now on. */
  set(bytes: number): void {
    this.#budget.change(this.#bytes, bytes);
    this.#bytes = bytes;
  }
}
