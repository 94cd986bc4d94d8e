import { vi } from 'vitest';

/** Time limit for conditions, in milliseconds: sufficient on a slow machine, and the delay of a failing test. */
export const PATIENCE_MS = 60_000;

const INTERVAL_MS = 10;

/** The default of one second is too short for a machine under load. No test asserts a shorter time than this. */
function patient<Options extends { timeout?: number; interval?: number }>(options: number | Options = {} as Options) {
  const given = typeof options === 'number' ? { timeout: options } : options;
  return { interval: INTERVAL_MS, ...given, timeout: Math.max(PATIENCE_MS, given.timeout ?? 0) };
}

// Set once per process, which several files may share.
if (!vi.waitFor.toString().includes('patient')) {
  const { waitFor, waitUntil } = vi;
  vi.waitFor = (condition, options) => waitFor(condition, patient(options));
  vi.waitUntil = (condition, options) => waitUntil(condition, patient(options));
}
