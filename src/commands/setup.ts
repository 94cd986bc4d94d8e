import { join, resolve } from 'node:path';
import type { Command } from 'commander';
import { systemClock } from '../base/clock.ts';
import { messageOf, TagferryError, UsageError } from '../base/errors.ts';
import { version } from '../base/installation.ts';
import { configurationDirectory, readSettingsLeniently } from '../config/configuration.ts';
import { problemLine, sortProblems } from '../config/problem.ts';
import type { KeyName } from '../config/setting-keys.ts';
import type { Settings } from '../config/settings.ts';
import { diagnosePlatform } from '../control/diagnosis.ts';
import { ClientApplications } from '../platform/resources/client-applications.ts';
import { clearDecommissionMark } from '../store/decommission-mark.ts';
import { fillValuesPath } from '../uplink/post-address.ts';
import { judgeConfiguration } from './configuration-verdict.ts';
import { daemonPlace } from './control-client.ts';
import { logIn, type OwnLogin } from './doctor/own-login.ts';
import { isServiceFolder } from './service-folder.ts';
import { addShippedFiles, readText, shippedText, writeWhole } from './setup/configuration-files.ts';
import { Dialogue } from './setup/dialogue.ts';
import { envValue, setEnvLines } from './setup/env-lines.ts';
import { type FirstTag, isAsShipped, putFirstTag, withoutExample } from './setup/first-tag.ts';
import { askFirstTag, askSecret, askSetting } from './setup/questions.ts';
import { keepSecrets, type Secrets } from './setup/secret-keeping.ts';
import { serviceStart } from './setup/service-start.ts';

interface Flags {
  login: boolean;
  secrets: string;
}

interface Answers {
  env: Map<string, string>;
  secrets: Secrets;
}

/** Adds `tagferry setup`: from nothing to a configuration that works. Nothing is written before everything is answered. */
export function define(program: Command): void {
  program
    .command('setup')
    .description('ask for what is needed, try the login, write the configuration with its comments kept')
    .option('--no-login', 'do not try the credentials: the platform cannot be reached from here')
    .option('--secrets <auto|systemd|files>', 'encrypted by systemd-creds, or files of 0600', 'auto')
    .addHelpText('after', '\nIn a pipe, the lines of standard input are the answers, in the order of the questions.')
    .action(async (flags: Flags) => {
      if (!['auto', 'systemd', 'files'].includes(flags.secrets))
        throw new UsageError('--secrets is auto, systemd or files');
      const directory = configurationDirectory(program.opts<{ config?: string }>().config, process.env);
      const dialogue = new Dialogue();
      try {
        await setUp(dialogue, directory, flags);
      } finally {
        dialogue.close();
      }
    });
}

async function setUp(dialogue: Dialogue, directory: string, flags: Flags): Promise<void> {
  const envPath = join(directory, 'agent.env');
  const envText = readText(envPath) ?? shippedText('agent.env');
  dialogue.say(`This writes the configuration in ${resolve(directory)}. Enter takes what stands in [brackets].\n`);
  const { answers, login } = await credentials(dialogue, directory, envText, flags);
  let tag: FirstTag | undefined;
  try {
    if (login) await askApplication(dialogue, login, answers, envText);
    const question = 'Public https address for webhook events (empty: no events, or later)';
    answers.env.set(
      'WEBHOOK_URL',
      await askSetting(dialogue, 'WEBHOOK_URL', question, envValue(envText, 'WEBHOOK_URL')),
    );
    tag = await askFirstTag(dialogue);
    if (tag && login) await tryAsset(dialogue, login, tag);
  } finally {
    await login?.revoke().catch(() => {});
    await login?.close();
  }
  const kept = await keepSecrets(directory, answers.secrets, flags.secrets as 'auto' | 'systemd' | 'files');
  writeWhole(envPath, setEnvLines(envText, new Map([...answers.env, ...kept.env])), 0o640);
  const tagsPath = join(directory, 'tags.yaml');
  const tagsText = readText(tagsPath) ?? shippedText('tags.yaml');
  if (tag) writeWhole(tagsPath, putFirstTag(tagsText, tag), 0o644);
  else if (isAsShipped(tagsText) || tagsText === '') writeWhole(tagsPath, withoutExample(tagsText), 0o644);
  addShippedFiles(directory);
  dialogue.say(`\nWritten. The secrets are ${kept.where}.`);
  if (await clearDecommissionMark(daemonPlace(directory, process.env).stateDir))
    dialogue.say('This gateway had been decommissioned: it is in service again.');
  await conclude(dialogue, directory);
}

