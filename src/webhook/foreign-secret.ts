import type { Clock } from '../base/clock.ts';
import { identityOf } from './identity.ts';

export interface ForeignSecretParts {
  clock: Clock;
  /** Called when the platform signs with a secret that this gateway does not know. */
  found(): void;
  /** Called when the platform signs with a known secret again. */
  over(): void;
}

/** Minimum interval between parsed bodies. */
const PARSE_EVERY_MS = 1_000;
const READ_EVERY_MS = 60_000;
const MAX_REMEMBERED = 50;

/**
 * Distinguishes a changed secret from forged requests. If the deliveries list contains an event that was rejected
 * because of its signature, the platform sent this event and signs with a different secret. The state is not persisted.
 */
export class ForeignSecret {
  readonly #parts: ForeignSecretParts;
  #remembered: string[] = [];
  #parsedMs = Number.NEGATIVE_INFINITY;
  #readMs = Number.NEGATIVE_INFINITY;

  constructor(parts: ForeignSecretParts) {
    this.#parts = parts;
  }

  /** Records a request with an invalid signature. Returns whether the deliveries list should be read. */
  rejected(body: Uint8Array): boolean {
    const nowMs = this.#parts.clock.monotonicMs();
    if (nowMs - this.#parsedMs < PARSE_EVERY_MS) return false;
    this.#parsedMs = nowMs;
    this.#remembered = [...this.#remembered, hexOf(identityOf(body))].slice(-MAX_REMEMBERED);
    if (nowMs - this.#readMs < READ_EVERY_MS) return false;
    this.#readMs = nowMs;
    return true;
  }

  /** Records a delivery with a valid signature. */
  accepted(): void {
    this.#remembered = [];
    this.#parts.over();
  }

  /** Handles the identities of the events in the deliveries list. */
  listed(identities: readonly Uint8Array[]): void {
    if (this.#remembered.length === 0) return;
    const listed = new Set(identities.map(hexOf));
    if (!this.#remembered.some((one) => listed.has(one))) return;
    this.#remembered = [];
    this.#parts.found();
  }
}

function hexOf(identity: Uint8Array): string {
  return Buffer.from(identity).toString('hex');
}
