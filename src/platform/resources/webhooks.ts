import type { ResendBody, Webhook, WebhookChange, WebhookCreate } from '../../contract/webhooks.ts';
import { isPage, jsonObjectOf } from '../answer-body.ts';
import { CallRefusal } from '../call-refusal.ts';
import { type ApiCalls, expectDone, unreadable } from '../client.ts';
import { listEntries } from '../pages.ts';
import { ResponseRecord } from '../response-record.ts';

/** What a creation gives: the id, and the secret, which no later call tells again; `undefined` where it was not told. */
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
    return listEntries(this.#client, this.#base, ['webhooks'], readWebhook, { signal });
  }

  async read(id: number, signal?: AbortSignal): Promise<Webhook> {
    const call = { method: 'GET', path: `${this.#base}/${id}`, kind: 'other', signal } as const;
    return readWebhook(await this.#client.record(call, 'webhook'));
  }

  /** Whether the webhook exists, by a documented call: for a platform that neither lists nor reads webhooks. */
  async exists(id: number, signal?: AbortSignal): Promise<boolean> {
    const call = { method: 'GET', path: `${this.#base}/${id}/events`, kind: 'other', signal } as const;
    return this.#client.call({ ...call, query: { status: 'failed', per_page: 1 } }).then(
      () => true,
      (error: unknown) => {
        if (error instanceof CallRefusal && error.status === 404) return false;
        throw error;
      },
    );
  }

  /** Registers an address. The id comes from the body, or from `Location` (docs/interface.md). */
  async create(body: WebhookCreate, signal?: AbortSignal): Promise<NewWebhook> {
    const call = { method: 'POST', path: this.#base, body, kind: 'other', signal } as const;
    const answer = await this.#client.answered(call);
    const json = jsonObjectOf(answer);
    const created = json && ResponseRecord.single(call, json, 'webhook');
    const id = idIn(answer.header('location')) ?? created?.optional('id', created.integer);
    if (id === undefined) throw unreadable(call, 'no id, neither in Location nor in the body');
    // Without a secret in the response the caller resets it.
    return { id, secret: created?.optional('secret', created.string) || undefined };
  }

  async change(id: number, change: WebhookChange, signal?: AbortSignal): Promise<void> {
    await this.#client.act({ method: 'PATCH', path: `${this.#base}/${id}`, body: change, kind: 'other', signal });
  }

  async setDisabled(id: number, disabled: boolean, signal?: AbortSignal): Promise<void> {
    await this.change(id, { disabled }, signal);
  }

  /** 404 counts: it is gone. */
  async delete(id: number, signal?: AbortSignal): Promise<void> {
    const call = { method: 'DELETE', path: `${this.#base}/${id}`, kind: 'other', signal } as const;
    const answer = await this.#client.request(call);
    if (answer.status !== 404 || isPage(answer)) expectDone(answer, call);
  }

  /** The server chooses a new secret and tells it this once. */
  async resetSecret(id: number, signal?: AbortSignal): Promise<string> {
    const call = { method: 'POST', path: `${this.#base}/${id}/reset_secret`, kind: 'other', signal } as const;
    const secret = (await this.#client.record(call, 'webhook')).string('secret');
    if (secret === '') throw unreadable(call, 'an empty secret');
    return secret;
  }

  /** Asks for deliveries again; those that are pending are ignored (platform 10.4). */
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

/** The number at the end of a `Location`, whether address or path. */
function idIn(location: string | undefined): number | undefined {
  const digits = /\/(\d{1,15})\/?(?:[?#].*)?$/.exec(location ?? '')?.[1];
  return digits === undefined ? undefined : Number(digits);
}
