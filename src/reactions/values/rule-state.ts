import type { ValueCondition, ValueRule } from '../../config/reactions.ts';
import type { ValueStatus } from '../../contract/values.ts';

/**
 * State machine of a value rule. It has no side effects; the caller owns the timers.
 *
 *   cleared ──condition met──► pending ──`for` has passed──► raised ──cleared by a value──► cleared
 *      ▲                          │
 *      └──condition not met───────┘
 *
 * Without `for`, a rule is raised immediately. A rule with the condition `changes` emits one transition per change and
 * remains cleared.
 */
export interface RuleState {
  readonly isRaised: boolean;
  /** Monotonic time since which the condition has been met; set while the rule is pending. */
  readonly pendingSinceMs?: number | undefined;
  /** Monotonic time of the latest value, or of the start of the rule. */
  readonly sampledAtMs: number;
  /** Latest value that the condition used. */
  readonly sample?: Sample | undefined;
}

/** Value accepted from any input, after scaling and before the dead band. */
export interface Sample {
  readonly value: number;
  readonly timestampMs: number;
  readonly status: ValueStatus | undefined;
}

export type Transition = 'raised' | 'cleared';

export interface Step {
  readonly state: RuleState;
  readonly transition?: Transition | undefined;
}

/** Applies an accepted value. Times are monotonic, in milliseconds. */
export function applySample(
  { condition, forMs }: Pick<ValueRule, 'condition' | 'forMs'>,
  state: RuleState,
  sample: Sample,
  nowMs: number,
): Step {
  if (sample.status === 'bad' && condition.kind !== 'bad' && condition.kind !== 'silent') {
    return { state: { ...state, sampledAtMs: nowMs } };
  }
  const next = { ...state, sample, sampledAtMs: nowMs };
  const isMet = meets(condition, state.sample, sample);
  if (condition.kind === 'changes') return { state: next, transition: isMet ? 'raised' : undefined };
  if (!isMet) return withoutCondition(condition, next);
  if (state.isRaised) return { state: next };
  const pendingSinceMs = state.pendingSinceMs ?? nowMs;
  return applyTime({ condition, forMs }, { ...next, pendingSinceMs }, nowMs);
}

/** Applies the current time to a rule without a new value. */
export function applyTime(
  { condition, forMs }: Pick<ValueRule, 'condition' | 'forMs'>,
  state: RuleState,
  nowMs: number,
): Step {
  if (state.isRaised) return { state };
  const dueMs = dueAtMs({ condition, forMs }, state);
  if (dueMs === undefined || nowMs < dueMs) return { state };
  return { state: { ...state, isRaised: true, pendingSinceMs: undefined }, transition: 'raised' };
}

/** Returns the monotonic time at which `applyTime` will raise the rule if no value arrives earlier. */
export function dueAtMs(
  { condition, forMs }: Pick<ValueRule, 'condition' | 'forMs'>,
  state: RuleState,
): number | undefined {
  if (state.isRaised) return undefined;
  if (condition.kind === 'silent') return state.sampledAtMs + condition.ms;
  return state.pendingSinceMs === undefined ? undefined : state.pendingSinceMs + forMs;
}

/**
 * Applies a value that does not meet the condition. A value between the two thresholds of a hysteresis ends the pending
 * state, but does not clear a raised rule.
 */
function withoutCondition(condition: ValueCondition, state: RuleState): Step {
  if (!state.isRaised) return { state: { ...state, pendingSinceMs: undefined } };
  if (!clears(condition, state.sample!)) return { state };
  return { state: { ...state, isRaised: false }, transition: 'cleared' };
}

function meets(condition: ValueCondition, previous: Sample | undefined, sample: Sample): boolean {
  const { value } = sample;
  switch (condition.kind) {
    case 'above':
      return value > condition.raise;
    case 'below':
      return value < condition.raise;
    case 'outside':
      return value < condition.low || value > condition.high;
    case 'changes':
      return previous !== undefined && previous.value !== value;
    case 'bad':
      return sample.status === 'bad';
    case 'silent':
      return false;
    case 'rate': {
      const ms = previous === undefined ? 0 : sample.timestampMs - previous.timestampMs;
      return ms > 0 && (Math.abs(value - previous!.value) / ms) * condition.perMs > condition.change;
    }
  }
}

function clears(condition: ValueCondition, { value }: Sample): boolean {
  if (condition.kind === 'above') return condition.clear === undefined || value < condition.clear;
  if (condition.kind === 'below') return condition.clear === undefined || value > condition.clear;
  return true;
}
