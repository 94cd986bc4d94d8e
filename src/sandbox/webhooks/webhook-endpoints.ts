import { counted } from '../../base/amounts.ts';
import type { Webhook } from '../../contract/webhooks.ts';
import { type Answer, type Call, idParam, isObject, objectBody, page, timeQuery } from '../http/call.ts';

import { notFound, refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import type { Stage } from '../stage.ts';
import { readWebhookBody } from './webhook-body.ts';
import type { Delivery, WebhookRecord } from './webhook-registry.ts';

const BASE = '/v1/client_applications/:application/webhooks';

/**
 * Adds the endpoints for webhooks of a client application (platform 4.5, and platform 10.4 for operations not shown
 * there).
 */
export function addWebhookEndpoints(router: Router, stage: Stage): void {
  router.add('GET', BASE, (call) => list(call, stage));
  router.add('POST', BASE, (call) => create(call, stage));
  router.add('GET', `${BASE}/:webhook`, (call) => {
    const webhook = found(call, stage);
    return { status: 200, body: shown(webhook), story: `webhook ${webhook.id} read` };
  });
  router.add('PATCH', `${BASE}/:webhook`, (call) => change(call, stage));
  router.add('DELETE', `${BASE}/:webhook`, (call) => remove(call, stage));
  router.add('POST', `${BASE}/:webhook/reset_secret`, (call) => resetSecret(call, stage));
  router.add('GET', `${BASE}/:webhook/events`, (call) => listDeliveries(call, stage));
  router.add('POST', `${BASE}/:webhook/events`, (call) => resend(call, stage));
}

/** A caller can access only the client application for which its token was issued. */
function ownApplication(call: Call, param: string): number {
  const id = idParam(call, param);
  if (id !== call.caller.application) throw notFound(`client application ${id}`);
  return id;
}

/**
 * The specification does not state who can change webhooks (platform 5.9). In strict mode, only the technical user can
 * change them.
 */
function changeable(call: Call, stage: Stage): WebhookRecord {
  const webhook = found(call, stage);
  mustBeTechnical(call, stage);
  return webhook;
}

function mustBeTechnical(call: Call, stage: Stage): void {
  const { user, application } = call.caller;
  if (!stage.strict.has('changers') || stage.site.get('client_applications', application)?.technical_user === user)
    return;
  throw refusal(403, 'only the technical user of the subscription can change webhooks');
}

function found(call: Call, stage: Stage): WebhookRecord {
  const application = ownApplication(call, 'application');
  const id = idParam(call, 'webhook');
  const webhook = stage.webhookRegistry.webhooks.get(id);
  if (webhook?.application !== application) throw notFound(`webhook ${id}`);
  return webhook;
}

/** Returns a webhook without its secret, which is returned only on creation and reset. */
function shown(webhook: WebhookRecord): Webhook {
  return {
    id: webhook.id,
    url: webhook.url,
    event_types: webhook.event_types,
    properties: webhook.properties ?? {},
    disabled: webhook.disabled,
    force_sorted_delivery: webhook.force_sorted_delivery ?? false,
  };
}

function list(call: Call, stage: Stage): Answer {
  const application = ownApplication(call, 'application');
  const own = [...stage.webhookRegistry.webhooks.values()].filter((webhook) => webhook.application === application);
  const { items, pagination } = page(call, own.map(shown));
  return { status: 200, body: { webhooks: items, pagination }, story: `${counted(own.length, 'webhook')} listed` };
}

function create(call: Call, stage: Stage): Answer {
  const application = ownApplication(call, 'application');
  mustBeTechnical(call, stage);
  const { url, event_types, ...rest } = readWebhookBody(objectBody(call), stage);
  if (url === undefined) throw refusal(400, 'is missing', 'url');
  if (event_types === undefined) throw refusal(400, 'is missing', 'event_types');
  const webhook = stage.webhookRegistry.add({
    ...rest,
    application,
    url,
    event_types,
    disabled: rest.disabled ?? false,
    secret: stage.makeToken(),
  });
  return {
    status: 201,
    body: { ...shown(webhook), secret: webhook.secret },
    headers: { location: `${call.path.replace(/\/$/, '')}/${webhook.id}` },
    story: `webhook ${webhook.id} registered for ${counted(event_types.length, 'event type')}`,
  };
}

function change(call: Call, stage: Stage): Answer {
  const webhook = changeable(call, stage);
  const wanted = readWebhookBody(objectBody(call), stage, webhook);
  stage.webhookRegistry.change(webhook, wanted);
  return { status: 204, story: `webhook ${webhook.id} changed (${Object.keys(wanted).join(', ')})` };
}

function remove(call: Call, stage: Stage): Answer {
  const webhook = changeable(call, stage);
  stage.webhookRegistry.remove(webhook.id);
  return { status: 204, story: `webhook ${webhook.id} deleted` };
}

function resetSecret(call: Call, stage: Stage): Answer {
  const webhook = changeable(call, stage);
  stage.webhookRegistry.resetSecret(webhook, stage.makeToken());
  return { status: 200, body: { secret: webhook.secret }, story: `secret of webhook ${webhook.id} reset` };
}

const DELIVERY_FILTERS: readonly string[] = [
  ...['status', 'event_type', 'occurred_at', 'occurred_at_from', 'occurred_at_to', 'order_by'],
  ...['page', 'per_page'],
];

function listDeliveries(call: Call, stage: Stage): Answer {
  const webhook = found(call, stage);
  const unknown = [...call.query.keys()].find((name) => !DELIVERY_FILTERS.includes(name));
  if (unknown !== undefined && stage.strict.has('webhook-members')) {
    throw refusal(400, `must be one of ${DELIVERY_FILTERS.join(', ')}`, unknown.slice(0, 60));
  }
  const chosen = inOrder(call, stage.webhookRegistry.deliveries(webhook.id).filter(filterOf(call)));
  const { items, pagination } = page(call, chosen);
  const story = `${items.length} of ${chosen.length} deliveries of webhook ${webhook.id} listed`;
  return { status: 200, body: { events: items.map(shownDelivery), pagination }, story };
}

function filterOf(call: Call): (delivery: Delivery) => boolean {
  const status = call.query.get('status');
  const type = call.query.get('event_type');
  const at = timeQuery(call, 'occurred_at');
  const from = timeQuery(call, 'occurred_at_from') ?? Number.NEGATIVE_INFINITY;
  const to = timeQuery(call, 'occurred_at_to') ?? Number.POSITIVE_INFINITY;
  return (delivery) =>
    (status === null || status.split(',').includes(delivery.status)) &&
    (type === null || type.split(',').includes(delivery.eventType)) &&
    (at === undefined || at === delivery.occurredAtMs) &&
    delivery.occurredAtMs >= from &&
    delivery.occurredAtMs <= to;
}

/**
 * Sorts by `order_by`, which contains a field, preceded by `-` for descending order. The specification does not show
 * the possible values.
 */
function inOrder(call: Call, deliveries: Delivery[]): Delivery[] {
  const wanted = call.query.get('order_by') ?? 'id';
  const field = wanted.replace(/^-/, '');
  const orders: Record<string, (delivery: Delivery) => number> = {
    id: (delivery) => delivery.id,
    occurred_at: (delivery) => delivery.occurredAtMs,
    last_send_at: (delivery) => delivery.lastSendMs ?? 0,
  };
  const value = orders[field];
  if (!value) throw refusal(400, `must be one of ${Object.keys(orders).join(', ')}`, 'order_by');
  const sign = wanted.startsWith('-') ? -1 : 1;
  return deliveries.sort((a, b) => sign * (value(a) - value(b) || a.id - b.id));
}

function shownDelivery(delivery: Delivery) {
  return {
    id: delivery.id,
    status: delivery.status,
    payload: JSON.parse(delivery.payload) as unknown,
    last_send_at: delivery.lastSendMs === undefined ? null : new Date(delivery.lastSendMs).toISOString(),
    retries: Math.max(0, delivery.attempts - 1),
  };
}

function resend(call: Call, stage: Stage): Answer {
  const webhook = changeable(call, stage);
  const list = objectBody(call).webhook_events;
  if (!Array.isArray(list) || list.some((one) => !isObject(one) || !Number.isInteger(one.id))) {
    throw refusal(400, 'must be a list of {"id": number}', 'webhook_events');
  }
  const deliveries = list.map(({ id }) => {
    const delivery = stage.webhookRegistry.delivery(id as number);
    if (delivery?.webhook !== webhook.id) throw notFound(`webhook event ${id}`);
    return delivery;
  });
  const started = stage.engine.resend(deliveries);
  return { status: 204, story: `${counted(started, 'event')} resent` };
}
