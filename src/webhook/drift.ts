import type { Logger } from '../base/logger.ts';
import type { Webhook, WebhookChange } from '../contract/webhooks.ts';
import type { Webhooks } from '../platform/resources/webhooks.ts';
import { CallRefusal } from '../platform/response-meanings.ts';
import type { Filters } from './filters.ts';
import type { MadeWebhook, RegistrationRecord } from './registration-file.ts';

/** The webhook as configured. */
export interface WantedWebhook {
  url: string;
  eventTypes: readonly string[];
  /** Filters (platform 6.3); `{}` means no filters. Default: the current filters of the webhook. */
  properties?: Filters;
  /** Whether the webhook was registered manually and WEBHOOK_SECRET is set. Only `disabled` is changed in this case. */
  byHand: boolean;
}

export type DriftStep =
  | { kind: 'create' }
  /** The webhook must be registered manually and was not found. */
  | { kind: 'missing' }
  | { kind: 'adopt'; webhook: Webhook; resetSecret: boolean; changes: WebhookChange[] };

/**
 * Returns the step that makes the webhook match its configuration. Each change is a separate call, because a platform
 * may support only some changes (platform 4.5).
 */
export function findDrift(
  found: readonly Webhook[],
  record: RegistrationRecord | undefined,
  wanted: WantedWebhook,
): DriftStep {
  const webhook = chooseWebhook(found, record, wanted);
  if (!webhook) return wanted.byHand ? { kind: 'missing' } : { kind: 'create' };
  const known = record?.webhook === webhook.id && record.secret !== undefined && !record.resetting;
  const changes: WebhookChange[] = [];
  if (!wanted.byHand) {
    if (!sameAddress(webhook.url, wanted.url)) changes.push({ url: wanted.url });
    // Members that the platform does not return are assumed to be unchanged.
    const accepted = record?.webhook === webhook.id ? record : undefined;
    const shownTypes = webhook.event_types ?? accepted?.eventTypes;
    if (!sameSet(shownTypes, wanted.eventTypes)) changes.push({ event_types: wanted.eventTypes });
    const shown = webhook.properties ?? accepted?.filters ?? {};
    if (wanted.properties && !sameFilters(shown, wanted.properties, wanted.eventTypes)) {
      changes.push({ properties: wanted.properties });
    }
  }
  return { kind: 'adopt', webhook, resetSecret: !wanted.byHand && !known, changes };
}

/**
 * Returns the webhook with the configured URL, in order of preference: the recorded webhook, an enabled webhook, the
 * oldest webhook. If none exists, returns the recorded webhook if its URL was changed on the platform, but not if
 * WEBHOOK_URL was changed: if the state folder was copied, the webhook may belong to another gateway.
 */
function chooseWebhook(
  found: readonly Webhook[],
  record: RegistrationRecord | undefined,
  wanted: WantedWebhook,
): Webhook | undefined {
  const [best] = found
    .filter((webhook) => sameAddress(webhook.url, wanted.url))
    .sort(
      (a, b) =>
        Number(b.id === record?.webhook) - Number(a.id === record?.webhook) ||
        Number(a.disabled) - Number(b.disabled) ||
        a.id - b.id,
    );
  if (best || wanted.byHand || !record || !sameAddress(record.url, wanted.url)) return best;
  return found.find((webhook) => webhook.id === record.webhook);
}

/** Compares URLs in normalized form: `https://Host` equals `https://host/`. */
export function sameAddress(one: string, other: string): boolean {
  if (one === other) return true;
  return URL.canParse(one) && URL.canParse(other) && new URL(one).href === new URL(other).href;
}

function sameSet(one: readonly string[] | undefined, other: readonly string[]): boolean {
  const a = new Set(one);
  const b = new Set(other);
  return a.size === b.size && [...a].every((item) => b.has(item));
}

/**
 * Compares filters. An empty list equals no filter, and filters for event types that are not registered are ignored.
 */
function sameFilters(shown: Filters, wanted: Filters, eventTypes: readonly string[]): boolean {
  return [...eventTypes, ...Object.keys(wanted)].every((type) => sameSet(shown[type] ?? [], wanted[type] ?? []));
}

/**
 * Applies the changes returned by `findDrift`. A permanently rejected change is logged once instead of thrown, so that
 * the check continues.
 */
export class DriftRepair {
  readonly #log: Logger;
  /** Changes made by the latest check, and the number of consecutive checks with the same changes. */
  #repaired = { text: '', times: 0 };
  /** Rejected changes with their errors. */
  readonly #rejected = new Map<string, string>();

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
    const accepted: WebhookChange[] = [];
    for (const change of changes) {
      const what = namesOf(change);
      try {
        await webhooks.change(webhook, change, signal);
      } catch (error) {
        if (!(error instanceof CallRefusal) || error.retryable) throw error;
        this.#reportRejected(webhook, what, error);
        continue;
      }
      accepted.push(change);
      this.#log.info({ event: 'webhook.drift_repaired', webhook, what }, 'webhook configuration restored');
    }
    this.#noteRepaired(webhook, accepted);
    return accepted;
  }

  #reportRejected(webhook: number, what: string, { message }: CallRefusal): void {
    if (this.#rejected.get(what) === message) return;
    this.#rejected.set(what, message);
    const hint = 'Run `tagferry webhook delete`, then `tagferry webhook register`.';
    const fields = { event: 'webhook.change_refused', webhook, what, error: message, hint };
    this.#log.warn(fields, 'webhook change rejected by the platform');
  }

  /** Logs a warning once if two consecutive checks made the same changes. */
  #noteRepaired(webhook: number, changes: readonly WebhookChange[]): void {
    const text = JSON.stringify(changes);
    const times = this.#repaired.text === text ? this.#repaired.times + 1 : 1;
    this.#repaired = { text, times };
    if (changes.length === 0 || times !== 2) return;
    const fields = { event: 'webhook.drift_stays', webhook, what: changes.map(namesOf).join(', ') };
    this.#log.warn(fields, 'webhook differs from its configuration again after a correction');
  }
}

function namesOf(change: WebhookChange): string {
  return Object.keys(change).join(', ');
}

/**
 * Returns webhooks that this gateway registered for a URL that is no longer configured, and to which the platform still
 * delivers. Compares both the ID and the URL, because a new platform assigns the same IDs again and the URL may have
 * been changed manually.
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
