/** Hexadecimal HMAC of the raw body, keyed with the webhook's secret (platform 6.1). */
export const SIGNATURE_SHA256_HEADER = 'x-hub-signature-sha256';
/** Deprecated (platform 9). */
export const SIGNATURE_SHA1_HEADER = 'x-hub-signature';

/**
 * Webhook (platform 2.4), with `id` and `force_sorted_delivery` from platform 10.4. Only creation and reset return the
 * secret.
 */
export interface Webhook {
  id: number;
  url: string;
  event_types: readonly string[];
  properties?: Readonly<Record<string, readonly string[]>>;
  disabled: boolean;
  force_sorted_delivery?: boolean;
}

/** States of a delivery record (platform 10.4); the specification names only `failed`. */
export type DeliveryStatus = 'pending' | 'delivered' | 'cancelled' | 'failed';

/** Delivery record (platform 2.5), with additional fields from platform 10.4. */
export interface DeliveryRecord {
  id: number;
  status: DeliveryStatus;
  /** Event exactly as it was sent. */
  payload?: unknown;
  last_send_at?: string | null;
  retries?: number;
}

/** Body of `POST /{id}/events`, which resends deliveries (platform 10.4). */
export interface ResendBody {
  webhook_events: { id: number }[];
}

/** Client application (platform 4.5). */
export interface ClientApplication {
  id: number;
  name: string;
}

/** Delivery limits (platform 8). */
export const DELIVERY_ATTEMPTS = 16;
export const FAILED_EVENTS_KEPT_DAYS = 183;

/** Body of `POST …/webhooks` (platform 4.5). */
export interface WebhookCreate {
  url: string;
  event_types: readonly string[];
  properties?: Readonly<Record<string, readonly string[]>>;
}

/**
 * Body of `PATCH …/webhooks/{id}`: the specification shows `disabled`; other members follow platform 10.4. The response
 * is 204.
 */
export type WebhookChange = Partial<WebhookCreate> & { disabled?: boolean };

/** Maximum number of list entries per page (platform 10.4). */
export const MAX_PER_PAGE = 100;
