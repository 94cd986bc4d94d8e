import type {
  DeliveryRecord,
  DeliveryStatus,
  ResendBody,
  Webhook,
  WebhookChange,
  WebhookCreate,
} from '../../contract/webhooks.ts';
import { type ApiCalls, expectDone, expectSuccess, unreadable } from '../client.ts';
import { isPage, jsonObjectOf, ResponseRecord } from '../response-body.ts';
import { listEntries, PAGING_REJECTED, readPages } from './lists.ts';

/**
 * ID and secret of a created webhook. The secret is not returned by any later call; undefined if the response contains
 * none.
 */
export interface NewWebhook {
  id: number;
  secret: string | undefined;
}

/** Webhooks of one client application (platform 4.5, platform 10.4). */
export class Webhooks {
  readonly #client: ApiCalls;
  readonly #base: string;

  constructor(client: ApiCalls, clientApplicationId: number) {
    this.#client = client;
    this.#base = `/v1/client_applications/${clientApplicationId}/webhooks`;
  }

  list(signal?: AbortSignal): AsyncIterable<Webhook> {
    return listEntries(this.#client, { path: this.#base, members: ['webhooks'], signal }, readWebhook);
  }

  async read(id: number, signal?: AbortSignal): Promise<Webhook> {
    const call = { method: 'GET', path: `${this.#base}/${id}`, kind: 'other', signal } as const;
    return readWebhook(await this.#client.record(call, 'webhook'));
  }

  /** Returns whether the webhook exists. Uses a documented call, for platforms that cannot list or read webhooks. */
  async exists(id: number, signal?: AbortSignal): Promise<boolean> {
    const call = { method: 'GET', path: `${this.#base}/${id}/events`, kind: 'other', signal } as const;
    const query = { status: 'failed' };
    let answer = await this.#client.request({ ...call, query: { ...query, per_page: 1 } });
    if (PAGING_REJECTED.has(answer.status)) answer = await this.#client.request({ ...call, query });
    if (answer.status === 404 && !isPage(answer)) return false;
    expectDone(answer, call);
    return true;
  }

  /** Creates a webhook. The ID is read from `Location` or from the body (docs/interface.md). */
  async create(body: WebhookCreate, signal?: AbortSignal): Promise<NewWebhook> {
    const call = { method: 'POST', path: this.#base, body, kind: 'other', signal } as const;
    const answer = await this.#client.request(call);
    expectSuccess(answer, call);
    const json = jsonObjectOf(answer);
    const created = json && ResponseRecord.single(call, json, 'webhook');
    const id = idIn(answer.header('location')) ?? created?.optional('id', created.integer);
    if (id === undefined) throw unreadable(call, 'no ID in Location or in the body');
    // If the response contains no secret, the caller resets the secret.
    return { id, secret: created?.optional('secret', created.string) || undefined };
  }

  async change(id: number, change: WebhookChange, signal?: AbortSignal): Promise<void> {
    await this.#client.act({ method: 'PATCH', path: `${this.#base}/${id}`, body: change, kind: 'other', signal });
  }

  async setDisabled(id: number, disabled: boolean, signal?: AbortSignal): Promise<void> {
    await this.change(id, { disabled }, signal);
  }

  /** Deletes the webhook. A 404 also counts as success, because the webhook no longer exists. */
  async delete(id: number, signal?: AbortSignal): Promise<void> {
    const call = { method: 'DELETE', path: `${this.#base}/${id}`, kind: 'other', signal } as const;
    const answer = await this.#client.request(call);
    if (answer.status !== 404 || isPage(answer)) expectDone(answer, call);
  }

  /** Resets the secret. The server returns the new secret only in this response. */
  async resetSecret(id: number, signal?: AbortSignal): Promise<string> {
    const call = { method: 'POST', path: `${this.#base}/${id}/reset_secret`, kind: 'other', signal } as const;
    const secret = (await this.#client.record(call, 'webhook')).string('secret');
    if (secret === '') throw unreadable(call, 'an empty secret');
    return secret;
  }

  /** Requests that deliveries are sent again. The platform ignores pending deliveries (platform 10.4). */
  async resend(id: number, deliveryIds: readonly number[], signal?: AbortSignal): Promise<void> {
    const body: ResendBody = { webhook_events: deliveryIds.map((delivery) => ({ id: delivery })) };
    await this.#client.act({ method: 'POST', path: `${this.#base}/${id}/events`, body, kind: 'other', signal });
  }
}

function readWebhook(record: ResponseRecord): Webhook {
  const properties = record.optional('properties', record.record);
  const sorted = record.has('force_sorted_delivery')
    ? { force_sorted_delivery: record.boolean('force_sorted_delivery') }
    : {};
  return {
    id: record.integer('id'),
    url: record.optional('url', record.string) ?? '',
    event_types: record.optional('event_types', record.strings) ?? [],
    disabled: record.boolean('disabled'),
    ...(properties === undefined
      ? {}
      : { properties: Object.fromEntries(properties.names.map((name) => [name, properties.strings(name)])) }),
    ...sorted,
  };
}

/** Returns the number at the end of a `Location`, which is a URL or a path. */
function idIn(location: string | undefined): number | undefined {
  const digits = /\/(\d{1,15})\/?(?:[?#].*)?$/.exec(location ?? '')?.[1];
  return digits === undefined ? undefined : Number(digits);
}

/** Optional filters for the delivery list (platform 10.4). */
export interface DeliveryFilter {
  status?: DeliveryStatus;
  eventType?: string;
  /** ISO 8601. */
  occurredFrom?: string;
}

export interface DeliveryPage {
  records: DeliveryRecord[];
  /** Platform time at the response, according to the platform clock. */
  platformMs: number | undefined;
}

/**
 * Yields the deliveries of one webhook, page by page (platform 2.5, 4.5). `order_by` is not used. In descending order, new
 * deliveries move others to later pages; in ascending order, they are appended. Some deliveries may therefore be read
 * twice, but none are missed. Entries that are not objects are skipped, so that valid deliveries are still read.
 *
 * `parse` parses the body; required because payloads may contain numbers that a double cannot represent. Throws
 * `platform.unreadable` if the body does not contain a list.
 */
export async function* readDeliveries(
  client: ApiCalls,
  clientApplicationId: number,
  webhookId: number,
  filter: DeliveryFilter = {},
  signal?: AbortSignal,
  parse: (text: string) => unknown = JSON.parse,
): AsyncGenerator<DeliveryPage, void, undefined> {
  const { status, eventType, occurredFrom } = filter;
  const pages = readPages(client, {
    path: `/v1/client_applications/${clientApplicationId}/webhooks/${webhookId}/events`,
    members: ['events', 'webhook_events'],
    query: { status, event_type: eventType },
    ...(occurredFrom === undefined ? {} : { filter: { occurred_at_from: occurredFrom } }),
    parse,
    signal,
  });
  for await (const { entries } of pages) {
    yield { records: entries.filter(isRecord).map(withNumber), platformMs: client.platformClock.nowMs() };
  }
}

function isRecord(entry: unknown): entry is DeliveryRecord {
  return typeof entry === 'object' && entry !== null && !Array.isArray(entry);
}

/** Converts an ID in a decimal string to a number. */
function withNumber(record: DeliveryRecord): DeliveryRecord {
  const id: unknown = record.id;
  return typeof id === 'string' && /^\d{1,15}$/.test(id) ? { ...record, id: Number(id) } : record;
}
