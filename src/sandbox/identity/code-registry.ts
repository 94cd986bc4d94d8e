import { randomBytes } from 'node:crypto';
import type { SandboxClock } from '../sandbox-clock.ts';

export interface CodeGrant {
  user: number;
  application: number;
  redirectUri: string;
  challenge: string | undefined;
  expiresMs: number;
  used: boolean;
  /** Family of the tokens that were issued for the code. */
  family?: number;
}

/** Lifetime of a code. RFC 6749 section 4.1.2 recommends at most ten minutes. */
const CODE_LIFE_MS = 10 * 60_000;
/** Minimum real time available for exchanging a code, at any clock speed. */
const MIN_CLIENT_LIFE_MS = 10_000;

/** Stores authorization codes. Used codes are retained until they expire. */
export class CodeRegistry {
  readonly #clock: SandboxClock;
  readonly #codes = new Map<string, CodeGrant>();

  constructor(clock: SandboxClock) {
    this.#clock = clock;
  }

  issue(grant: Omit<CodeGrant, 'expiresMs' | 'used'>): string {
    const nowMs = this.#clock.wallMs();
    for (const [code, { expiresMs }] of this.#codes) if (expiresMs <= nowMs) this.#codes.delete(code);
    const code = randomBytes(24).toString('base64url');
    const lifeMs = Math.max(CODE_LIFE_MS, MIN_CLIENT_LIFE_MS * this.#clock.speed);
    this.#codes.set(code, { ...grant, expiresMs: nowMs + lifeMs, used: false });
    return code;
  }

  /** Redeems a code. Returns undefined for an unknown, used or expired code. */
  redeem(code: string): CodeGrant | undefined {
    const grant = this.#codes.get(code);
    if (!grant || grant.used || grant.expiresMs <= this.#clock.wallMs()) return undefined;
    grant.used = true;
    return grant;
  }

  /** Records the family of the tokens that were issued for a redeemed code. */
  exchanged(grant: CodeGrant, family: number | undefined): void {
    if (family !== undefined) grant.family = family;
  }

  /** Returns the grant of a code that was already used, whose tokens must be revoked (RFC 6749 section 4.1.2). */
  replayed(code: string): CodeGrant | undefined {
    const grant = this.#codes.get(code);
    return grant?.used === true ? grant : undefined;
  }
}
