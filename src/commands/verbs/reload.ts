import type { Command } from 'commander';
import { plain } from '../../base/foreign-text.ts';
import { fitted } from '../../base/table.ts';
import { type ConfigurationReport, pendingRestart, RESTART } from '../../config/configuration-report.ts';
import { agentOf, askAgent } from '../connection/control-client.ts';

type Verdict = ({ reloaded: true } & ConfigurationReport) | { reloaded: false; problems: readonly string[] };

/** Adds `tagferry reload`, the unit's ExecReload: like SIGHUP, but waits for the result. */
export function define(program: Command): void {
  program
    .command('reload')
    .description('reload the configuration and report whether it was accepted')
    .option('--json', 'print the result as JSON')
    .addHelpText('after', '\nExit status 1 if the files are rejected: the previous configuration stays in effect.')
    .action(async (flags: { json?: boolean }) => {
      const verdict = await askAgent<Verdict>(agentOf(program), 'reload');
      if (!verdict.reloaded) process.exitCode = 1;
      if (flags.json) process.stdout.write(`${JSON.stringify(verdict, null, 2)}\n`);
      else say(verdict);
    });
}

function say(verdict: Verdict): void {
  if (!verdict.reloaded) {
    const lines = [...verdict.problems.map(plain), 'Files rejected, the previous configuration stays in effect.'];
    process.stderr.write(`${fitted(lines.join('\n'), process.stderr)}\n`);
    return;
  }
  for (const warning of verdict.warnings) process.stderr.write(`${fitted(plain(warning), process.stderr)}\n`);
  const pending = pendingRestart(verdict);
  process.stdout.write(`Configuration reloaded${pending === '' ? '' : `, except for: ${pending}`}.\n`);
  if (pending === '') return;
  process.stderr.write(`${fitted(`To apply the changes to ${pending}, run ${RESTART}.`, process.stderr)}\n`);
}
