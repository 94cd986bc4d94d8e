import { messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';

/** One step of the way down: waits for a part, and reports its failure instead of ending the stop. */
export function stopSteps(log: Logger): (name: string, work: Promise<unknown> | undefined) => Promise<void> {
  return async (name, work) => {
    try {
      await work;
    } catch (error) {
      log.error({ event: 'agent.stop_failed', step: name, error: messageOf(error) }, 'a part did not stop cleanly');
    }
  };
}
