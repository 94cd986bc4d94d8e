/** Platform 6.1: hex HMAC of the raw body, keyed with the webhook's secret. */
export const SIGNATURE_SHA256_HEADER = 'x-hub-signature-sha256';
/** Deprecated, platform 9. */
export const SIGNATURE_SHA1_HEADER = 'x-hub-signature';

/** Platform 2.4, with `id` and `force_sorted_delivery` from platform 10.4. The secret comes only with creation and reset. */
export interface Webhook {
  id: number;
  url: string;
  event_types: readonly string[];
  properties?: Readonly<Record<string, readonly string[]>>;
  disabled: boolean;
  force_sorted_delivery?: boolean;
}

/** Beyond-the-spec: states of a delivery record; the spec names only `failed`. */
export type DeliveryStatus = 'pending' | 'delivered' | 'cancelled' | 'failed';

/** Platform 2.5, further fields from platform 10.4. */
export interface DeliveryRecord {
  id: number;
  status: DeliveryStatus;
  /** The event as it was (or will be) sent. */
  payload?: unknown;
  last_send_at?: string | null;
  retries?: number;
}

/** `POST /{id}/events`: ask for deliveries again (platform 10.4). */
export interface ResendBody {
  webhook_events: { id: number }[];
}

/** Platform 4.5. */
export interface ClientApplication {
  id: number;
  name: string;
}

/** Platform 8. */
export const DELIVERY_ATTEMPTS = 16;
export const FAILED_EVENTS_KEPT_DAYS = 183;

/** Platform 4.5: `POST …/webhooks`. */
export interface WebhookCreate {
  url: string;
  event_types: readonly string[];
  properties?: Readonly<Record<string, readonly string[]>>;
}

/** `PATCH …/webhooks/{id}`: the spec shows `disabled`; the other members by platform 10.4. Answered 204. */
export type WebhookChange = Partial<WebhookCreate> & { disabled?: boolean };

/** Lists take 1 to 100 entries a page (platform 10.4). */
export const MAX_PER_PAGE = 100;
