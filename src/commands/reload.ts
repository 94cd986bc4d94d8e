import type { Command } from 'commander';
import { plain } from '../base/foreign-text.ts';
import { fitted } from '../base/table.ts';
import type { ConfigurationReport } from '../config/configuration-report.ts';
import { askDaemon, daemonPlace } from './control-client.ts';

type Verdict = ({ reloaded: true } & ConfigurationReport) | { reloaded: false; problems: readonly string[] };

/** Adds `tagferry reload`: what SIGHUP does, with the daemon's verdict; the unit's ExecReload. */
export function define(program: Command): void {
  program
    .command('reload')
    .description('read the configuration again, and wait for the verdict')
    .option('--json', 'print the verdict as JSON')
    .addHelpText('after', '\nExit status 1 where the files are refused: those of before stay in force.')
    .action(async (flags: { json?: boolean }) => {
      const verdict = await askDaemon<Verdict>(
        daemonPlace(program.opts<{ config?: string }>().config, process.env),
        'reload',
      );
      if (!verdict.reloaded) process.exitCode = 1;
      if (flags.json) process.stdout.write(`${JSON.stringify(verdict, null, 2)}\n`);
      else say(verdict);
    });
}

function say(verdict: Verdict): void {
  if (!verdict.reloaded) {
    const lines = [...verdict.problems.map(plain), 'The files are refused: those of before stay in force.'];
    process.stderr.write(`${fitted(lines.join('\n'), process.stderr)}\n`);
    return;
  }
  process.stdout.write('The configuration was read again and is in force.\n');
  const waiting = [
    ...verdict.restart_needed,
    ...verdict.changed_credentials.map((name) => `the credential ${name}, which systemd hands over at a start`),
  ];
  if (waiting.length === 0) return;
  const text = `Not yet in force: ${waiting.join(', ')}. Needed: systemctl restart tagferry`;
  process.stderr.write(`${fitted(text, process.stderr)}\n`);
}
