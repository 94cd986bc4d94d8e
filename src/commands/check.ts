import type { Command } from 'commander';
import { type CheckedConfiguration, checkConfiguration, configurationDirectory } from '../config/configuration.ts';
import { problemLine } from '../config/problem.ts';
import { serviceEnvironment } from './service-folder.ts';

/** sysexits.h: what `run` exits with too when the configuration cannot work. */
const EX_CONFIG = 78;

/** Adds `tagferry check`: every problem of the configuration, each on a line that says what to write instead. */
export function define(program: Command): void {
  program
    .command('check')
    .description(
      'read all configuration and print every problem as file:line:column: what is wrong, what to write instead',
    )
    .option('--json', 'print the problems as JSON, for editors and scripts')
    .action((options: { json?: boolean }) => {
      const directory = configurationDirectory(program.opts<{ config?: string }>().config, process.env);
      const checked = checkConfiguration({ directory, environment: serviceEnvironment(directory, process.env) });
      process.stdout.write(`${options.json ? asJson(directory, checked) : asText(directory, checked)}\n`);
      process.exitCode = checked.configuration === undefined ? EX_CONFIG : 0;
    });
}

function asJson(directory: string, checked: CheckedConfiguration): string {
  const problems = checked.problems.filter((problem) => problem.severity === 'error');
  const warnings = checked.problems.filter((problem) => problem.severity === 'warning');
  return JSON.stringify({ directory, ok: checked.configuration !== undefined, problems, warnings }, null, 2);
}

function asText(directory: string, checked: CheckedConfiguration): string {
  const lines = checked.problems.map(problemLine);
  const warnings = checked.problems.filter((problem) => problem.severity === 'warning').length;
  const counts = [
    counted(checked.problems.length - warnings, 'problem'),
    ...(warnings > 0 ? [counted(warnings, 'warning')] : []),
  ];
  if (checked.configuration !== undefined) {
    const { tags, reactions } = checked.configuration;
    counts.push(
      counted(tags.tags.size, 'tag'),
      counted(tags.sources.size, 'source'),
      counted(reactions.length, 'reaction'),
    );
  }
  return [...lines, `${directory}: ${counts.join(', ')}`].join('\n');
}

function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`;
}
