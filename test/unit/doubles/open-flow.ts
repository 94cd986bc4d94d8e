import { type BufferFlow, type BufferOptions, ClosedBuffer } from '../../../src/agent/buffer-flow.ts';
import { systemClock } from '../../../src/base/clock.ts';
import { type Logger, silentLogger } from '../../../src/base/logger.ts';
import type { Settings } from '../../../src/config/settings.ts';
import { createMetrics } from '../../../src/ops/metrics.ts';

/** Settings of a buffer without limits that commits values immediately. */
export const bufferSettings = (stateDir: string) =>
  ({
    stateDir,
    bufferMaxBytes: 0,
    bufferMaxAgeMs: 0,
    bufferMinFree: { bytes: 0 },
    bufferFull: 'drop-oldest',
    postIntervalMs: 10_000,
    commitIntervalMs: 1,
    commitValues: 1,
  }) as Settings;

/** Opens the buffer as the agent does. */
export async function openFlow(
  stateDir: string,
  settings: Partial<Settings> = {},
  more: Partial<BufferOptions> = {},
): Promise<BufferFlow> {
  const closed = new ClosedBuffer({
    settings: { ...bufferSettings(stateDir), ...settings },
    clock: systemClock,
    log: silentLogger(),
    metrics: createMetrics(() => ({}) as never),
    onDeath: (error) => {
      throw error;
    },
    ...more,
  });
  return closed.open();
}

/** Logger that passes each line's fields to a function. */
export function telling(say: (fields: never) => void): Logger {
  return { info: say, warn: say, error: say, fatal: say } as unknown as Logger;
}
