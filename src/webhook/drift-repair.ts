import type { Logger } from '../base/logger.ts';
import type { WebhookChange } from '../contract/webhooks.ts';
import { CallRefusal } from '../platform/call-refusal.ts';
import type { Webhooks } from '../platform/resources/webhooks.ts';

/**
 * Makes a webhook as `findDrift` says, and tells people about it without repeating itself at each check.
 *
 * A platform that refuses other types or filters for good must still be asked to enable, and read for what was missed: so that
 * is said, not thrown.
 */
export class DriftRepair {
  readonly #log: Logger;
  /** What the last check repaired, and how many checks in a row have repaired just that. */
  #repaired = { text: '', times: 0 };
  /** What was refused, and with which words: said once. */
  readonly #refused = new Map<string, string>();

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Returns the changes that the platform accepted. Throws errors that may be temporary. */
  async repair(
    webhooks: Webhooks,
    webhook: number,
    changes: readonly WebhookChange[],
    signal?: AbortSignal,
  ): Promise<WebhookChange[]> {
    const taken: WebhookChange[] = [];
    for (const change of changes) {
      const what = namesOf(change);
      try {
        await webhooks.change(webhook, change, signal);
      } catch (error) {
        if (!(error instanceof CallRefusal) || error.retryable) throw error;
        this.#sayRefused(webhook, what, error);
        continue;
      }
      taken.push(change);
      this.#log.info({ event: 'webhook.drift_repaired', webhook, what }, 'the webhook is as configured again');
    }
    this.#noteRepaired(webhook, taken);
    return taken;
  }

  #sayRefused(webhook: number, what: string, { message }: CallRefusal): void {
    if (this.#refused.get(what) === message) return;
    this.#refused.set(what, message);
    const hint = 'To have it all the same: `tagferry webhook delete`, then `tagferry webhook register`.';
    const fields = { event: 'webhook.change_refused', webhook, what, error: message, hint };
    this.#log.warn(fields, 'the platform does not change the webhook as configured');
  }

  /** The same at two checks in a row is worth a warning, once. */
  #noteRepaired(webhook: number, changes: readonly WebhookChange[]): void {
    const text = JSON.stringify(changes);
    const times = this.#repaired.text === text ? this.#repaired.times + 1 : 1;
    this.#repaired = { text, times };
    if (changes.length === 0 || times !== 2) return;
    const fields = { event: 'webhook.drift_stays', webhook, what: changes.map(namesOf).join(', ') };
    this.#log.warn(fields, 'the webhook was changed back, or the platform does not keep what it took');
  }
}

function namesOf(change: WebhookChange): string {
  return Object.keys(change).join(', ');
}
