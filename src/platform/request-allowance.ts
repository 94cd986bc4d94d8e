import type { RequestKind } from './request-budget.ts';

/** The part of the request budget that the client needs. */
export interface RequestAllowance {
  acquire(kind: RequestKind, signal?: AbortSignal): Promise<void>;
  /** The last request taken did not reach the platform. */
  giveBack(): void;
  /** The platform took a request. */
  accepted(): void;
  /** The platform answered 429, and takes nothing for so long. */
  refused(closedMs: number): void;
  /** The platform answered 429: nobody calls before this monotonic time. */
  restUntil(monotonicMs: number): void;
}
