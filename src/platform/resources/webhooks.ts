import type {
  ResendBody,
  Webhook,
  WebhookChange,
  WebhookCreate,
  WebhookCreated,
  WebhookSecret,
} from '../../contract/webhooks.ts';
import { isPage, jsonObjectOf } from '../answer-body.ts';
import { type ApiCalls, expectDone, unreadable } from '../client.ts';
import { listEntries } from '../pages.ts';

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
    return listEntries(this.#client, this.#base, ['webhooks'], { signal });
  }

  async read(id: number, signal?: AbortSignal): Promise<Webhook | undefined> {
    return this.#client.call({ method: 'GET', path: `${this.#base}/${id}`, kind: 'other', signal });
  }

  /** Registers an address. The id comes from the body, or from `Location` (docs/interface.md). */
  async create(body: WebhookCreate, signal?: AbortSignal): Promise<NewWebhook> {
    const call = { method: 'POST', path: this.#base, body, kind: 'other', signal } as const;
    const answer = await this.#client.answered(call);
    const created: Partial<WebhookCreated> | undefined = jsonObjectOf(answer);
    const id = idIn(answer.header('location')) ?? created?.id;
    if (typeof id !== 'number') throw unreadable(call, 'no id, neither in Location nor in the body');
    // The webhook is there all the same: whoever made it has its secret reset.
    const secret = typeof created?.secret === 'string' && created.secret !== '' ? created.secret : undefined;
    return { id, secret };
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
    const { secret } = (await this.#client.call<Partial<WebhookSecret>>(call)) ?? {};
    if (typeof secret !== 'string' || secret === '') throw unreadable(call, 'no secret');
    return secret;
  }

  /** Asks for deliveries again; those that are pending are ignored (platform 10.4). */
  async resend(id: number, deliveryIds: readonly number[], signal?: AbortSignal): Promise<void> {
    const body: ResendBody = { webhook_events: deliveryIds.map((delivery) => ({ id: delivery })) };
    await this.#client.act({ method: 'POST', path: `${this.#base}/${id}/events`, body, kind: 'other', signal });
  }
}

/** The number at the end of a `Location`, whether address or path. */
function idIn(location: string | undefined): number | undefined {
  const digits = /\/(\d{1,15})\/?(?:[?#].*)?$/.exec(location ?? '')?.[1];
  return digits === undefined ? undefined : Number(digits);
}
