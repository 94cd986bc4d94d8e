import type { Command } from 'commander';
import { durationText } from '../../base/amounts.ts';
import { jsonText, plain } from '../../base/foreign-text.ts';
import { table } from '../../base/table.ts';
import type { ReactionLine, RuleTest } from '../../control/reaction-routes.ts';
import { agentOf, askAgent } from '../connection/control-client.ts';
import { print } from '../terminal/output.ts';

/** Adds `tagferry reactions`. Requires a running agent, because only the agent tracks rule state. */
export function define(program: Command): void {
  const reactions = program.command('reactions').description('list reactions and test rules on local values');
  const place = () => agentOf(program);

  reactions
    .command('ls')
    .description('list reactions, with the state of rules on local values')
    .option('--json', 'print the reactions as JSON')
    .action(async (flags: { json?: boolean }) => {
      const found = await askAgent<{ reactions: ReactionLine[] }>(place(), 'reactions/ls');
      print(flags.json ? jsonText(found.reactions) : listText(found.reactions));
    });

  reactions
    .command('test')
    .description('show the effect of a value on a rule without running its actions')
    .argument('<name>', 'name of a rule on local values')
    .requiredOption('--value <number>', 'scaled value')
    .option('--status <good|uncertain|bad>', 'value status')
    .option('--json', 'print the result as JSON')
    .action(async (name: string, flags: { value: string; status?: string; json?: boolean }) => {
      const params = { name, value: Number(flags.value), status: flags.status };
      const result = await askAgent<RuleTest>(place(), 'reactions/test', params);
      print(flags.json ? jsonText(result) : testText(result, flags.value));
    });
}

function listText(reactions: readonly ReactionLine[]): string {
  if (reactions.length === 0) return 'No reactions.';
  return table([
    ['reaction', 'on', 'state', 'value', 'transitions', 'actions'],
    ...reactions.map(({ name, on, actions, rule }) => [
      plain(name),
      rule === null ? on.join(', ') : `${plain(rule.tag)} ${plain(rule.key)}`,
      rule?.state ?? '-',
      rule?.value === undefined ? '-' : String(rule.value),
      rule === null ? '-' : String(rule.transitions),
      actions.map(plain).join(', '),
    ]),
  ]);
}

function testText({ name, state, transition, after_ms, actions }: RuleTest, value: string): string {
  const rule = `The rule ${plain(name)} is ${state}.`;
  if (transition === 'none') return `${rule} The value ${value} would not change it.`;
  const delay = after_ms > 0 ? ` after ${durationText(after_ms / 1000)}` : '';
  const run = actions.length === 0 ? 'no action' : actions.map(plain).join(', ');
  return `${rule} The value ${value} would set it to ${transition}${delay} and run: ${run}`;
}
