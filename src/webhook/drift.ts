import type { Webhook, WebhookChange } from '../contract/webhooks.ts';
import type { Filters } from './filters.ts';
import type { RegistrationRecord } from './registration-file.ts';

/** What the configuration wants of the webhook. */
export interface WantedWebhook {
  url: string;
  eventTypes: readonly string[];
  /** Filters of platform 6.3, `{}` for none; left out, the webhook's own stay. */
  properties?: Filters;
  /** Registered by hand, with WEBHOOK_SECRET: only `disabled` may be changed. */
  byHand: boolean;
}

export type DriftStep =
  | { kind: 'create' }
  /** By hand, and not there: nothing to do but to say so. */
  | { kind: 'missing' }
  | { kind: 'adopt'; webhook: Webhook; resetSecret: boolean; changes: WebhookChange[] };

/**
 * What has to be done so that the platform has the webhook that the configuration wants (docs/interface.md, settled details). The changes
 * are one call each: a platform that knows only `disabled` (platform 4.5) must not refuse that because of the rest.
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
    // Members that the platform does not show are as this gateway set them.
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
 * The one with our address: the one on record first, then one that is enabled, then the oldest. With none, the one on
 * record whose address somebody changed on the platform; but not where our own address changed: a copied state folder must not
 * take another gateway's webhook away.
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

/** Addresses as URLs, so that `https://Host` and `https://host/` are one. */
export function sameAddress(one: string, other: string): boolean {
  if (one === other) return true;
  return URL.canParse(one) && URL.canParse(other) && new URL(one).href === new URL(other).href;
}

function sameSet(one: readonly string[] | undefined, other: readonly string[]): boolean {
  const a = new Set(one);
  const b = new Set(other);
  return a.size === b.size && [...a].every((item) => b.has(item));
}

/** An empty list filters nothing, and what is set for a type that does not come does not matter. */
function sameFilters(shown: Filters, wanted: Filters, eventTypes: readonly string[]): boolean {
  return [...eventTypes, ...Object.keys(wanted)].every((type) => sameSet(shown[type] ?? [], wanted[type] ?? []));
}
