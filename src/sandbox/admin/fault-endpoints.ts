import { type Call, idParam } from '../http/call.ts';
import { adminBody, required } from '../http/forms.ts';
import { notFound, refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import type { Stage } from '../stage.ts';
import { TAMPERING_NAMES, TAMPERINGS } from '../webhooks/tampering.ts';
import type { NewWebhookFault } from '../webhooks/webhook-faults.ts';
import { addAdmin } from './admin-endpoints.ts';

const MAX_WEBHOOK_FAULTS = 1_000;

/** Adds the endpoints for faults: outages, failing responses, rejected values, rates, and tampered webhook deliveries. */
export function addFaultEndpoints(router: Router, stage: Stage): void {
  const { faults, webhookFaults } = stage;
  const add = (endpoint: string, handle: Parameters<typeof addAdmin>[2]) => addAdmin(router, endpoint, handle);

  router.add('POST', '/sandbox/offline', (call) => goOffline(call, stage), { auth: 'none' });
  add('POST online', () => stage.goOnline());

  add('GET faults', () => ({ faults: faults.list(), poisons: faults.poisons() }));
  add('POST faults', (call) => {
    const fault = adminBody(call, {
      method: 'text',
      path: 'text',
      asset: 'number',
      nth: 'count',
      every: 'count',
      times: 'count',
      status: 'status',
      body: 'any',
      contentType: 'text',
      retryAfter: 'textOrNumber',
      latencyMs: 'milliseconds',
      drop: ['before', 'after'],
    });
    stage.report(`fault set: ${JSON.stringify(fault).slice(0, 120)}`);
    return { id: faults.add(fault) };
  });
  add('DELETE faults', () => {
    faults.clear();
    webhookFaults.clear();
    stage.report('all faults removed');
  });
  add('DELETE faults/:id', (call) => {
    if (!faults.remove(idParam(call, 'id'))) throw notFound('the fault');
  });
  add('POST poison', (call) => {
    const shape = { asset: 'number', key: 'text', value: 'number', timestampMs: 'number', status: 'status' } as const;
    faults.poison(adminBody(call, shape));
  });
  add('PATCH limits', (call) => {
    const shape = { perUser: 'limit', perApiKey: 'limit', perAddress: 'limit', retryAfter: 'flag' } as const;
    stage.usage.change(adminBody(call, shape));
  });

  add('GET webhook-faults', () => ({
    kinds: TAMPERING_NAMES.map((kind) => ({ kind, does: TAMPERINGS[kind].does, verdict: TAMPERINGS[kind].verdict })),
    faults: webhookFaults.list(),
    outcomes: webhookFaults.outcomes(),
  }));
  add('POST webhook-faults', (call) => {
    if (webhookFaults.list().length >= MAX_WEBHOOK_FAULTS) throw refusal(400, `at most ${MAX_WEBHOOK_FAULTS} faults`);
    const body = adminBody(call, {
      kind: TAMPERING_NAMES,
      webhook: 'count',
      event_type: 'eventType',
      every: 'count',
      times: 'count',
      delayMs: 'milliseconds',
    });
    required(body, 'kind');
    const fault = body as NewWebhookFault;
    stage.report(`webhook fault set: ${TAMPERINGS[fault.kind].does}`);
    return { id: webhookFaults.add(fault) };
  });
  add('DELETE webhook-faults', () => webhookFaults.clear());
  add('DELETE webhook-faults/:id', (call) => {
    if (!webhookFaults.remove(idParam(call, 'id'))) throw notFound('the fault');
  });
}

/**
 * Starts an outage. `forMs` is its duration in real milliseconds, which is required for `refuse` unless the admin API
 * has a separate address.
 */
function goOffline(call: Call, stage: Stage) {
  const {
    mode = 'refuse',
    retryAfter,
    forMs,
  } = adminBody(call, { mode: 'any', retryAfter: 'textOrNumber', forMs: 'number' });
  const isStatus = Number.isInteger(mode) && (mode as number) >= 200 && (mode as number) <= 599;
  if (mode !== 'refuse' && mode !== 'drop' && !isStatus) throw refusal(400, 'must be refuse, drop or a status', 'mode');
  if (mode === 'refuse' && forMs === undefined && stage.adminUrl === stage.url) {
    throw refusal(400, 'is required: without it, this address stays closed', 'forMs');
  }
  const retry = retryAfter === undefined ? {} : { retryAfter };
  const how = mode === 'refuse' || mode === 'drop' ? mode : { status: mode as number, ...retry };
  // Start the outage after the response, because `refuse` closes the connection.
  stage.later(50, () => stage.goOffline(how));
  if (forMs !== undefined) stage.later(50 + forMs, () => stage.goOnline());
  return { status: 202 };
}
