import { EARLIEST_TRUSTED_MS } from '../base/clock.ts';

const DAY_MS = 86_400_000;

/** Whether a machine whose clock says this can be believed. */
export const isTrusted = (wallMs: number): boolean => wallMs >= EARLIEST_TRUSTED_MS;

/** Times beyond it lie more than a day ahead of a clock that can be trusted: they are taken as they are, counted, and said once. */
export const aheadBeyondMs = (wallMs: number): number =>
  isTrusted(wallMs) ? wallMs + DAY_MS : Number.POSITIVE_INFINITY;
