import type { Command } from 'commander';
import { counted } from '../../base/amounts.ts';
import { jsonText } from '../../base/foreign-text.ts';
import { version } from '../../base/installation.ts';
import type { DropForecast } from '../../buffer/space/dropping.ts';
import { configurationDirectory, readSettingsLeniently } from '../../config/configuration.ts';
import { type Problem, Problems, problemLine, sortProblems } from '../../config/problem.ts';
import { type ConfigurationVerdict, verifyConfiguration } from '../configuration/verdict.ts';
import { agentAddress, askAgent } from '../connection/control-client.ts';
import { type CheckLine, lineText } from '../doctor/context.ts';
import { serviceEnvironment } from '../service/service-folder.ts';
import { isServiceView } from '../service/service-view.ts';

/** EX_CONFIG in sysexits.h, the exit status for configuration errors. */
const EX_CONFIG = 78;

/** Adds `tagferry check`. */
export function define(program: Command): void {
  program
    .command('check')
    .description('check the configuration and print each problem as file:line:column: problem, correction')
    .option('--json', 'print the problems as JSON')
    .option('--online', 'also check assets, instrumentations and the webhook of valid files on the platform')
    .action(async (options: { json?: boolean; online?: boolean }) => {
      const { config } = program.opts<{ config?: string }>();
      const directory = configurationDirectory(config, process.env);
      const verified = await verifyConfiguration(directory, process.env);
      const drops = verified.ok && !isServiceView(process.env) ? await warnOfDrops(config, directory) : [];
      const verdict = { ...verified, warnings: [...verified.warnings, ...drops] };
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

/** Checks the configured assets, instrumentations and webhook on the platform. */
async function askOnline(config: string | undefined): Promise<CheckLine[]> {
  // Load the module on demand, because it includes the platform client.
  const { openDoctorContext } = await import('../doctor/context.ts');
  const { FILE_STEPS, runSteps } = await import('../doctor/steps.ts');
  const context = await openDoctorContext(config, process.env, version(), 'files');
  const steps = await runSteps(context, undefined, FILE_STEPS);
  return Object.values(steps).flat();
}

/** Returns the whole verdict as JSON if another command runs this one as the service. */
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
    ? 'Checked as root, because systemd-run failed. The service may be unable to read files that root can read.'
    : 'Checked as the current user. To run the checks as the service user, run `sudo tagferry check`.';
}

/** Warns if the configured BUFFER_MAX_BYTES would drop values from the buffer of the running agent. */
export async function warnOfDrops(config: string | undefined, directory: string): Promise<readonly Problem[]> {
  const environment = serviceEnvironment(directory, process.env);
  const { settings, placeOf } = readSettingsLeniently({ directory, environment });
  const maxBytes = settings.bufferMaxBytes ?? 0;
  if (maxBytes === 0 || settings.bufferFull !== 'drop-oldest') return [];
  let drops: DropForecast;
  try {
    drops = await askAgent(agentAddress(config, environment), 'buffer/forecast', { max_bytes: maxBytes });
  } catch {
    // No agent is running, or this user cannot access it.
    return [];
  }
  const parts = [
    ...(drops.values > 0 ? [`about ${counted(drops.values, 'undelivered value')}`] : []),
    ...(drops.quarantined > 0 ? [`about ${drops.quarantined} in quarantine`] : []),
  ];
  if (parts.length === 0) return [];
  const problems = new Problems();
  problems.warning(
    placeOf('BUFFER_MAX_BYTES'),
    `BUFFER_MAX_BYTES ${maxBytes} would drop ${parts.join(' and ')} at the next reload or restart`,
    'wait until the buffer has drained, or set a larger limit',
  );
  return problems.warnings;
}
