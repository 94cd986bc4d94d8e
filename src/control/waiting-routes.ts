import { TagferryError } from '../base/errors.ts';
import type { ControlHandler, ControlRoutes } from './control-server.ts';

/** The daemon runs and its start is not over: what it waits for, and what to do. */
export const AGENT_WAITING = 'agent.waiting';

/** What the control socket answers while a start waits: to every operation, why it waits. */
export function waitingRoutes(why: () => TagferryError | undefined): ControlRoutes {
  const refuse: ControlHandler = async () => {
    const { message, hint } = why() ?? { message: 'it is over in a moment' };
    throw new TagferryError(`the daemon waits at its start: ${message}`, {
      code: AGENT_WAITING,
      ...(hint === undefined ? {} : { hint }),
    });
  };
  return new Proxy({}, { get: () => refuse });
}
