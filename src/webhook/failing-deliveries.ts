import { occurredAtMs } from '../contract/events/occurred-at.ts';
import { timestampMs } from '../contract/events.ts';
import type { DeliveryRecord } from '../contract/webhooks.ts';
import type { ApiCalls } from '../platform/client.ts';
import { type DeliveryFilter, readDeliveries } from '../platform/resources/deliveries.ts';
import { parseDeliveryPage } from './delivery-list.ts';

/** One delivery: when its event occurred and when it was last sent, by the platform's clock, in milliseconds. */
export interface DeliverySpan {
  failing: boolean;
  firstMs: number;
  lastMs: number;
}

/** Platform 3.2: the platform disables a webhook when its events fail for longer. */
export const DISABLED_AFTER_MS = 14 * 86_400_000;
/** Platform 3.3: attempts for one event end after about three days. */
const ATTEMPTS_END_AFTER_MS = 3 * 86_400_000;

/**
 * Reads the whole deliveries list and returns the time of the last failed attempt, if events kept failing for two weeks after `sinceMs`.
 * Returns `undefined` if the list does not show that: then a person disabled the webhook.
 */
export async function readLongFailure(
  platform: ApiCalls,
  application: number,
  webhook: number,
  sinceMs: number | undefined,
  signal?: AbortSignal,
): Promise<number | undefined> {
  return longFailure((await readSpans(platform, { application, webhook }, {}, signal)).spans, sinceMs);
}

/** Spans of the deliveries that the filter selects, with the platform's clock of the first response. */
export async function readSpans(
  platform: ApiCalls,
  { application, webhook }: { application: number; webhook: number },
  filter: DeliveryFilter,
  signal?: AbortSignal,
): Promise<{ spans: DeliverySpan[]; platformMs: number | undefined }> {
  const spans: DeliverySpan[] = [];
  let nowMs: number | undefined;
  const pages = readDeliveries(platform, application, webhook, filter, signal, parseDeliveryPage);
  for await (const { records, platformMs } of pages) {
    nowMs ??= platformMs;
    for (const record of records) {
      const span = spanOf(record);
      if (span) spans.push(span);
    }
  }
  return { spans, platformMs: nowMs };
}

/**
 * The document can be read in two ways (3.2): one event keeps failing for two weeks, or all events do. Returns the time of the last failed
 * attempt if either is the case.
 */
export function longFailure(spans: readonly DeliverySpan[], sinceMs?: number): number | undefined {
  const run = failingRun(spans, sinceMs);
  if (!run) return undefined;
  return run.isOneLong || run.lastMs - run.firstMs >= DISABLED_AFTER_MS ? run.lastMs : undefined;
}

/** Failures since the last delivery that succeeded, and after `sinceMs`; `isOneLong` if one event failed for two weeks. */
export function failingRun(
  spans: readonly DeliverySpan[],
  sinceMs = Number.NEGATIVE_INFINITY,
): { firstMs: number; lastMs: number; isOneLong: boolean } | undefined {
  let okMs = sinceMs;
  for (const { failing, lastMs } of spans) if (!failing) okMs = Math.max(okMs, lastMs);
  let firstMs = Number.POSITIVE_INFINITY;
  let lastMs = Number.NEGATIVE_INFINITY;
  let isOneLong = false;
  for (const span of spans) {
    if (!span.failing || span.lastMs <= okMs) continue;
    isOneLong ||= span.lastMs - Math.max(span.firstMs, sinceMs) >= DISABLED_AFTER_MS;
    firstMs = Math.min(firstMs, Math.max(span.firstMs, okMs));
    lastMs = Math.max(lastMs, span.lastMs);
  }
  return Number.isFinite(lastMs) ? { firstMs, lastMs, isOneLong } : undefined;
}

/** The event that has failed for longest and is still being sent, whatever became of others; `undefined` without such an event. */
export function persistentFailure(spans: readonly DeliverySpan[], nowMs: number): DeliverySpan | undefined {
  const current = spans.filter(({ failing, lastMs }) => failing && nowMs - lastMs < ATTEMPTS_END_AFTER_MS);
  return current.sort((one, other) => other.lastMs - other.firstMs - (one.lastMs - one.firstMs))[0];
}

/** `undefined` for a delivery that was not sent, or whose time the platform does not report. */
function spanOf(record: DeliveryRecord): DeliverySpan | undefined {
  const sentMs = timestampMs(record.last_send_at);
  // Other states than these may be another platform's names for success.
  const isPending = record.status === 'pending' || record.status === 'cancelled';
  const failing = record.status === 'failed' || isPending;
  if (isPending && sentMs === undefined) return undefined;
  const occurredMs = occurredAtMs(payloadOf(record.payload));
  const lastMs = sentMs ?? occurredMs;
  if (lastMs === undefined) return undefined;
  const firstMs = Math.min(lastMs, occurredMs ?? lastMs - ATTEMPTS_END_AFTER_MS);
  return { failing, firstMs, lastMs };
}

export function payloadOf(payload: unknown): unknown {
  if (typeof payload !== 'string') return payload;
  try {
    return JSON.parse(payload);
  } catch {
    return undefined;
  }
}
