import { randomBytes } from 'node:crypto';
import type { SandboxClock } from '../sandbox-clock.ts';

export interface CodeGrant {
  user: number;
  application: number;
  redirectUri: string;
  challenge: string | undefined;
  expiresMs: number;
  used: boolean;
  /** The tokens that it was exchanged for. */
  family?: number;
}

/** RFC 6749 section 4.1.2: ten minutes at most. */
const CODE_LIFE_MS = 10 * 60_000;
/** However fast the sandbox's clock runs, its client has so long to exchange a code. */
const MIN_CLIENT_LIFE_MS = 10_000;

/** Authorization codes that were given out and not yet exchanged; a used one is remembered until it would have expired. */
export class CodeRegistry {
  readonly #clock: SandboxClock;
  readonly #codes = new Map<string, CodeGrant>();

  constructor(clock: SandboxClock) {
    this.#clock = clock;
  }

  give(grant: Omit<CodeGrant, 'expiresMs' | 'used'>): string {
    const nowMs = this.#clock.wallMs();
    for (const [code, { expiresMs }] of this.#codes) if (expiresMs <= nowMs) this.#codes.delete(code);
    const code = randomBytes(24).toString('base64url');
    const lifeMs = Math.max(CODE_LIFE_MS, MIN_CLIENT_LIFE_MS * this.#clock.speed);
    this.#codes.set(code, { ...grant, expiresMs: nowMs + lifeMs, used: false });
    return code;
  }

  /** Takes a code, once; `undefined` where it is unknown, used or old. */
  take(code: string): CodeGrant | undefined {
    const grant = this.#codes.get(code);
    if (!grant || grant.used || grant.expiresMs <= this.#clock.wallMs()) return undefined;
    grant.used = true;
    return grant;
  }

  /** A used code that comes again: RFC 6749 section 4.1.2 wants its tokens to end. */
  replayed(code: string): CodeGrant | undefined {
    const grant = this.#codes.get(code);
    return grant?.used === true ? grant : undefined;
  }

  /** For the state file. */
  snapshot(): [code: string, grant: CodeGrant][] {
    return [...this.#codes];
  }

  restore(codes: ReturnType<CodeRegistry['snapshot']>): void {
    for (const [code, grant] of codes) this.#codes.set(code, grant);
  }
}
