import { PlatformError } from '../../../src/base/errors.ts';
import type { HttpRequest, PlatformAnswer } from '../../../src/platform/http-boundary.ts';
import type { VirtualTime } from './virtual-time.ts';

export interface PlatformLimits {
  /** Requests per minute and user. */
  perUser: number;
  /** Whether all agents share one user or each has its own. */
  users: 'one' | 'each';
  /** Logins per second that the token endpoint processes; others are queued. */
  loginsPerSecond: number;
}

const MINUTE_MS = 60_000;
const ANSWER_MS = 50;
const TOKEN_SECONDS = 660;
/** Client timeout. */
const TIMEOUT_MS = 30_000;

/** Counts by second. */
export interface Second {
  logins: number;
  posts: number;
  refused: number;
}

/** A platform that can be unavailable, with a rate limit per minute and user and a token endpoint that can be slow. */
export class FleetPlatform {
  readonly #time: VirtualTime;
  readonly limits: PlatformLimits;
  readonly seconds: Second[] = [];
  /** Error code of every request during an outage. */
  away: 'platform.connection_refused' | 'platform.tls' | undefined;
  /** Number of attempted requests, regardless of the result. */
  tried = 0;
  #minute = -1;
  readonly #used = new Map<number, number>();
  #loginFreeAtMs = 0;
  /** Accepted posts of each agent, by minute. */
  readonly taken = new Map<number, number[]>();

  constructor(time: VirtualTime, limits: PlatformLimits) {
    this.#time = time;
    this.limits = limits;
  }

  /** Returns an agent's transport. */
  boundaryOf(
    agent: number,
    sleep: (ms: number) => Promise<void>,
  ): { send(request: HttpRequest): Promise<PlatformAnswer> } {
    return {
      send: async ({ url, body }) => {
        this.tried++;
        if (this.away) throw new PlatformError('no answer', { code: this.away, retryable: true });
        if (!url.pathname.startsWith('/oauth')) return this.#post(agent, sleep);
        if (!String(body).includes('grant_type')) return this.#answer(200, '');
        return this.#login(sleep);
      },
    };
  }

  async #login(sleep: (ms: number) => Promise<void>): Promise<PlatformAnswer> {
    const { nowMs } = this.#time;
    this.#second().logins++;
    const answeredMs = Math.max(this.#loginFreeAtMs, nowMs) + 1_000 / this.limits.loginsPerSecond;
    // A client that would wait longer gives up and leaves the queue.
    const isInTime = answeredMs - nowMs <= TIMEOUT_MS;
    if (isInTime) this.#loginFreeAtMs = answeredMs;
    await sleep(isInTime ? answeredMs - nowMs : TIMEOUT_MS);
    if (!isInTime) throw new PlatformError('no answer', { code: 'platform.timeout', retryable: true });
    if (this.away) throw new PlatformError('no answer', { code: 'platform.connection_reset', retryable: true });
    const token = { access_token: 'a', refresh_token: 'r', token_type: 'bearer', expires_in: TOKEN_SECONDS };
    return this.#answer(200, JSON.stringify(token));
  }

  async #post(agent: number, sleep: (ms: number) => Promise<void>): Promise<PlatformAnswer> {
    await sleep(ANSWER_MS);
    if (this.away) throw new PlatformError('no answer', { code: 'platform.connection_reset', retryable: true });
    const minute = Math.floor(this.#time.nowMs / MINUTE_MS);
    if (minute !== this.#minute) {
      this.#minute = minute;
      this.#used.clear();
    }
    const user = this.limits.users === 'one' ? 0 : agent;
    const used = (this.#used.get(user) ?? 0) + 1;
    this.#used.set(user, used);
    if (used > this.limits.perUser) {
      this.#second().refused++;
      return this.#answer(429, '');
    }
    this.#second().posts++;
    const minutes = this.taken.get(agent) ?? [];
    minutes[minute] = (minutes[minute] ?? 0) + 1;
    this.taken.set(agent, minutes);
    return this.#answer(204, '');
  }

  #answer(status: number, text: string): PlatformAnswer {
    const date = new Date(this.#time.nowMs).toUTCString();
    return { status, header: (name) => (name === 'date' ? date : undefined), text } as PlatformAnswer;
  }

  #second(): Second {
    const at = Math.floor(this.#time.nowMs / 1_000);
    this.seconds[at] ??= { logins: 0, posts: 0, refused: 0 };
    return this.seconds[at];
  }
}
