import type { Command } from 'commander';
import { counted } from '../base/amounts.ts';
import { jsonText } from '../base/foreign-text.ts';
import { version } from '../base/installation.ts';
import { configurationDirectory } from '../config/configuration.ts';
import { problemLine, sortProblems } from '../config/problem.ts';
import { warnOfDrops } from './bound-forecast.ts';
import { type ConfigurationVerdict, judgeConfiguration } from './configuration-verdict.ts';
import type { CheckLine } from './doctor/finding.ts';
import { lineText } from './doctor/line-text.ts';
import { isServiceView } from './service-view.ts';

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
    .option('--online', 'where the files are right, ask the platform about what they name, as far as it tells')
    .action(async (options: { json?: boolean; online?: boolean }) => {
      const { config } = program.opts<{ config?: string }>();
      const directory = configurationDirectory(config, process.env);
      const judged = await judgeConfiguration(directory, process.env);
      const drops = judged.ok && !isServiceView(process.env) ? await warnOfDrops(config, directory) : [];
      const verdict = { ...judged, warnings: [...judged.warnings, ...drops] };
      const online = options.online && verdict.ok ? await askOnline(config) : undefined;
      if (options.json && online) {
        const { problems, warnings, unread, ok } = verdict;
        process.stdout.write(`${JSON.stringify({ directory, ok, problems, warnings, unread, online }, null, 2)}\n`);
      } else process.stdout.write(`${options.json ? asJson(verdict) : asText(verdict)}\n`);
      if (online && !options.json) process.stdout.write(`${online.map(lineText).join('\n')}\n`);
      const isRefused = online?.some(({ state }) => state === 'failure') === true;
      process.exitCode = !verdict.ok ? EX_CONFIG : isRefused ? 1 : 0;
    });
}

/** What the platform tells of assets, instrumentations and the webhook that the files name, and where it tells nothing. */
async function askOnline(config: string | undefined): Promise<CheckLine[]> {
  // Loaded by those who ask: it brings the platform's client along.
  const { beginConsultation } = await import('./doctor/consultation.ts');
  const { FILE_STEPS, runSteps } = await import('./doctor/steps.ts');
  const consultation = await beginConsultation(config, process.env, version(), 'files');
  const steps = await runSteps(consultation, undefined, FILE_STEPS);
  return Object.values(steps).flat();
}

/** With what the verb itself needs, where it looks for another with the service's eyes. */
function asJson(verdict: ConfigurationVerdict): string {
  const { directory, ok, problems, warnings, unread } = verdict;
  return jsonText(isServiceView(process.env) ? verdict : { directory, ok, problems, warnings, unread });
}

function asText(verdict: ConfigurationVerdict): string {
  const { directory, ok, problems, warnings, tags, sources, reactions, checkedAs, unread } = verdict;
  const counts = [
    counted(problems.length, 'problem'),
    ...(warnings.length > 0 ? [counted(warnings.length, 'warning')] : []),
    ...(ok && unread.length === 0
      ? [counted(tags, 'tag'), counted(sources, 'source'), counted(reactions, 'reaction')]
      : []),
  ];
  const notRead = unread.map((name) => `${name}: not checked, this user cannot read it`);
  const lines = [...sortProblems([...problems, ...warnings]).map(problemLine), ...notRead];
  return [...lines, `${directory}: ${counts.join(', ')}`, ...(checkedAs === 'user' ? [userText()] : [])].join('\n');
}

function userText(): string {
  return process.getuid?.() === 0
    ? 'Checked as root, because systemd-run failed. The service possibly cannot read what root can read.'
    : 'Checked as the current user. To check as the service, run `sudo tagferry check`.';
}
