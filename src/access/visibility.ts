import type { AccessEvent, ObjectKind } from './access-event.ts';

/** The last access event of one object, and whether the platform took values after it all the same. */
export interface AccessObject {
  kind: ObjectKind;
  id: number;
  gone: boolean;
  /** Platform's clock; `null`: the event did not say, and counts as older than any that does. */
  occurredAtMs: number | null;
  /** Wall clock when it was learned: for people. */
  sinceMs: number;
  /** Values are posted although the object is not seen: a 2xx came after the event, or nothing used the object any more. Until its next event. */
  proved: boolean;
}

/** An asset that was answered 403 or 404, or an instrumentation where VALUES_PATH names it. */
export interface Refusal {
  kind: 'asset' | 'instrumentation';
  id: number;
  status: 403 | 404;
  /** Wall clock: for people. */
  sinceMs: number;
}

/**
 * The object after an event, or `undefined` where the event changes nothing because it occurred before the last one, or is the
 * same again. Deliveries are unordered: whatever order they come in, the same state must come out. So of two that
 * occurred at the same moment one always wins: `appeared`, because that is how a permission that is replaced looks, and because a
 * post too many costs less than values that wait.
 */
export function nextVisibility(
  last: AccessObject | undefined,
  event: Extract<AccessEvent, { kind: 'visibility' }>,
  wallMs: number,
): AccessObject | undefined {
  const occurredAtMs = event.occurredAtMs ?? null;
  if (last !== undefined) {
    const order = timeOf(occurredAtMs) - timeOf(last.occurredAtMs);
    const isSameTime = timeOf(occurredAtMs) === timeOf(last.occurredAtMs);
    if (!isSameTime && order < 0) return undefined;
    if (isSameTime && (event.gone || !last.gone)) return undefined;
  }
  return { kind: event.object, id: event.id, gone: event.gone, occurredAtMs, sinceMs: wallMs, proved: false };
}

/**
 * Whether an asset is held by its own last event. An instrumentation that appeared no earlier than the asset disappeared brings
 * its asset back, by inheritance (platform 2.2).
 */
export function isAssetGone(asset: AccessObject | undefined, instrumentations: readonly AccessObject[]): boolean {
  if (!asset?.gone || asset.proved) return false;
  return !instrumentations.some((one) => !one.gone && timeOf(one.occurredAtMs) >= timeOf(asset.occurredAtMs));
}

/** Whether the tags that name an instrumentation are held by its last event. */
export function isInstrumentationGone(instrumentation: AccessObject | undefined): boolean {
  return instrumentation?.gone === true && !instrumentation.proved;
}

function timeOf(occurredAtMs: number | null): number {
  return occurredAtMs ?? Number.NEGATIVE_INFINITY;
}
