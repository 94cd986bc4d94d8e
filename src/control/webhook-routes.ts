/** What `tagferry webhook` asks: this gateway's webhook on the platform. */
import { UsageError } from '../base/errors.ts';
import { MAX_LISTED } from '../webhook/deliveries.ts';
import type { ControlRoutes } from './control-server.ts';
import type { OperatedEvents } from './operated-parts.ts';

export function webhookRoutes(events: OperatedEvents): ControlRoutes {
  const { registration, deliveries } = events;
  return {
    'webhook/ls': async () => ({ webhooks: await registration.list() }),
    'webhook/register': async () => {
      const { webhook } = await registration.register();
      return { webhook, registered: true, disabled: registration.disabledBy !== undefined };
    },
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
    'webhook/deliveries': (params) => {
      const { status, event_type: eventType } = params;
      const sinceMs = optionalNumber(params, 'since_ms');
      const limit = optionalNumber(params, 'limit');
      return deliveries.list({
        webhook: optionalNumber(params, 'webhook'),
        ...(typeof status === 'string' ? { status } : {}),
        ...(typeof eventType === 'string' ? { eventType } : {}),
        ...(sinceMs === undefined ? {} : { sinceMs }),
        ...(limit === undefined ? {} : { limit }),
      });
    },
    'webhook/resend': (params) => {
      const webhook = optionalNumber(params, 'webhook');
      return params.all_failed === true ? deliveries.resendFailed(webhook) : deliveries.resend(idsIn(params), webhook);
    },
    'webhook/test': async () => ({ checks: await events.testWebhook() }),
  };
}

function idsIn(params: Record<string, unknown>): number[] {
  const ids = numbersIn(params, 'ids');
  if (ids.length === 0 || ids.length > MAX_LISTED) throw new UsageError(`ids must be 1 to ${MAX_LISTED} numbers`);
  return ids;
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
