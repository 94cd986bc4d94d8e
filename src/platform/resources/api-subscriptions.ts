import type { ApiCalls } from '../client.ts';
import { listEntries } from '../pages.ts';
import type { ResponseRecord } from '../response-record.ts';

/** Quota of a connect subscription in the current period, and its usage. */
interface QuotaAmount {
  quota: number;
  used: number;
}

/** Limits of a connect subscription (platform 10.3). */
export interface ApiSubscription {
  calls: QuotaAmount | undefined;
  /** Payload quota and usage in bytes, if the platform reports them. */
  payload: QuotaAmount | undefined;
  /** Start of the period, in the platform's format. */
  since: string | undefined;
}

/**
 * Payload counts towards the quota (platform 6.1), but the names of its members are not documented. Matches pairs such
 * as `payload_quota` and `payload_used`, or `byte_quota` and `bytes_used`.
 */
const PAYLOAD = /payload|byte/;

/** `GET /v1/api_subscriptions`: returns quota and usage, for `status` and metrics. */
export function listApiSubscriptions(client: ApiCalls, signal?: AbortSignal): AsyncIterable<ApiSubscription> {
  return listEntries(client, '/v1/api_subscriptions', ['api_subscriptions'], readSubscription, { signal });
}

function readSubscription(entry: ResponseRecord): ApiSubscription {
  const payload = (suffix: string) => entry.names.find((name) => PAYLOAD.test(name) && name.endsWith(suffix));
  return {
    calls: amount(entry, 'api_call_quota', 'api_calls_used'),
    payload: amount(entry, payload('_quota'), payload('_used')),
    since: entry.optional('start_date', entry.string),
  };
}

function amount(entry: ResponseRecord, quotaName = '', usedName = ''): QuotaAmount | undefined {
  const quota = entry.optional(quotaName, entry.integer);
  const used = entry.optional(usedName, entry.integer);
  return quota === undefined || used === undefined || quota <= 0 ? undefined : { quota, used };
}
