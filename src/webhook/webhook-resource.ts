import type { Pagination } from '../contract/errors.ts';
import {
  type ClientApplication,
  type ClientApplicationList,
  MOST_PER_PAGE,
  type Webhook,
  type WebhookChange,
  type WebhookCreate,
  type WebhookCreated,
  type WebhookList,
  type WebhookSecret,
} from '../contract/webhooks.ts';
import { PlatformError } from '../errors.ts';
import {
  type PlatformAnswer,
  type PlatformCall,
  type PlatformPort,
  RefusedError,
  readAnswer,
} from './platform-port.ts';

/** Pages that are read of a list at most: a platform that always promises one more must not hold us for ever. */
const MOST_PAGES = 1_000;

/** Client applications and webhooks of spec 4.5, as far as this room calls them. Every call takes from the request budget. */
export class WebhookResource {
  readonly #platform: PlatformPort;

  constructor(platform: PlatformPort) {
    this.#platform = platform;
  }

  /** The id of the application with this name, of the current one without. Throws `webhook.no_application`. */
  async findApplication(name: string | undefined, signal?: AbortSignal): Promise<number> {
    if (name === undefined) {
      const answer = await this.#call('GET', '/v1/client_applications/current', { signal });
      const body = readAnswer<ClientApplication & { client_application: ClientApplication }>(
        'reading the client application',
        answer,
        [200],
      );
      const id = body.id ?? body.client_application?.id;
      if (typeof id === 'number') return id;
      throw noApplication('the current client application has no id');
    }
    const answer = await this.#call('GET', '/v1/client_applications', { query: { name }, signal });
    const body = readAnswer<ClientApplicationList>('finding the client application', answer, [200]);
    // The filter may match parts of names: only the same name is ours.
    const found = body.client_applications?.find((application) => application.name === name);
    if (found) return found.id;
    throw noApplication(`there is no client application named ${name}`);
  }

  async list(application: number, signal?: AbortSignal): Promise<Webhook[]> {
    const all: Webhook[] = [];
    for (let page = 1; page <= MOST_PAGES; page++) {
      const query = { page: String(page), per_page: String(MOST_PER_PAGE) };
      const answer = await this.#call('GET', base(application), { query, signal });
      const body = readAnswer<WebhookList>('listing the webhooks', answer, [200]);
      const webhooks = body.webhooks ?? [];
      all.push(...webhooks);
      if (isLastPage(body.pagination, page, webhooks.length, MOST_PER_PAGE)) break;
    }
    return all;
  }

  /** Creates a webhook; its id comes from `Location` or from the body, its secret only this once. */
  async create(
    application: number,
    create: WebhookCreate,
    signal?: AbortSignal,
  ): Promise<{ id: number; secret: string | undefined }> {
    const answer = await this.#call('POST', base(application), { body: create, signal });
    const body = readAnswer<WebhookCreated>('creating the webhook', answer, [201, 200]);
    const located = /\/webhooks\/(\d+)\/?(?:\?.*)?$/.exec(answer.header('location') ?? '')?.[1];
    const id = located === undefined ? body.id : Number(located);
    if (typeof id === 'number') return { id, secret: typeof body.secret === 'string' ? body.secret : undefined };
    throw new PlatformError('creating the webhook: the answer names no id', {
      code: 'webhook.unreadable_answer',
      retryable: true,
    });
  }

  async change(application: number, webhook: number, change: WebhookChange, signal?: AbortSignal): Promise<void> {
    const answer = await this.#call('PATCH', `${base(application)}/${webhook}`, { body: change, signal });
    if (answer.status !== 204 && answer.status !== 200) throw new RefusedError('changing the webhook', answer);
  }

  async resetSecret(application: number, webhook: number, signal?: AbortSignal): Promise<string> {
    const answer = await this.#call('POST', `${base(application)}/${webhook}/reset_secret`, { signal });
    const { secret } = readAnswer<WebhookSecret>('resetting the secret', answer, [200, 201]);
    if (typeof secret === 'string' && secret !== '') return secret;
    throw new PlatformError('resetting the secret: the answer has none', {
      code: 'webhook.unreadable_answer',
      retryable: true,
    });
  }

  /** 404 counts: it is gone. */
  async delete(application: number, webhook: number, signal?: AbortSignal): Promise<void> {
    const answer = await this.#call('DELETE', `${base(application)}/${webhook}`, { signal });
    if (![200, 204, 404].includes(answer.status)) throw new RefusedError('deleting the webhook', answer);
  }

  /** One page of the deliveries list, in all statuses: the raw answer, for its `Date` and its size. */
  listDeliveries(
    application: number,
    webhook: number,
    query: Record<string, string>,
    signal?: AbortSignal,
  ): Promise<PlatformAnswer> {
    return this.#call('GET', `${base(application)}/${webhook}/events`, { query, signal });
  }

  /** Asks for deliveries again; ids that are pending are ignored by the platform. */
  async resend(application: number, webhook: number, ids: readonly number[], signal?: AbortSignal): Promise<void> {
    const body = { webhook_events: ids.map((id) => ({ id })) };
    const answer = await this.#call('POST', `${base(application)}/${webhook}/events`, { body, signal });
    if (answer.status < 200 || answer.status > 299) throw new RefusedError('asking for deliveries again', answer);
  }

  #call(
    method: PlatformCall['method'],
    path: string,
    more: { query?: Record<string, string>; body?: object; signal?: AbortSignal | undefined },
  ): Promise<PlatformAnswer> {
    const { query, body, signal } = more;
    return this.#platform.request({
      method,
      path,
      kind: 'other',
      ...(query ? { query } : {}),
      ...(body ? { body } : {}),
      ...(signal ? { signal } : {}),
    });
  }
}

/** Whether `page` ends a list; without a readable `pagination` a page that is not full does. */
export function isLastPage(
  pagination: Partial<Pagination> | undefined,
  page: number,
  entries: number,
  perPage: number,
): boolean {
  if (typeof pagination?.page_count === 'number') return page >= pagination.page_count;
  return entries < perPage;
}

function base(application: number): string {
  return `/v1/client_applications/${application}/webhooks`;
}

function noApplication(message: string): PlatformError {
  return new PlatformError(message, {
    code: 'webhook.no_application',
    hint: 'Set CLIENT_APPLICATION to the name of the client application of this connect subscription.',
  });
}
