import type { PlatformClient } from '../client.ts';
import { listEntries } from '../pages.ts';

/** What a connect subscription may use (platform 10.3). */
export interface ApiSubscription {
  id?: number;
  status?: string;
  start_date?: string;
  api_call_quota?: number;
  api_calls_used?: number;
}

/** `GET /v1/api_subscriptions`: the quota and how much of it is used, for `doctor` and `status`. */
export function listApiSubscriptions(client: PlatformClient, signal?: AbortSignal): AsyncIterable<ApiSubscription> {
  return listEntries(client, '/v1/api_subscriptions', ['api_subscriptions'], { signal });
}
