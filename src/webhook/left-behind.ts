import type { Logger } from '../base/logger.ts';
import type { Webhook } from '../contract/webhooks.ts';
import { sameAddress } from './drift.ts';
import type { MadeWebhook } from './registration-file.ts';

/**
 * Webhooks that this gateway registered itself and whose address is no longer configured (docs/interface.md, "Settled details"): the
 * platform goes on delivering there. By number and by address: a number may be another's on a platform that was set up anew,
 * or with another client application, and what a person gave another address is that person's.
 */
export function findLeftBehind(
  found: readonly Webhook[],
  made: readonly MadeWebhook[],
  configuredUrl: string | undefined,
): Webhook[] {
  return found.filter((webhook) => {
    if (configuredUrl !== undefined && sameAddress(webhook.url, configuredUrl)) return false;
    return made.some((one) => one.webhook === webhook.id && sameAddress(one.url, webhook.url));
  });
}

/** Says each of them once. They are not taken away without being asked: with a copied state folder one may be another gateway's. */
export class LeftBehindLog {
  readonly #log: Logger;
  readonly #said = new Set<number>();

  constructor(log: Logger) {
    this.#log = log;
  }

  say(found: readonly Webhook[], made: readonly MadeWebhook[], configuredUrl: string | undefined): void {
    for (const { id, url, disabled } of findLeftBehind(found, made, configuredUrl)) {
      if (disabled || this.#said.has(id)) continue;
      this.#said.add(id);
      const hint = '`tagferry webhook prune`, unless another gateway uses it.';
      const fields = { event: 'webhook.left_behind', webhook: id, url, hint };
      this.#log.warn(fields, 'the webhook of a former WEBHOOK_URL still delivers there');
    }
  }
}
