/** What verbs can ask of a running daemon, by name; each answer is what the verb prints with `--json`. */
import { UsageError } from '../errors.ts';
import type { Session } from '../platform/session/session.ts';
import type { BufferFlow } from './buffer-flow.ts';
import type { ControlRoutes } from './control-server.ts';
import type { PlatformDiagnosis } from './diagnosis.ts';
import { listEvents, replayEvent, showEvent } from './event-routes.ts';
import type { EventsFlow } from './events-flow.ts';
import { sessionReport } from './status-report.ts';

export interface ControlParts {
  buffer: BufferFlow;
  events: EventsFlow;
  session: Session;
  /** Whatever posts wait for, one is tried at once. */
  tryPosting(): void;
  status(): Promise<unknown>;
  reload(): Promise<void>;
  setLogLevel(level: string): void;
  diagnose(): Promise<PlatformDiagnosis>;
}

const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal'];

export function controlRoutes(parts: ControlParts): ControlRoutes {
  const { buffer, events, session } = parts;
  return {
    status: () => parts.status(),
    reload: async () => {
      await parts.reload();
      return { reloaded: true };
    },
    'log-level': async (params) => {
      const level = textOf(params, 'level');
      if (!LOG_LEVELS.includes(level)) throw new UsageError(`there is no level "${level}"`);
      parts.setLogLevel(level);
      return { level };
    },

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

    'events/ls': (params) => listEvents(buffer.inbox, params),
    'events/show': (params) => showEvent(buffer.inbox, params),
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
    'webhook/test': async () => ({ checks: await events.testWebhook() }),
  };
}

function textOf(params: Record<string, unknown>, name: string): string {
  const value = params[name];
  if (typeof value !== 'string') throw new UsageError(`${name} is missing`);
  return value;
}

function optionalNumber(params: Record<string, unknown>, name: string): number | undefined {
  const value = params[name];
  if (value === undefined) return undefined;
  if (typeof value !== 'number' || !Number.isSafeInteger(value)) throw new UsageError(`${name} is no number`);
  return value;
}