/** Address and credentials, asked again on a terminal as long as the platform refuses them. */
async function credentials(
  dialogue: Dialogue,
  directory: string,
  envText: string,
  flags: Flags,
): Promise<{ answers: Answers; login: OwnLogin | undefined }> {
  const env = new Map<string, string>();
  const setting = async (key: KeyName, question: string) => {
    env.set(key, await askSetting(dialogue, key, question, env.get(key) ?? envValue(envText, key)));
  };
  for (;;) {
    await setting('PLATFORM_URL', 'Address of the API, for example https://api.example.com');
    await setting('IDENTITY_URL', 'Address of the identity application (empty: the same)');
    await setting('CLIENT_ID', 'API key of the connect subscription');
    const clientSecret = await askSecret(dialogue, 'API secret (not shown)');
    await setting('TECHNICAL_USERNAME', 'Name of the technical user');
    const password = await askSecret(dialogue, 'Its password (not shown)');
    const answers: Answers = { env, secrets: { client_secret: clientSecret, technical_password: password } };
    if (!flags.login) return { answers, login: undefined };
    try {
      const login = await logIn(settingsOf(directory, answers), { clock: systemClock, version: version() });
      dialogue.say('  The platform takes these credentials.\n');
      return { answers, login };
    } catch (error) {
      const hint = error instanceof TagferryError && error.hint ? error.hint : 'Check the answers.';
      if (!dialogue.isTerminal) throw error;
      dialogue.say(`\n  ${messageOf(error)}\n  ${hint}\n`);
      if (!(await dialogue.confirm('Answer again? (no: write it as it is)'))) return { answers, login: undefined };
    }
  }
}

/** What a login needs: what was answered, over what the folder says of the rest (proxy, authority, CLIENT_AUTH). */
function settingsOf(directory: string, { env, secrets }: Answers): Settings {
  const { settings } = readSettingsLeniently({ directory, environment: process.env });
  const bare = (text: string) => text.replace(/\/+$/, '');
  const platformUrl = bare(env.get('PLATFORM_URL') ?? '');
  return {
    ...settings,
    platformUrl,
    identityUrl: bare(env.get('IDENTITY_URL') || platformUrl),
    clientId: env.get('CLIENT_ID') ?? '',
    technicalUsername: env.get('TECHNICAL_USERNAME') ?? '',
    clientSecret: secrets.client_secret,
    technicalPassword: secrets.technical_password,
    clientAuth: settings.clientAuth ?? 'basic',
  } as Settings;
}

async function askApplication(dialogue: Dialogue, login: OwnLogin, answers: Answers, envText: string): Promise<void> {
  const applications = new ClientApplications(login.client);
  const current = await applications.current(AbortSignal.timeout(20_000)).catch(() => undefined);
  const shown = current ? `empty: the current one, ${current.name}` : 'empty: the current one';
  const before = envValue(envText, 'CLIENT_APPLICATION');
  const name = await askSetting(dialogue, 'CLIENT_APPLICATION', `Name of the client application (${shown})`, before);
  answers.env.set('CLIENT_APPLICATION', name);
  if (name === '') return;
  await applications.find(name, AbortSignal.timeout(20_000)).catch((error: unknown) => {
    dialogue.say(`  ${messageOf(error)}: mend CLIENT_APPLICATION later.`);
  });
}

async function tryAsset(dialogue: Dialogue, { client }: OwnLogin, tag: FirstTag): Promise<void> {
  const path = '/v1/assets/{asset_id}/values';
  const { assets, instrumentations } = await diagnosePlatform({
    client,
    clock: systemClock,
    assets: [tag.asset],
    instrumentations: tag.instrumentation === undefined ? [] : [tag.instrumentation],
    requestsPerMinute: 0,
    pathOf: (asset) => fillValuesPath(path, asset, tag.instrumentation),
  });
  for (const { message, next } of [...assets, ...instrumentations])
    dialogue.say(`  ${message}${next ? `. ${next}` : ''}`);
  if (tag.unit !== '')
    dialogue.say(
      '  Whether the platform knows the unit it tells with the first value alone: see tagferry status then.',
    );
}

/** What `check` thinks of it, and what comes next: on a service that runs, a restart, which loads new credentials too. */
async function conclude(dialogue: Dialogue, directory: string): Promise<void> {
  const { problems, warnings } = await judgeConfiguration(directory, process.env);
  for (const problem of sortProblems([...problems, ...warnings])) dialogue.say(problemLine(problem));
  const config = isServiceFolder(directory) ? '' : ` --config ${directory}`;
  const start = isServiceFolder(directory) ? await serviceStart() : `tagferry run${config}`;
  dialogue.say(`\nNext:\n  ${start}\n  tagferry doctor${config}\n  tagferry status${config}`);
  if (problems.length > 0) process.exitCode = 78;
}
