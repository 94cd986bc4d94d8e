import { insteadOf } from '../../base/nearest.ts';
import { isEventType } from '../../contract/events.ts';
import { type Answer, type Call, idParam } from '../http/call.ts';
import { notFound, refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import { TAMPERING_NAMES, TAMPERINGS, type TamperingName } from '../webhooks/tampering.ts';
import type { NewWebhookFault } from '../webhooks/webhook-faults.ts';
import { adminBody } from './admin-body.ts';
import type { Stage } from './stage.ts';

const MAX_DELAY_MS = 3_600_000;
const MAX_FAULTS = 1_000;

/** Faults on the way from the platform to a receiver, each with what section 7 asks of the receiver. */
export function addWebhookFaultEndpoints(router: Router, stage: Stage): void {
  const add = (method: string, path: string, handle: (call: Call) => Answer) =>
    router.add(method, `/sandbox/${path}`, handle, { auth: 'none' });
  const { webhookFaults } = stage;

  add('GET', 'webhook-faults', () => {
    const kinds = TAMPERING_NAMES.map((kind) => {
      const { does, verdict, section } = TAMPERINGS[kind];
      return { kind, does, verdict, section };
    });
    return { status: 200, body: { kinds, faults: webhookFaults.list(), outcomes: webhookFaults.outcomes() } };
  });
  add('POST', 'webhook-faults', (call) => {
    if (webhookFaults.list().length >= MAX_FAULTS) throw refusal(400, `${MAX_FAULTS} faults are set already`);
    const fault = readFault(adminBody(call, 'webhook-faults'));
    stage.report(`webhooks meet a fault: ${TAMPERINGS[fault.kind].does}`);
    return { status: 201, body: { id: webhookFaults.add(fault) } };
  });
  add('DELETE', 'webhook-faults', () => {
    webhookFaults.clear();
    return { status: 204 };
  });
  add('DELETE', 'webhook-faults/:id', (call) => {
    if (!webhookFaults.remove(idParam(call, 'id'))) throw notFound('the fault');
    return { status: 204 };
  });
}

function readFault(body: Record<string, unknown>): NewWebhookFault {
  const { kind, event_type, delayMs } = body;
  if (!TAMPERING_NAMES.includes(kind as TamperingName)) {
    throw refusal(400, `is unknown: ${insteadOf(String(kind).slice(0, 60), TAMPERING_NAMES)}`, 'kind');
  }
  if (event_type !== undefined && !(typeof event_type === 'string' && isEventType(event_type))) {
    throw refusal(400, 'is no event type', 'event_type');
  }
  for (const name of ['webhook', 'every', 'times'] as const) {
    if (body[name] !== undefined && !(Number.isSafeInteger(body[name]) && (body[name] as number) > 0)) {
      throw refusal(400, 'is no whole number over 0', name);
    }
  }
  if (
    delayMs !== undefined &&
    !(Number.isSafeInteger(delayMs) && (delayMs as number) >= 0 && (delayMs as number) <= MAX_DELAY_MS)
  ) {
    throw refusal(400, `is no whole number up to ${MAX_DELAY_MS}`, 'delayMs');
  }
  return body as unknown as NewWebhookFault;
}
