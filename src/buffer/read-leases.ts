import { StoreError } from '../base/errors.ts';

/** An export copies the log into memory. */
const MAX_READERS = 6;

/** A reader of `export` walks through the spans. A reader of `files` reads the database's files, and with them the WAL. */
export type ReaderKind = 'export' | 'files';

/**
 * Readers of the buffer, each with its own lease. While one is valid, values keep their place (no compaction, no trimming) and
 * no series is forgotten. A lease expires: a reader that vanished blocks nothing for good. An expired lease cannot be renewed,
 * because values may have moved since.
 */
export class ReadLeases {
  readonly #leases = new Map<number, { kind: ReaderKind; untilMs: number }>();
  #next = 1;

  /** Returns the number of the lease. Throws `store.readers` where too many are valid. Times are monotonic milliseconds. */
  open(kind: ReaderKind, nowMs: number, untilMs: number): number {
    for (const [id, lease] of this.#leases) if (lease.untilMs <= nowMs) this.#leases.delete(id);
    if (this.#leases.size === MAX_READERS) {
      throw new StoreError(`${MAX_READERS} exports or backups are already running`, {
        code: 'store.readers',
        retryable: true,
        hint: 'Wait until one of them has ended.',
      });
    }
    this.#leases.set(this.#next, { kind, untilMs });
    return this.#next++;
  }

  /** Returns false where the lease has expired or ended. */
  renew(id: number, nowMs: number, untilMs: number): boolean {
    const lease = this.#leases.get(id);
    if (!lease || lease.untilMs <= nowMs) return false;
    lease.untilMs = untilMs;
    return true;
  }

  has(id: number): boolean {
    return this.#leases.has(id);
  }

  end(id: number): void {
    this.#leases.delete(id);
  }

  /** Whether a lease is valid, of any kind or of the given one. */
  isAny(nowMs: number, kind?: ReaderKind): boolean {
    for (const lease of this.#leases.values()) {
      if (nowMs < lease.untilMs && (kind === undefined || lease.kind === kind)) return true;
    }
    return false;
  }
}
