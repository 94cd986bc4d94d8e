/** Control routes for reactions and rules on values. */
import { UsageError } from '../base/errors.ts';
import { insteadOf } from '../base/nearest.ts';
import type { Reaction } from '../config/reactions.ts';
import { VALUE_STATUSES, type ValueStatus } from '../contract/values.ts';
import { nameActions } from '../reactions/actions.ts';
import type { RuleReport, ValueRules } from '../reactions/values/value-rules.ts';
import type { ControlRoutes } from './control-server.ts';

/** A reaction in `reactions ls`. */
export interface ReactionLine {
  name: string;
  /** Event types that trigger the reaction. */
  on: readonly string[];
  actions: readonly string[];
  /** State of a rule on values. */
  rule: RuleReport | null;
}

/** Result of `reactions test`. */
export interface RuleTest {
  name: string;
  state: RuleReport['state'];
  transition: 'raised' | 'cleared' | 'none';
  /** Time for which the condition must be met before the transition occurs, in milliseconds. */
  after_ms: number;
  /** Actions that would run. */
  actions: readonly string[];
}

export function reactionRoutes(
  reactions: () => readonly Reaction[],
  rules: Pick<ValueRules, 'reports' | 'preview'>,
): ControlRoutes {
  return {
    'reactions/ls': async () => ({ reactions: linesOf(reactions(), rules.reports()) }),
    'reactions/test': async (params) => testRule(reactions(), rules, params),
  };
}

function linesOf(reactions: readonly Reaction[], reports: readonly RuleReport[]): ReactionLine[] {
  return reactions.map(({ name, on, actions, rule }) => ({
    name,
    on: on === '*' ? ['*'] : on,
    actions: nameActions(actions),
    rule: rule === undefined ? null : (reports.find((report) => report.name === name) ?? null),
  }));
}

function testRule(
  reactions: readonly Reaction[],
  rules: Pick<ValueRules, 'reports' | 'preview'>,
  { name, value, status }: Record<string, unknown>,
): RuleTest {
  if (typeof value !== 'number' || !Number.isFinite(value)) throw new UsageError('value must be a number');
  if (status !== undefined && !VALUE_STATUSES.includes(status as ValueStatus)) {
    throw new UsageError(`status must be one of ${VALUE_STATUSES.join(', ')}`);
  }
  const report = rules.reports().find((one) => one.name === name);
  if (report === undefined) {
    const names = rules.reports().map((one) => one.name);
    throw new UsageError(
      `no rule on local values is named "${String(name)}"`,
      capitalized(insteadOf(String(name), names)),
    );
  }
  const { transition, afterMs } = rules.preview(report.name, value, status as ValueStatus | undefined);
  const reaction = reactions.find((one) => one.name === name && one.on.includes(`value_${transition}`));
  return {
    name: report.name,
    state: report.state,
    transition: transition ?? 'none',
    after_ms: afterMs,
    actions: nameActions(reaction?.actions ?? []),
  };
}

function capitalized(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}
