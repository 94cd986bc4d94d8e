import { DELIVERY_ATTEMPTS } from '../../contract/webhooks.ts';

const DAYS_3_MS = 3 * 24 * 3600 * 1000;

/** 15 delays that double add up to this many times the first. */
const SUM_OF_DOUBLINGS = 2 ** (DELIVERY_ATTEMPTS - 1) - 1;

/** So that all delays together are three days in the mean: some 8 s, then 16, ... the last some 36 h. */
export const FIRST_DELAY_MS = DAYS_3_MS / SUM_OF_DOUBLINGS;

/**
 * The delay before the attempt that follows `attempts` (1 to 15) failed ones, in milliseconds; `undefined` when 16 are
 * spent. Platform 6.1: "up to 16 attempts, exponentially increasing random delay, about 3 days in total". A quarter either
 * way keeps each delay longer than the one before: 1.25 × d < 0.75 × 2d.
 */
export function retryDelayMs(attempts: number, random: () => number): number | undefined {
  if (attempts >= DELIVERY_ATTEMPTS) return undefined;
  return FIRST_DELAY_MS * 2 ** (attempts - 1) * (0.75 + 0.5 * random());
}
