import type { RequestBudget, RequestKind } from '../../../src/platform/request-budget.ts';
import type { ManualClock } from '../doubles/manual-clock.ts';

/** Acquires a request if one is available now. */
export function acquireNow(
  clock: Pick<ManualClock, 'monotonicMs'>,
  budget: RequestBudget,
  kind: Exclude<RequestKind, 'paid'>,
): boolean {
  if (budget.nextAtMs(kind) > clock.monotonicMs()) return false;
  void budget.acquire(kind);
  return true;
}
