import { PlatformError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import type { ClientApplication } from '../../contract/webhooks.ts';
import type { ApiCalls } from '../client.ts';
import type { ResponseRecord } from '../response-body.ts';
import { isMissingCall } from '../response-meanings.ts';
import { listEntries } from './lists.ts';

/** Connect subscription: its client application (platform 2.3, 4.5) and its quota (platform 10.3). */

/** Maximum number of names listed in an error. */
const MAX_NAMED = 20;
const MAX_NAME = 100;

/**
 * Returns the application with exactly this name (CLIENT_APPLICATION). Without a name, returns the application to which
 * the API key belongs (`/current`, platform 10.4), or the only visible application if the platform does not provide it.
 */
export async function findClientApplication(
  client: ApiCalls,
  name: string | undefined,
  signal?: AbortSignal,
): Promise<ClientApplication> {
  if (name) {
    for await (const found of listClientApplications(client, name, signal)) if (found.name === name) return found;
    throw notFound(`no client application named ${JSON.stringify(name)} is visible to this user`);
  }
  const call = { method: 'GET', path: '/v1/client_applications/current', kind: 'other', signal } as const;
  try {
    return readApplication(await client.record(call, 'client_application'));
  } catch (error) {
    if (!isMissingCall(error)) throw error;
  }
  const seen: ClientApplication[] = [];
  for await (const found of listClientApplications(client, undefined, signal)) {
    seen.push(found);
    if (seen.length > MAX_NAMED) break;
  }
  if (seen.length === 1) return seen[0]!;
  if (seen.length === 0) throw notFound('no client application is visible to this user');
  const names = seen.map((one) => JSON.stringify(plain(one.name).slice(0, MAX_NAME)));
  const shown = names.slice(0, MAX_NAMED).join(', ');
  throw notFound(`several client applications are visible: ${shown}${names.length > MAX_NAMED ? ', …' : ''}`);
}

/** `GET /v1/client_applications?name=`. Without a name, returns all visible applications. */
export function listClientApplications(
  client: ApiCalls,
  name?: string,
  signal?: AbortSignal,
): AsyncIterable<ClientApplication> {
  const list = { path: '/v1/client_applications', members: ['client_applications'], query: { name }, signal };
  return listEntries(client, list, readApplication);
}

function readApplication(record: ResponseRecord): ClientApplication {
  return { id: record.integer('id'), name: record.optional('name', record.string) ?? '' };
}

function notFound(message: string): PlatformError {
  return new PlatformError(message, {
    code: 'platform.no_client_application',
    hint: 'Set CLIENT_APPLICATION to the name of the client application of your connect subscription.',
  });
}

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
  const list = { path: '/v1/api_subscriptions', members: ['api_subscriptions'], signal };
  return listEntries(client, list, readSubscription);
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
