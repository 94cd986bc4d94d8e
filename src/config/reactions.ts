import type { Action } from './action-kinds.ts';

/** Reaction in reactions.yaml, with defaults applied and tag names resolved to IDs. */
export interface Reaction {
  name: string;
  /** Event types; `"*"` matches every platform event type. */
  on: '*' | readonly string[];
  /** Conditions; all of them must match. */
  conditions: readonly Condition[];
  /** Cooldown per reaction and object, in milliseconds; 0 disables it. */
  cooldownMs: number;
  /** Maximum age of an event, in milliseconds; older events are only logged. 0 means no limit. */
  maxAgeMs: number;
  actions: readonly Action[];
  /** Rule whose events start the reaction. Set only on the part that reacts to `value_raised`. */
  rule?: ValueRule;
}

export type Condition =
  | { kind: 'tag'; anyOf: readonly NamedTag[] }
  /** `path` is relative to `content`: `threshold.type`, `data.value`. */
  | { kind: 'equals'; path: string; anyOf: readonly (string | number | boolean | null)[] }
  | { kind: 'range'; path: string; above?: number; below?: number };

/** Tag in a condition, with the IDs that events contain. */
export interface NamedTag {
  tag: string;
  asset: number;
  instrumentation?: number;
}

/**
 * Returns the number of reactions in reactions.yaml. A rule with `on_clear` counts as one, although it has two parts.
 */
export function countReactions(reactions: readonly Reaction[]): number {
  return new Set(reactions.map(({ name }) => name)).size;
}

/** Rule on the values of one series (reactions.yaml, `on: value`). Its actions are reactions to the rule's events. */
export interface ValueRule {
  /** Name of the reaction. */
  name: string;
  tag: string;
  asset: number;
  instrumentation?: number;
  /** Key and group of the value in tags.yaml, in lower case. */
  key: string;
  group?: string;
  condition: ValueCondition;
  /** Time for which the condition must be met before the rule is raised, in milliseconds. */
  forMs: number;
}

/**
 * Condition of a rule. `clear` is the threshold at which a raised rule is cleared, inclusive without hysteresis,
 * otherwise exclusive. Numeric conditions ignore values with the status bad.
 */
export type ValueCondition =
  | { kind: 'above' | 'below'; raise: number; clear?: number }
  /** Raised by a value below `low` or above `high`. */
  | { kind: 'outside'; low: number; high: number }
  /** Raised by each value that differs from the previous one; never cleared. */
  | { kind: 'changes' }
  /** Raised by a value with the status bad. */
  | { kind: 'bad' }
  /** Raised if no value was accepted for this time, in milliseconds. */
  | { kind: 'silent'; ms: number }
  /** Raised if two successive values differ by more than `change` per `perMs`, by their timestamps. */
  | { kind: 'rate'; change: number; perMs: number };
