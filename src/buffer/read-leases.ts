import { StoreError } from '../base/errors.ts';

/** Maximum number of readers. The number is limited because an export copies the log into memory. */
const MAX_READERS = 6;

/** `export` iterates over the spans; `files` reads the database files including the WAL. */
export type ReaderKind = 'export' | 'files';

/**
 * Reader leases. While a lease is valid, values are not moved (no compaction). Leases expire, so a reader that
 * disappeared cannot block other work for long. An expired lease cannot be renewed, because values may have moved.
 */
export class ReadLeases {
  readonly #leases = new Map<number, { kind: ReaderKind; untilMs: number }>();
  #next = 1;

  /**
   * Returns the lease number. Throws `store.readers` if too many leases are valid. Times are monotonic milliseconds.
   */
  open(kind: ReaderKind, nowMs: number, untilMs: number): number {
    for (const [id, lease] of this.#leases) if (lease.untilMs <= nowMs) this.#leases.delete(id);
    if (this.#leases.size === MAX_READERS) {
      throw new StoreError(`${MAX_READERS} exports or backups are already running`, {
        code: 'store.readers',
        retryable: true,
        hint: 'Wait until one of them has finished.',
      });
    }
    this.#leases.set(this.#next, { kind, untilMs });
    return this.#next++;
  }

  /** Returns false if the lease has expired or ended. */
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

  /** Returns whether a lease is valid, optionally of one kind. */
  isAny(nowMs: number, kind?: ReaderKind): boolean {
    for (const lease of this.#leases.values()) {
      if (nowMs < lease.untilMs && (kind === undefined || lease.kind === kind)) return true;
    }
    return false;
  }
}
