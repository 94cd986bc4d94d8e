/** What verbs can ask of a running daemon, by name; each answer is what the verb prints with `--json`. */
import { type ConfigurationError, messageOf, UsageError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { RecentLines } from '../base/recent-lines.ts';
import type { ConfigurationReport } from '../config/configuration-report.ts';
import type { Session } from '../platform/session/session.ts';
import { sessionReport } from '../platform/session/session-report.ts';
import type { ControlRoutes } from './control-server.ts';
import type { PlatformDiagnosis } from './diagnosis.ts';
import { listEvents, type ReadableInbox, replayEvent, showEvent } from './event-routes.ts';
import { logRoutes } from './log-routes.ts';
import type { OperatedEvents } from './operated-parts.ts';

export interface ControlParts {
  inbox: ReadableInbox;
  events: OperatedEvents;
  session: Session;
  /** Whatever posts wait for, one is tried at once. */
  tryPosting(): void;
  status(): Promise<unknown>;
  /** Throws where the files are refused. */
  reload(): Promise<ConfigurationReport>;
  log: Logger;
  /** What it said last; where nobody keeps it the route `logs` has nothing to show. */
  recentLines: RecentLines | undefined;
  diagnose(): Promise<PlatformDiagnosis>;
}

const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal'];

export function controlRoutes(parts: ControlParts): ControlRoutes {
  const { inbox, events, session } = parts;
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
      const level = textOf(params, 'level');
      if (!LOG_LEVELS.includes(level)) throw new UsageError(`there is no level "${level}"`);
      parts.log.level = level;
      return { level };
    },

    ...logRoutes(parts.recentLines),
    diagnose: () => parts.diagnose(),

    'session/show': async () => sessionReport(session),
    'session/renew': async () => {
      await session.renewNow();
      // Who renews by hand has mended something, or wants to know whether somebody has.
      parts.tryPosting();
      return sessionReport(session);
    },
    'session/revoke': async () => {
      await session.revokeNow();
      return sessionReport(session);
    },

    'events/ls': (params) => listEvents(inbox, params),
    'events/show': (params) => showEvent(inbox, params),
    'events/replay': (params) => replayEvent((id) => events.runner.replay(id), params),
    'events/catch-up': () => events.catchUp.catchUpNow(),

    'webhook/ls': async () => ({ webhooks: await events.registration.list() }),
    'webhook/register': async () => ({ webhook: (await events.registration.register()).webhook, registered: true }),
    'webhook/enable': async (params) => {
      await events.registration.enable(optionalNumber(params, 'id'));
      return { enabled: true };
    },
    'webhook/disable': async (params) => {
      await events.registration.disable(optionalNumber(params, 'id'));
      return { disabled: true };
    },
    'webhook/rotate-secret': async () => {
      await events.registration.rotateSecret();
      return { rotated: true };
    },
    'webhook/delete': async (params) => {
      await events.registration.delete(optionalNumber(params, 'id'));
      return { deleted: true };
    },
    'webhook/prune': async (params) => ({ deleted: await events.registration.prune(numbersIn(params, 'ids')) }),
    'webhook/test': async () => ({ checks: await events.testWebhook() }),
  };
}

function textOf(params: Record<string, unknown>, name: string): string {
  const value = params[name];
  if (typeof value !== 'string') throw new UsageError(`${name} is missing`);
  return value;
}

function numbersIn(params: Record<string, unknown>, name: string): number[] {
  const values = params[name];
  if (!Array.isArray(values) || !values.every((value) => Number.isSafeInteger(value))) {
    throw new UsageError(`${name} is no list of numbers`);
  }
  return values as number[];
}

function optionalNumber(params: Record<string, unknown>, name: string): number | undefined {
  const value = params[name];
  if (value === undefined) return undefined;
  if (typeof value !== 'number' || !Number.isSafeInteger(value)) throw new UsageError(`${name} is no number`);
  return value;
}
