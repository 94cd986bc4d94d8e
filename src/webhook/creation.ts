import { randomUUID } from 'node:crypto';
import { PlatformError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { NewWebhook, Webhooks } from '../platform/resources/webhooks.ts';
import { CallRefusal, isMissingCall } from '../platform/response-meanings.ts';
import type { Filters } from './filters.ts';
import type { KnownWebhook } from './known-webhook.ts';
import type { RegistrationRecord } from './registration-file.ts';

/** URL, event types and filters of this gateway's webhook. */
export interface WebhookContents {
  url: string;
  eventTypes: readonly string[];
  filters: Filters;
}

/**
 * Creates this gateway's webhook and obtains its secret. Every step is recorded in `webhook.json` as `making` or
 * `resetting` before it is requested. After a crash, the next check completes the step.
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
    await this.#known.keepMade({
      webhook: id,
      url,
      scope: randomUUID(),
      eventTypes,
      filters: isFiltered ? filters : undefined,
      secret,
      resetting: secret === undefined ? true : undefined,
    });
    this.#log.info({ event: 'webhook.created', webhook: id, url }, 'webhook registered');
    if (secret === undefined) await this.resetSecret(webhooks, this.#known.record!, signal);
  }

  /**
   * Obtains the secret of an existing webhook whose secret is unknown. If the platform cannot change a secret (the call
   * is not documented, platform 4.5), the webhook is disabled and replaced with a new webhook. A webhook created by
   * this gateway is not replaced, because the secret of its replacement would also be unknown.
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
      this.#log.warn(fields, 'secret lost and cannot be changed on the platform, webhook disabled and replaced');
    }
  }

  /**
   * Requests a new secret. Throws `webhook.no_secret_change` if the platform does not support the call. If the call is
   * rejected, the record is not changed.
   */
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
        // Unfiltered events are better than no events. The next check tries to set the filters and logs why the
        // platform rejects them.
        if (!isRejected(error)) throw error;
      }
    }
    return { ...(await webhooks.create(body, signal)), isFiltered: false };
  }
}

/** Returns whether the platform has permanently rejected the call. */
function isRejected(error: unknown): boolean {
  return error instanceof CallRefusal && !error.retryable;
}

function noSecretChange(cause: unknown): PlatformError {
  return new PlatformError("the platform does not support changing a webhook's secret", {
    code: 'webhook.no_secret_change',
    cause,
    hint: 'Change it on the platform and set WEBHOOK_SECRET, or run `tagferry webhook delete` and `tagferry webhook register`.',
  });
}
