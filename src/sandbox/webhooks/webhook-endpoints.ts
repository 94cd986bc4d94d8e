import { counted } from '../../base/amounts.ts';
import type { Webhook } from '../../contract/webhooks.ts';
import { type Answer, type Call, idParam, isObject, objectBody } from '../http/call.ts';
import { page } from '../http/paging.ts';
import { notFound, refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import { readTimestamp } from '../values/values-body.ts';
import type { DeliveryEngine } from './delivery-engine.ts';
import { readWebhookBody, type WebhookRules } from './webhook-body.ts';
import type { Delivery, WebhookRecord, WebhookRegistry } from './webhook-registry.ts';

export interface WebhookContext extends WebhookRules {
  registry: WebhookRegistry;
  engine: DeliveryEngine;
  makeSecret(): string;
  /** Which member holds the deliveries list: not shown, and seen both ways. */
  deliveriesUnder: 'events' | 'webhook_events';
  /** The technical user of a client application. */
  technicalUser(application: number): number | undefined;
}

const BASE = '/v1/client_applications/:application/webhooks';

/** Webhooks of a client application (platform 4.5; the operations it does not show follow platform 10.4). */
export function addWebhookEndpoints(router: Router, context: WebhookContext): void {
  router.add('GET', BASE, (call) => list(call, context));
  router.add('POST', BASE, (call) => create(call, context));
  router.add('GET', `${BASE}/:webhook`, (call) => {
    const webhook = found(call, context);
    return { status: 200, body: shown(webhook), story: `webhook ${webhook.id} is looked at` };
  });
  router.add('PATCH', `${BASE}/:webhook`, (call) => change(call, context));
  router.add('DELETE', `${BASE}/:webhook`, (call) => remove(call, context));
  router.add('POST', `${BASE}/:webhook/reset_secret`, (call) => resetSecret(call, context));
  router.add('GET', `${BASE}/:webhook/events`, (call) => listDeliveries(call, context));
  router.add('POST', `${BASE}/:webhook/events`, (call) => resend(call, context));
}

/** Only the client application that the token was issued to is known to its bearer. */
function ownApplication(call: Call, param: string): number {
  const id = idParam(call, param);
  if (id !== call.caller.application) throw notFound(`client application ${id}`);
  return id;
}

/** Who may change webhooks and secrets is not shown (platform 5.9); strictly it is the subscription's technical user alone. */
function changeable(call: Call, context: WebhookContext): WebhookRecord {
  const webhook = found(call, context);
  mustBeTechnical(call, context);
  return webhook;
}

function mustBeTechnical(call: Call, context: WebhookContext): void {
  const { user, application } = call.caller;
  if (!context.strict.has('changers') || context.technicalUser(application) === user) return;
  throw refusal(403, 'webhooks are changed by the technical user of the subscription');
}

function found(call: Call, context: WebhookContext): WebhookRecord {
  const application = ownApplication(call, 'application');
  const id = idParam(call, 'webhook');
  const webhook = context.registry.webhooks.get(id);
  if (webhook?.application !== application) throw notFound(`webhook ${id}`);
  return webhook;
}

/** Without the secret, which only creation and reset give. */
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

function list(call: Call, context: WebhookContext): Answer {
  const application = ownApplication(call, 'application');
  const own = [...context.registry.webhooks.values()].filter((webhook) => webhook.application === application);
  const { items, pagination } = page(call, own.map(shown));
  return { status: 200, body: { webhooks: items, pagination }, story: `${counted(own.length, 'webhook')} looked at` };
}

function create(call: Call, context: WebhookContext): Answer {
  const application = ownApplication(call, 'application');
  mustBeTechnical(call, context);
  const { url, event_types, ...rest } = readWebhookBody(objectBody(call), context);
  if (url === undefined) throw refusal(400, 'is missing', 'url');
  if (event_types === undefined) throw refusal(400, 'is missing', 'event_types');
  const webhook = context.registry.add({
    ...rest,
    application,
    url,
    event_types,
    disabled: rest.disabled ?? false,
    secret: context.makeSecret(),
  });
  return {
    status: 201,
    body: { ...shown(webhook), secret: webhook.secret },
    headers: { location: `${call.path.replace(/\/$/, '')}/${webhook.id}` },
    story: `webhook ${webhook.id} is registered for ${counted(event_types.length, 'event type')}`,
  };
}

function change(call: Call, context: WebhookContext): Answer {
  const webhook = changeable(call, context);
  const wanted = readWebhookBody(objectBody(call), context, webhook);
  if (wanted.disabled === false) context.registry.forgetFailures(webhook);
  Object.assign(webhook, wanted);
  return { status: 204, story: `webhook ${webhook.id} is changed (${Object.keys(wanted).join(', ')})` };
}

function remove(call: Call, context: WebhookContext): Answer {
  const webhook = changeable(call, context);
  context.registry.remove(webhook.id);
  return { status: 204, story: `webhook ${webhook.id} is deleted` };
}

function resetSecret(call: Call, context: WebhookContext): Answer {
  const webhook = changeable(call, context);
  webhook.secret = context.makeSecret();
  return { status: 200, body: { secret: webhook.secret }, story: `webhook ${webhook.id} gets a new secret` };
}

const DELIVERY_FILTERS: readonly string[] = [
  ...['status', 'event_type', 'occurred_at', 'occurred_at_from', 'occurred_at_to', 'order_by'],
  ...['page', 'per_page'],
];

function listDeliveries(call: Call, context: WebhookContext): Answer {
  const webhook = found(call, context);
  const unknown = [...call.query.keys()].find((name) => !DELIVERY_FILTERS.includes(name));
  if (unknown !== undefined && context.strict.has('webhook-members')) {
    throw refusal(400, `is none of ${DELIVERY_FILTERS.join(', ')}`, unknown.slice(0, 60));
  }
  const chosen = inOrder(call, context.registry.deliveries(webhook.id).filter(filterOf(call)));
  const { items, pagination } = page(call, chosen);
  const story = `${items.length} of ${chosen.length} deliveries of webhook ${webhook.id} are looked at`;
  return { status: 200, body: { [context.deliveriesUnder]: items.map(shownDelivery), pagination }, story };
}

function filterOf(call: Call): (delivery: Delivery) => boolean {
  const status = call.query.get('status');
  const type = call.query.get('event_type');
  const at = time(call, 'occurred_at');
  const from = time(call, 'occurred_at_from') ?? Number.NEGATIVE_INFINITY;
  const to = time(call, 'occurred_at_to') ?? Number.POSITIVE_INFINITY;
  return (delivery) =>
    (status === null || status.split(',').includes(delivery.status)) &&
    (type === null || type.split(',').includes(delivery.eventType)) &&
    (at === undefined || at === delivery.occurredAtMs) &&
    delivery.occurredAtMs >= from &&
    delivery.occurredAtMs <= to;
}

/** `order_by`: a field, `-` before it for the other way round. Its exact values are not shown. */
function inOrder(call: Call, deliveries: Delivery[]): Delivery[] {
  const wanted = call.query.get('order_by') ?? 'id';
  const field = wanted.replace(/^-/, '');
  const orders: Record<string, (delivery: Delivery) => number> = {
    id: (delivery) => delivery.id,
    occurred_at: (delivery) => delivery.occurredAtMs,
    last_send_at: (delivery) => delivery.lastSendMs ?? 0,
  };
  const value = orders[field];
  if (!value) throw refusal(400, `is none of ${Object.keys(orders).join(', ')}`, 'order_by');
  const sign = wanted.startsWith('-') ? -1 : 1;
  return deliveries.sort((a, b) => sign * (value(a) - value(b) || a.id - b.id));
}

function time(call: Call, name: string): number | undefined {
  const text = call.query.get(name);
  if (text === null) return undefined;
  const ms = readTimestamp(text);
  if (ms === undefined) throw refusal(400, 'is no ISO 8601 time', name);
  return ms;
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

function resend(call: Call, context: WebhookContext): Answer {
  const webhook = changeable(call, context);
  const list = objectBody(call).webhook_events;
  if (!Array.isArray(list) || list.some((one) => !isObject(one) || !Number.isInteger(one.id))) {
    throw refusal(400, 'is no list of {"id": number}', 'webhook_events');
  }
  const deliveries = list.map(({ id }) => {
    const delivery = context.registry.delivery(id as number);
    if (delivery?.webhook !== webhook.id) throw notFound(`webhook event ${id}`);
    return delivery;
  });
  const started = context.engine.resend(deliveries);
  return { status: 204, story: `${counted(started, 'event')} asked for again` };
}
