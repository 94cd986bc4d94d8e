import type { Condition, NamedTag, Reaction } from '../config/reactions.ts';
import { valuesAt } from './content-path.ts';
import type { EventFacts } from './event-facts.ts';

/** Decimal numbers as the platform writes them in text (`asset_value_created` sends its value so, platform 6.3). */
const DECIMAL = /^[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

/** Whether a reaction is meant by an event: its type is in `on` and every condition holds. */
export function matches(reaction: Reaction, event: EventFacts): boolean {
  const typeFits = reaction.on === '*' || reaction.on.includes(event.eventType);
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
 * Where tag and event both name an instrumentation, it alone decides: an asset may serve several of them, and a threshold of
 * another one is not this tag's. Else the asset.
 */
function namesTag(tag: NamedTag, event: EventFacts): boolean {
  if (tag.instrumentation !== undefined && event.instrumentations.length > 0) {
    return event.instrumentations.includes(tag.instrumentation);
  }
  return event.assets.includes(tag.asset);
}

/** A member that is missing counts as null: the platform may leave out what it has nothing to say about. */
function equalsAny(found: readonly unknown[], wanted: readonly (string | number | boolean | null)[]): boolean {
  if (found.length === 0) return wanted.includes(null);
  return found.some((value) => wanted.some((one) => isEqual(value, one)));
}

function isEqual(value: unknown, wanted: string | number | boolean | null): boolean {
  if (typeof wanted === 'number') return numberOf(value) === wanted;
  return value === wanted;
}

/** Both bounds are exclusive: `above: 20` does not hold at 20. */
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

/** A time, and whose it is. */
export interface JudgingTime {
  ms: number;
  clock: 'platform' | 'gateway';
}

/** `clock`: what decided; the monotonic one where the event waited longer than it may be old. */
export type AgeVerdict =
  | { age: 'fresh' | 'unknown' }
  /** It occurred later than now by more than clocks differ: run, and reported. */
  | { age: 'ahead'; clock: JudgingTime['clock']; ageMs: number }
  | { age: 'too-old'; clock: JudgingTime['clock'] | 'monotonic'; ageMs: number };

/** An event may be ahead of the clock that judges it by so much without a word: a gateway clock is some seconds off. */
const AHEAD_MS = 60_000;

/**
 * Whether an event is young enough for a rule. `now` is a time that can be trusted (the platform's, or a synchronised clock's),
 * `undefined` as long as there is none.
 *
 * Without one the age is `unknown`, and neither answer would be right at once: after a boot in 1970 the catch-up may bring a
 * week-old alarm that must not move a valve, and the alarm of this minute must not be swallowed. So the event waits for
 * the clock. `waitedMs` (monotonic, since the event was first looked at) bounds the wait: an event that has waited
 * longer than it may be old is too old, whatever the clock will say.
 */
export function judgeAge(
  maxAgeMs: number,
  occurredAtMs: number | undefined,
  now: JudgingTime | undefined,
  waitedMs: number,
): AgeVerdict {
  if (maxAgeMs <= 0) return { age: 'fresh' };
  // The inbox takes no event without a readable time for recognised; should one come, it cannot prove that it is young.
  if (waitedMs > maxAgeMs || occurredAtMs === undefined) return { age: 'too-old', clock: 'monotonic', ageMs: waitedMs };
  if (now === undefined) return { age: 'unknown' };
  const { clock } = now;
  const ageMs = now.ms - occurredAtMs;
  if (ageMs > maxAgeMs) return { age: 'too-old', clock, ageMs };
  return ageMs < -AHEAD_MS ? { age: 'ahead', clock, ageMs } : { age: 'fresh' };
}

/** Which clock decided, and the event's age by it; negative ahead of it. */
export function clockFields(age: AgeVerdict): object {
  return 'clock' in age ? { clock: age.clock, ageMs: Math.round(age.ageMs) } : {};
}

export function byClock(age: AgeVerdict): string | undefined {
  return 'clock' in age ? `by the ${age.clock} clock` : undefined;
}
