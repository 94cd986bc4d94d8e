import type { Clock } from '../base/clock.ts';
import { identityOf } from './identity.ts';

export interface ForeignSecretParts {
  clock: Clock;
  /** The deliveries list is read soon. */
  readSoon(): void;
  /** The platform signs with a secret that is not known here. */
  found(): void;
  /** The platform signs with a known secret. */
  over(): void;
}

/** Parsing costs more than checking a signature: so often at most, whoever sends how much. */
const LOOK_EVERY_MS = 1_000;
const READ_EVERY_MS = 60_000;
const MAX_REMEMBERED = 50;

/**
 * Tells a changed secret from a forged request. A body with a wrong signature is remembered by its identity; if the deliveries list
 * then contains the same event, the platform has sent it, so it signs with another secret. Memory is bounded; a restart forgets all.
 */
export class ForeignSecret {
  readonly #parts: ForeignSecretParts;
  #remembered: string[] = [];
  #lookedMs = Number.NEGATIVE_INFINITY;
  #readMs = Number.NEGATIVE_INFINITY;

  constructor(parts: ForeignSecretParts) {
    this.#parts = parts;
  }

  /** A request had a signature, and none of the known secrets made it. */
  rejected(body: Uint8Array): void {
    const nowMs = this.#parts.clock.monotonicMs();
    if (nowMs - this.#lookedMs < LOOK_EVERY_MS) return;
    this.#lookedMs = nowMs;
    this.#remembered = [...this.#remembered, hexOf(identityOf(body))].slice(-MAX_REMEMBERED);
    if (nowMs - this.#readMs < READ_EVERY_MS) return;
    this.#readMs = nowMs;
    this.#parts.readSoon();
  }

  /** A delivery had a good signature. */
  accepted(): void {
    this.#remembered = [];
    this.#parts.over();
  }

  /** The deliveries list contains these. */
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
