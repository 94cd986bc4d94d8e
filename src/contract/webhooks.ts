import type { Pagination } from './errors.ts';

/** Spec 6.1: hex HMAC of the raw body, keyed with the webhook's secret. */
export const SIGNATURE_SHA256_HEADER = 'x-hub-signature-sha256';
/** Deprecated, spec section 9. */
export const SIGNATURE_SHA1_HEADER = 'x-hub-signature';

/** Spec 2.4, with `id` and `force_sorted_delivery` from beyond-the-spec. The secret comes only with creation and reset. */
export interface Webhook {
  id: number;
  url: string;
  event_types: string[];
  properties?: Record<string, string[]>;
  disabled: boolean;
  force_sorted_delivery?: boolean;
}

export interface WebhookCreated extends Webhook {
  secret: string;
}

export interface WebhookList {
  webhooks: Webhook[];
  pagination: Pagination;
}

/** Beyond-the-spec: states of a delivery record; the spec names only `failed`. */
export type DeliveryStatus = 'pending' | 'delivered' | 'cancelled' | 'failed';

/** Spec 2.5, further fields from beyond-the-spec. */
export interface DeliveryRecord {
  id: number;
  status: DeliveryStatus;
  /** The event as it was (or will be) sent. */
  payload?: unknown;
  last_send_at?: string | null;
  retries?: number;
}

/** The deliveries list; INTERFACE.md: the member may be named either way. */
export interface DeliveryList {
  events?: DeliveryRecord[];
  webhook_events?: DeliveryRecord[];
  pagination?: Pagination;
}

/** `POST /{id}/events`: ask for deliveries again (beyond-the-spec). */
export interface ResendBody {
  webhook_events: { id: number }[];
}

/** Spec 4.5. */
export interface ClientApplication {
  id: number;
  name: string;
}

/** Spec 8. */
export const DELIVERY_ATTEMPTS = 16;
export const FAILED_EVENTS_KEPT_DAYS = 183;

/** Spec 4.5: `POST …/webhooks`. */
export interface WebhookCreate {
  url: string;
  event_types: readonly string[];
  properties?: Readonly<Record<string, readonly string[]>>;
}

/** `PATCH …/webhooks/{id}`: the spec shows `disabled`; the other members by beyond-the-spec. Answered 204. */
export type WebhookChange = Partial<WebhookCreate> & { disabled?: boolean };

/** `POST …/webhooks/{id}/reset_secret`, no body: the server chooses the secret (beyond-the-spec). */
export interface WebhookSecret {
  secret: string;
}

export interface ClientApplicationList {
  client_applications: ClientApplication[];
  pagination?: Pagination;
}

/** Lists take 1 to 100 entries a page (beyond-the-spec). */
export const MOST_PER_PAGE = 100;
