/**
 * Permits for posts: a socket and a request from the budget. Live posts are served first. While backlog posts also
 * wait, one in five is a backlog post, and the backlog uses all sockets except one.
 */
import type { RequestBudget } from '../platform/request-budget.ts';

export type PostKind = 'live' | 'backlog' | 'probe';

/** Part of the request budget that posts require. */
export type PostBudget = Pick<RequestBudget, 'acquire' | 'refund' | 'isLimited' | 'restingUntilMs' | 'endRest'>;

export interface Permit {
  /** Frees the socket. The request was sent. */
  release(): void;
  /** Frees the socket and refunds the request, which was not sent. */
  refund(): void;
}

interface Waiter {
  grant(permit: Permit): void;
  reject(error: unknown): void;
}

const CREDIT_PER_LIVE_POST = 0.25;

export class Permits {
  readonly #budget: PostBudget;
  readonly #options: { readonly concurrency: number };
  readonly #signal: AbortSignal;
  readonly #waiting: Record<PostKind, Waiter[]> = { live: [], backlog: [], probe: [] };
  readonly #used: Record<PostKind, number> = { live: 0, backlog: 0, probe: 0 };
  /** Number of backlog posts that are due in return for live posts. */
  #credit = 0;
  #isServing = false;

  /**
   * `options`: settings that a reload can change. When the signal aborts, waiting callers are rejected with its reason.
   */
  constructor(budget: PostBudget, options: { readonly concurrency: number }, signal: AbortSignal) {
    this.#budget = budget;
    this.#options = options;
    this.#signal = signal;
    signal.addEventListener('abort', () => this.#rejectAll(signal.reason));
  }

  /** Remaining pause after a 429, in milliseconds. */
  restMs(nowMs: number): number {
    return (this.#budget.restingUntilMs ?? nowMs) - nowMs;
  }

  /** Number of posts in progress. */
  get used(): number {
    return this.#used.live + this.#used.backlog + this.#used.probe;
  }

  /** Waits for a socket, then for a request. A probe waits for its request first, because that may take minutes. */
  async acquire(kind: PostKind): Promise<Permit> {
    this.#signal.throwIfAborted();
    if (kind === 'probe') await this.#budget.acquire('probe', this.#signal);
    return new Promise((grant, reject) => {
      this.#waiting[kind].push({ grant, reject });
      void this.#serve();
    });
  }

  async #serve(): Promise<void> {
    if (this.#isServing) return;
    this.#isServing = true;
    try {
      for (let kind = this.#nextKind(); kind; kind = this.#nextKind()) {
        if (kind !== 'probe') await this.#budget.acquire(kind, this.#signal);
        // The most urgent post may have changed while the request was awaited.
        const next = kind === 'probe' ? kind : this.#nextOf(kind);
        const waiter = this.#waiting[next].shift();
        if (!waiter) this.#budget.refund();
        else waiter.grant(this.#permit(next));
      }
    } catch (error) {
      this.#rejectAll(error);
    } finally {
      this.#isServing = false;
    }
  }

  #rejectAll(error: unknown): void {
    for (const waiters of Object.values(this.#waiting)) for (const { reject } of waiters.splice(0)) reject(error);
  }

  #nextOf(kind: PostKind): PostKind {
    const next = this.#nextKind();
    return next === undefined || next === 'probe' ? kind : next;
  }

  /** Returns the kind of the most urgent waiting post for which there is a socket. */
  #nextKind(): PostKind | undefined {
    const { concurrency } = this.#options;
    if (this.used >= concurrency) return undefined;
    if (this.#waiting.probe.length > 0) return 'probe';
    const hasLive = this.#waiting.live.length > 0;
    const hasBacklog = this.#waiting.backlog.length > 0 && this.#used.backlog < Math.max(1, concurrency - 1);
    if (hasBacklog && (!hasLive || this.#credit >= 1)) return 'backlog';
    return hasLive ? 'live' : undefined;
  }

  #permit(kind: PostKind): Permit {
    if (kind === 'backlog') this.#credit = Math.max(0, this.#credit - 1);
    else if (this.#waiting.backlog.length > 0) this.#credit = Math.min(1, this.#credit + CREDIT_PER_LIVE_POST);
    this.#used[kind]++;
    const free = () => {
      this.#used[kind]--;
      void this.#serve();
    };
    return {
      release: free,
      refund: () => {
        this.#budget.refund();
        free();
      },
    };
  }
}
