/** What `tagferry webhook` asks: this gateway's webhook on the platform. */
import { UsageError } from '../base/errors.ts';
import type { ControlRoutes } from './control-server.ts';
import type { OperatedEvents } from './operated-parts.ts';

export function webhookRoutes(events: OperatedEvents): ControlRoutes {
  const { registration } = events;
  return {
    'webhook/ls': async () => ({ webhooks: await registration.list() }),
    'webhook/register': async () => ({ webhook: (await registration.register()).webhook, registered: true }),
    'webhook/enable': async (params) => {
      await registration.enable(optionalNumber(params, 'id'));
      return { enabled: true };
    },
    'webhook/disable': async (params) => {
      await registration.disable(optionalNumber(params, 'id'));
      return { disabled: true };
    },
    'webhook/rotate-secret': async () => {
      await registration.rotateSecret();
      return { rotated: true };
    },
    'webhook/delete': async (params) => {
      await registration.delete(optionalNumber(params, 'id'));
      return { deleted: true };
    },
    'webhook/prune': async (params) => ({ deleted: await registration.prune(numbersIn(params, 'ids')) }),
    'webhook/test': async () => ({ checks: await events.testWebhook() }),
  };
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
