import { randomUUID } from 'node:crypto';
import { PlatformError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { CallRefusal, isMissingCall } from '../platform/call-refusal.ts';
import type { NewWebhook, Webhooks } from '../platform/resources/webhooks.ts';
import type { Filters } from './filters.ts';
import type { KnownWebhook } from './known-webhook.ts';
import type { RegistrationRecord } from './registration-file.ts';

/** Address, event types and filters of this gateway's webhook. */
export interface WebhookContents {
  url: string;
  eventTypes: readonly string[];
  filters: Filters;
}

/**
 * Creates this gateway's webhook and obtains its secret. Every step is in `webhook.json` before it is requested: a crash leaves `making`
 * or `resetting`, and the next check completes the step.
 */
export class WebhookCreation {
  readonly #known: KnownWebhook;
  readonly #log: Logger;

  constructor(known: KnownWebhook, log: Logger) {
    this.#known = known;
    this.#log = log;
  }

  async create(webhooks: Webhooks, contents: WebhookContents, signal?: AbortSignal): Promise<void> {
    const { url, eventTypes, filters } = contents;
    await this.#known.beginMaking(url);
    const created = await this.#request(webhooks, contents, signal).catch(async (error) => {
      if (isRejected(error)) await this.#known.endMaking();
      throw error;
    });
    const { id, secret, isFiltered } = created;
    const record: RegistrationRecord = {
      webhook: id,
      url,
      scope: randomUUID(),
      eventTypes,
      ...(isFiltered ? { filters } : {}),
    };
    await this.#known.keepMade(secret === undefined ? { ...record, resetting: true } : { ...record, secret });
    this.#log.info({ event: 'webhook.created', webhook: id, url }, 'webhook registered');
    if (secret === undefined) await this.resetSecret(webhooks, this.#known.record!, signal);
  }

  /**
   * Obtains the secret of a webhook that was found without one. Where the platform cannot change a secret (the document does not show
   * the call, 4.5), the webhook is disabled and replaced by a new one; but not one that this gateway created, whose replacement would
   * come without a secret as well.
   */
  async obtainSecret(
    webhooks: Webhooks,
    contents: WebhookContents,
    isOwnCreation: boolean,
    signal?: AbortSignal,
  ): Promise<void> {
    const record = this.#known.record!;
    try {
      await this.resetSecret(webhooks, record, signal);
    } catch (error) {
      if (isOwnCreation || !(error instanceof PlatformError) || error.code !== 'webhook.no_secret_change') throw error;
      const { webhook: replaced } = record;
      await webhooks.setDisabled(replaced, true, signal);
      await this.create(webhooks, contents, signal);
      const hint = `To remove it: \`tagferry webhook delete ${replaced}\`.`;
      const fields = { event: 'webhook.replaced', webhook: this.#known.record!.webhook, replaced, hint };
      this.#log.warn(fields, 'secret lost and the platform cannot change it, webhook disabled and replaced');
    }
  }

  /** Throws `webhook.no_secret_change` if the platform does not know the call. A rejected call leaves the record as it was. */
  async resetSecret(webhooks: Webhooks, record: RegistrationRecord, signal?: AbortSignal): Promise<void> {
    await this.#known.keep({ ...record, resetting: true });
    const secret = await webhooks.resetSecret(record.webhook, signal).catch(async (error) => {
      if (isRejected(error)) await this.#known.keep(record);
      throw isMissingCall(error) ? noSecretChange(error) : error;
    });
    await this.#known.keepSecret(secret);
    this.#log.info({ event: 'webhook.secret_reset', webhook: record.webhook }, 'webhook secret changed');
  }

  async #request(
    webhooks: Webhooks,
    { url, eventTypes, filters }: WebhookContents,
    signal?: AbortSignal,
  ): Promise<NewWebhook & { isFiltered: boolean }> {
    const body = { url, event_types: eventTypes };
    if (Object.keys(filters).length > 0) {
      try {
        return { ...(await webhooks.create({ ...body, properties: filters }, signal)), isFiltered: true };
      } catch (error) {
        // Events without a filter are better than none. The next check sets the filters and logs why the platform rejects them.
        if (!isRejected(error)) throw error;
      }
    }
    return { ...(await webhooks.create(body, signal)), isFiltered: false };
  }
}

/** The platform has rejected the call, and will not accept it later. */
function isRejected(error: unknown): boolean {
  return error instanceof CallRefusal && !error.retryable;
}

function noSecretChange(cause: unknown): PlatformError {
  return new PlatformError('the platform cannot change the secret of a webhook', {
    code: 'webhook.no_secret_change',
    cause,
    hint: 'Change it on the platform and set WEBHOOK_SECRET, or run `tagferry webhook delete` and `tagferry webhook register`.',
  });
}
