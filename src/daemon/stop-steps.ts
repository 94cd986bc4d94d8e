import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';

/**
 * One step of the way down: waits for a part, `withinMs` at most where that is said, and reports what goes wrong instead of ending the
 * stop. What is not over then is left behind: the steps that follow matter more, the revocation of the session above all.
 */
export type StopStep = (name: string, work: Promise<unknown> | undefined, withinMs?: number) => Promise<void>;

export function stopSteps(log: Logger, clock: Clock): StopStep {
  return async (name, work, withinMs) => {
    const over = new AbortController();
    const tooLate =
      withinMs === undefined
        ? []
        : [
            clock.sleep(withinMs, over.signal).then(() => {
              throw new Error(`it was not over within ${withinMs / 1000} s`);
            }),
          ];
    try {
      await Promise.race([work, ...tooLate]);
    } catch (error) {
      log.error({ event: 'agent.stop_failed', step: name, error: messageOf(error) }, 'a part did not stop cleanly');
    } finally {
      over.abort();
    }
  };
}
