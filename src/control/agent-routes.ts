/** What verbs ask of the daemon itself, by name; each answer is what the verb prints with `--json`. */
import { type ConfigurationError, messageOf, UsageError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { ConfigurationReport } from '../config/configuration-report.ts';
import type { ControlRoutes } from './control-server.ts';
import type { PlatformDiagnosis } from './diagnosis.ts';

export interface AgentParts {
  status(): Promise<unknown>;
  /** Throws where the files are refused. */
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
    'log-level': async ({ level }) => {
      if (typeof level !== 'string') throw new UsageError('level is missing');
      if (!LOG_LEVELS.includes(level)) throw new UsageError(`there is no level "${level}"`);
      parts.log.level = level;
      return { level };
    },
    diagnose: () => parts.diagnose(),
  };
}
