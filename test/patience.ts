import { vi } from 'vitest';
import { PATIENCE_MS } from './patience-ms.ts';

const INTERVAL_MS = 10;

/** Vitest gives up after a second unless told, which a machine under load is late by. Nothing here means a shorter time than this. */
function patient<Options extends { timeout?: number; interval?: number }>(options: number | Options = {} as Options) {
  const given = typeof options === 'number' ? { timeout: options } : options;
  return { interval: INTERVAL_MS, ...given, timeout: Math.max(PATIENCE_MS, given.timeout ?? 0) };
}

// Once in a process that several files share.
if (!vi.waitFor.toString().includes('patient')) {
  const { waitFor, waitUntil } = vi;
  vi.waitFor = (condition, options) => waitFor(condition, patient(options));
  vi.waitUntil = (condition, options) => waitUntil(condition, patient(options));
}
