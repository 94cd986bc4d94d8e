import type { DeliveryRecord, DeliveryStatus } from '../../contract/webhooks.ts';
import type { PlatformClient } from '../client.ts';
import { listEntries } from '../pages.ts';

/** Filters of the deliveries list (beyond-the-spec); all may stay absent. */
export interface DeliveryFilter {
  status?: DeliveryStatus;
  eventType?: string;
  /** ISO 8601. */
  occurredAt?: string;
  occurredFrom?: string;
  occurredTo?: string;
  orderBy?: string;
  perPage?: number;
}

/** The deliveries of one webhook (spec 2.5, 4.5). INTERFACE.md: the list may stand under `events` or `webhook_events`. */
export function listDeliveries(
  client: PlatformClient,
  clientApplicationId: number,
  webhookId: number,
  filter: DeliveryFilter = {},
  signal?: AbortSignal,
): AsyncIterable<DeliveryRecord> {
  const path = `/v1/client_applications/${clientApplicationId}/webhooks/${webhookId}/events`;
  const query = {
    status: filter.status,
    event_type: filter.eventType,
    occurred_at: filter.occurredAt,
    occurred_at_from: filter.occurredFrom,
    occurred_at_to: filter.occurredTo,
    order_by: filter.orderBy,
  };
  const perPage = filter.perPage === undefined ? {} : { perPage: filter.perPage };
  return listEntries(client, path, ['events', 'webhook_events'], { query, signal, ...perPage });
}
