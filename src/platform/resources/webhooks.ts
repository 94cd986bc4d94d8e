import type {
  ResendBody,
  Webhook,
  WebhookChange,
  WebhookCreate,
  WebhookCreated,
  WebhookSecret,
} from '../../contract/webhooks.ts';
import { type PlatformClient, unreadable } from '../client.ts';
import type { PlatformAnswer } from '../http-boundary.ts';
import { listEntries } from '../pages.ts';

/** What a creation gives: the id, and the secret, which no later call tells again. */
export type NewWebhook = Pick<WebhookCreated, 'id' | 'secret'>;

/** Webhooks of one client application (spec 4.5, beyond-the-spec "Webhooks"). */
export class Webhooks {
  readonly #client: PlatformClient;
  readonly #base: string;

  constructor(client: PlatformClient, clientApplicationId: number) {
    this.#client = client;
    this.#base = `/v1/client_applications/${clientApplicationId}/webhooks`;
  }

  list(signal?: AbortSignal): AsyncIterable<Webhook> {
    return listEntries(this.#client, this.#base, ['webhooks'], { signal });
  }

  async read(id: number, signal?: AbortSignal): Promise<Webhook | undefined> {
    return this.#client.call({ method: 'GET', path: `${this.#base}/${id}`, kind: 'other', signal });
  }

  /** Registers an address. The id comes from the body, or from `Location` (INTERFACE.md). */
  async create(body: WebhookCreate, signal?: AbortSignal): Promise<NewWebhook> {
    const call = { method: 'POST', path: this.#base, body, kind: 'other', signal } as const;
    const answer = await this.#client.answered(call);
    const created = jsonOf(answer) as Partial<WebhookCreated> | undefined;
    const id = idIn(answer.header('location')) ?? created?.id;
    if (typeof created?.secret !== 'string' || created.secret === '') throw unreadable(call, 'no secret');
    if (typeof id !== 'number') throw unreadable(call, 'no id, neither in Location nor in the body');
    return { id, secret: created.secret };
  }

  async change(id: number, change: WebhookChange, signal?: AbortSignal): Promise<void> {
    await this.#client.answered({ method: 'PATCH', path: `${this.#base}/${id}`, body: change, kind: 'other', signal });
  }

  async setDisabled(id: number, disabled: boolean, signal?: AbortSignal): Promise<void> {
    await this.change(id, { disabled }, signal);
  }

  async delete(id: number, signal?: AbortSignal): Promise<void> {
    await this.#client.answered({ method: 'DELETE', path: `${this.#base}/${id}`, kind: 'other', signal });
  }

  /** The server chooses a new secret and tells it this once. */
  async resetSecret(id: number, signal?: AbortSignal): Promise<string> {
    const call = { method: 'POST', path: `${this.#base}/${id}/reset_secret`, kind: 'other', signal } as const;
    const { secret } = (await this.#client.call<Partial<WebhookSecret>>(call)) ?? {};
    if (typeof secret !== 'string' || secret === '') throw unreadable(call, 'no secret');
    return secret;
  }

  /** Asks for deliveries again; those that are pending are ignored (beyond-the-spec). */
  async resend(id: number, deliveryIds: readonly number[], signal?: AbortSignal): Promise<void> {
    const body: ResendBody = { webhook_events: deliveryIds.map((delivery) => ({ id: delivery })) };
    await this.#client.answered({ method: 'POST', path: `${this.#base}/${id}/events`, body, kind: 'other', signal });
  }
}

/** The number at the end of a `Location`, whether address or path. */
function idIn(location: string | undefined): number | undefined {
  const digits = /\/(\d{1,15})\/?(?:[?#].*)?$/.exec(location ?? '')?.[1];
  return digits === undefined ? undefined : Number(digits);
}

function jsonOf(answer: PlatformAnswer): unknown {
  try {
    return JSON.parse(answer.text);
  } catch {
    return undefined;
  }
}
