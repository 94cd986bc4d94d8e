import { EARLIEST_TRUSTED_MS } from '../base/clock.ts';
import type { Condition, NamedTag, Reaction } from '../config/reactions.ts';
import type { Tag } from '../config/tags.ts';
import { isValueEvent } from '../contract/value-events.ts';
import { valuesAt } from './content-path.ts';
import { type EventFacts, readFacts } from './event-facts.ts';

/** Matches decimal numbers in strings, as used in `asset_value_created` (platform 6.3). */
const DECIMAL = /^[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

/**
 * Returns whether the event type is in `on` and all conditions are met. `"*"` does not match events created by rules
 * for local values.
 */
export function matches(reaction: Reaction, event: EventFacts): boolean {
  const typeFits = reaction.on === '*' ? !isValueEvent(event.eventType) : reaction.on.includes(event.eventType);
  return typeFits && reaction.conditions.every((condition) => isMet(condition, event));
}

function isMet(condition: Condition, event: EventFacts): boolean {
  switch (condition.kind) {
    case 'tag':
      return condition.anyOf.some((tag) => namesTag(tag, event));
    case 'equals':
      return equalsAny(valuesAt(event.content, condition.path), condition.anyOf);
    case 'range':
      return valuesAt(event.content, condition.path).some((value) => isWithin(value, condition));
  }
}

/**
 * Returns whether an event refers to a tag. If both specify an instrumentation, the instrumentations are compared,
 * because an asset may have several. Otherwise, the assets are compared.
 */
function namesTag(tag: NamedTag, event: EventFacts): boolean {
  if (tag.instrumentation !== undefined && event.instrumentations.length > 0) {
    return event.instrumentations.includes(tag.instrumentation);
  }
  return event.assets.includes(tag.asset);
}

/** A missing member is treated as null. */
function equalsAny(found: readonly unknown[], wanted: readonly (string | number | boolean | null)[]): boolean {
  if (found.length === 0) return wanted.includes(null);
  return found.some((value) => wanted.some((one) => isEqual(value, one)));
}

function isEqual(value: unknown, wanted: string | number | boolean | null): boolean {
  if (typeof wanted === 'number') return numberOf(value) === wanted;
  return value === wanted;
}

/** Both bounds are exclusive. */
function isWithin(value: unknown, bounds: { above?: number; below?: number }): boolean {
  const number = numberOf(value);
  if (number === undefined) return false;
  if (bounds.above !== undefined && !(number > bounds.above)) return false;
  return bounds.below === undefined || number < bounds.below;
}

function numberOf(value: unknown): number | undefined {
  if (typeof value === 'number') return value;
  return typeof value === 'string' && value.length <= 64 && DECIMAL.test(value) ? Number(value) : undefined;
}

/**
 * Returns a function that selects the relayed events relevant to this gateway: events with an asset or instrumentation
 * in tags.yaml, and events that match a reaction with conditions. Reactions without conditions are not considered,
 * because they would select the events of all gateways.
 */
export function concernOf(
  tags: Iterable<Pick<Tag, 'asset' | 'instrumentation'>>,
  reactions: readonly Reaction[],
): (eventType: string, envelope: Readonly<Record<string, unknown>>) => boolean {
  const assets = new Set<number>();
  const instrumentations = new Set<number>();
  for (const { asset, instrumentation } of tags) {
    assets.add(asset);
    if (instrumentation !== undefined) instrumentations.add(instrumentation);
  }
  const conditional = reactions.filter(({ conditions }) => conditions.length > 0);
  return (eventType, envelope) => {
    const facts = readFacts({ id: 0, eventType, occurredAtMs: undefined, payload: '', envelope });
    if (facts.assets.some((id) => assets.has(id))) return true;
    if (facts.instrumentations.some((id) => instrumentations.has(id))) return true;
    return conditional.some((reaction) => matches(reaction, facts));
  };
}

/** Current time in milliseconds since 1970, and the clock that provided it. */
export interface JudgingTime {
  ms: number;
  clock: 'platform' | 'gateway';
}

/** Result of an age check. `clock` is the clock used; `monotonic` if the event waited longer than its maximum age. */
export type AgeVerdict =
  | { age: 'fresh' | 'unknown' }
  /**
   * The event time is in the future by more than the tolerated clock difference. The reaction runs, and a warning is
   * logged.
   */
  | { age: 'ahead'; clock: JudgingTime['clock']; ageMs: number }
  | { age: 'too-old'; clock: JudgingTime['clock'] | 'monotonic'; ageMs: number };

/** Tolerated difference between clocks. */
const AHEAD_MS = 60_000;

/**
 * Compares the age of an event with a rule's maximum age. `now` is the platform time or the time of a synchronized
 * clock, or `undefined` while neither is known. In this case, the event waits: while the clock still shows 1970 after a
 * boot, an alarm may be a minute or a week old. `waitedMs` is the monotonic time since this process first read the
 * event. It limits the wait: an event that has waited longer than the maximum age is too old.
 */
export function judgeAge(
  maxAgeMs: number,
  occurredAtMs: number | undefined,
  now: JudgingTime | undefined,
  waitedMs: number,
): AgeVerdict {
  if (maxAgeMs <= 0) return { age: 'fresh' };
  if (waitedMs > maxAgeMs || occurredAtMs === undefined) return { age: 'too-old', clock: 'monotonic', ageMs: waitedMs };
  if (now === undefined) return { age: 'unknown' };
  const { clock } = now;
  const ageMs = now.ms - occurredAtMs;
  if (ageMs > maxAgeMs) return { age: 'too-old', clock, ageMs };
  return ageMs < -AHEAD_MS ? { age: 'ahead', clock, ageMs } : { age: 'fresh' };
}

/**
 * Compares the age of an event created by a rule for local values, whose time is based on the gateway clock. While the
 * gateway clock is implausible, only the waiting time is checked, because the reaction must not wait for the platform.
 */
export function judgeValueEventAge(
  maxAgeMs: number,
  occurredAtMs: number | undefined,
  wallMs: number,
  waitedMs: number,
): AgeVerdict {
  const isKnown = occurredAtMs !== undefined && Math.min(occurredAtMs, wallMs) >= EARLIEST_TRUSTED_MS;
  if (!isKnown && waitedMs <= maxAgeMs) return { age: 'fresh' };
  return judgeAge(maxAgeMs, occurredAtMs, { ms: wallMs, clock: 'gateway' }, waitedMs);
}

/**
 * Returns why an event must not cause a write, if so: it is too old, or its age is uncertain. Stricter than the age check
 * of a reaction: it also applies to replayed events, and a future time counts as uncertain, because the clock may have
 * been set back. `storedAgoMs` is the running time since the event was stored, which does not depend on any clock.
 */
export function reasonAgainstWrite(
  maxAgeMs: number,
  {
    eventType,
    occurredAtMs,
    storedAgoMs,
    isFromEarlierRun,
  }: { eventType: string; occurredAtMs: number | undefined; storedAgoMs: number; isFromEarlierRun: boolean },
  wallMs: number,
  now: JudgingTime | undefined,
): string | undefined {
  const tooOld = 'the event is older than max_age';
  if (storedAgoMs > maxAgeMs) return tooOld;
  const isLocal = isValueEvent(eventType);
  if (isLocal && !isFromEarlierRun) return undefined;
  const isKnown = !isLocal || Math.min(occurredAtMs ?? 0, wallMs) >= EARLIEST_TRUSTED_MS;
  const time: JudgingTime | undefined = isLocal ? { ms: wallMs, clock: 'gateway' } : now;
  const { age } = judgeAge(maxAgeMs, occurredAtMs, isKnown ? time : undefined, storedAgoMs);
  if (age === 'fresh') return undefined;
  return age === 'too-old' ? tooOld : 'the age of the event is uncertain, because a clock changed or is not set';
}

/**
 * Returns the log fields: the clock used, and the event's age according to this clock (negative if the event is in the
 * future).
 */
export function clockFields(age: AgeVerdict): object {
  return 'clock' in age ? { clock: age.clock, ageMs: Math.round(age.ageMs) } : {};
}

export function byClock(age: AgeVerdict): string | undefined {
  return 'clock' in age ? `by the ${age.clock} clock` : undefined;
}
