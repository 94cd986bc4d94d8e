/** Control routes of the agent: status, reload, log, session, and the responses during startup. */
import { type ConfigurationError, messageOf, TagferryError, UsageError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { RecentLines } from '../base/recent-lines.ts';
import type { ConfigurationReport } from '../config/configuration-report.ts';
import type { Session } from '../platform/session/session.ts';
import { sessionReport } from '../platform/session/session-report.ts';
import type { ControlHandler, ControlRoutes } from './control-server.ts';
import type { PlatformDiagnosis } from './diagnosis.ts';
import { choiceIn } from './params.ts';

export interface AgentParts {
  status(): Promise<unknown>;
  /** Throws if the files are rejected. */
  reload(): Promise<ConfigurationReport>;
  log: Logger;
  diagnose(): Promise<PlatformDiagnosis>;
}

const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal'];

export function agentRoutes(parts: AgentParts): ControlRoutes {
  return {
    status: () => parts.status(),
    reload: async () => {
      try {
        return { reloaded: true, ...(await parts.reload()) };
      } catch (error) {
        const { problems } = error as Partial<ConfigurationError>;
        return { reloaded: false, problems: problems ?? [messageOf(error)] };
      }
    },
    'log-level': async (params) => {
      const level = choiceIn(params, 'level', LOG_LEVELS);
      if (level === undefined) throw new UsageError('level is missing');
      parts.log.level = level;
      return { level };
    },
    diagnose: () => parts.diagnose(),
  };
}

/**
 * `logs` streams the lines in memory, preceded by the line `{"kept":n}` with the number of lines. With `follow`, the
 * response continues with new lines and reports lines that a slow reader missed as `{"missed":n}`.
 */
export function logRoutes(recent: RecentLines | undefined): ControlRoutes {
  return {
    logs: async ({ follow }, { signal, write }) => {
      let { lines, next } = recent?.since(0) ?? { lines: [], next: 0 };
      await write(`{"kept":${lines.length}}\n`);
      for (;;) {
        // Lines are written one by one, so that at most one line is buffered for a slow reader.
        for (const line of lines) await write(`${line}\n`);
        if (follow !== true || recent === undefined) return;
        await recent.changed(next, signal);
        if (signal.aborted) return;
        const more = recent.since(next);
        if (more.missed > 0) await write(`{"missed":${more.missed}}\n`);
        ({ lines, next } = more);
      }
    },
  };
}

/** `tryPosting` retries a post immediately, because a manual renewal usually follows a fix. */
export function sessionRoutes(session: Session, tryPosting: () => void): ControlRoutes {
  return {
    'session/show': async () => sessionReport(session),
    'session/renew': async () => {
      await session.renewNow();
      tryPosting();
      return sessionReport(session);
    },
    'session/revoke': async () => {
      await session.revokeNow();
      return sessionReport(session);
    },
  };
}

/** Error code in all responses during startup. */
export const AGENT_WAITING = 'agent.waiting';

/** Responds to every request during startup with the reason for the wait. */
export function waitingRoutes(reason: () => TagferryError | undefined): ControlRoutes {
  const reject: ControlHandler = async () => {
    const { message, hint } = reason() ?? { message: 'ready in a moment' };
    throw new TagferryError(`the agent has not finished starting: ${message}`, { code: AGENT_WAITING, hint });
  };
  return new Proxy({}, { get: () => reject });
}
