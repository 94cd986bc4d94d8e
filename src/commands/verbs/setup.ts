import { randomBytes } from 'node:crypto';
import { accessSync, constants, existsSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import type { Command } from 'commander';
import { ConfigurationError, codeOf, TagferryError, UsageError } from '../../base/errors.ts';
import { configurationDirectory, readSettingsLeniently } from '../../config/configuration.ts';
import { problemLine } from '../../config/problem.ts';
import { KEY_NAMES, settingKey } from '../../config/setting-keys.ts';
import { clearDecommissionMark, decommissioned, decommissionMessage } from '../../store/decommission-mark.ts';
import { storedSecrets, storeSecrets } from '../configuration/credentials.ts';
import { addShippedFiles, envValue, readText, setEnvLines, shippedText, writeWhole } from '../configuration/files.ts';
import { agentAddress } from '../connection/control-client.ts';
import { isServiceFolder } from '../service/service-folder.ts';
import {
  type Answers,
  checkAll,
  isFailed,
  rejected,
  type SetupContext,
  summaryOf,
  testApplication,
  testLogin,
  testTag,
} from '../setup/answers.ts';
import { readAnswersFile } from '../setup/answers-file.ts';
import { Dialogue, EXIT_INTERRUPTED, Interrupted, type Screen } from '../setup/dialogue.ts';
import { testFirstSource } from '../setup/first-source.ts';
import { sourceNameFor, tagsAfter } from '../setup/first-tag.ts';
import { Interview } from '../setup/interview.ts';
import { showNextSteps } from '../setup/next-steps.ts';

interface Flags {
  login: boolean;
  secrets?: string;
  answers?: string;
  keepSecrets?: boolean;
}

type Way = 'auto' | 'systemd' | 'files';
const WAYS: readonly string[] = ['auto', 'systemd', 'files'];
const NOT_WRITTEN = 'Nothing was written.';

/** Adds `tagferry setup`. Does not write any files until all questions have been answered. */
export function define(program: Command): void {
  program
    .command('setup')
    .description('prompt for the required settings, test them on the platform, and write the configuration')
    .option('--answers <file>', 'file with settings and the first tag, instead of questions (- for standard input)')
    .option('--keep-secrets', 'skip questions for secrets that are already stored')
    .option('--no-login', 'do not test answers on the platform, for example while it is unreachable')
    .option(
      '--secrets <auto|systemd|files>',
      'secret storage: encrypted by systemd-creds, or files with mode 0600 (default: auto)',
    )
    .addHelpText(
      'after',
      '\nWithout a terminal, setup reads one answer per line from standard input, in the order of the questions, and exits if the platform ' +
        'rejects one. With --answers, secrets are read from files (CLIENT_SECRET_FILE=path, or - for the next line of standard input), from ' +
        'systemd credentials of the same name, or from the answers file itself if its mode is 0600. FIRST_TAG, FIRST_TAG_ASSET, _INSTRUMENTATION, ' +
        '_KEY, _UNIT, _SOURCE and _ADDRESS describe the first tag. Exit status 78 if an answer is wrong, 1 if the platform rejects it, 130 after Ctrl-C.',
    )
    .action(async (flags: Flags) => {
      if (flags.secrets !== undefined && !WAYS.includes(flags.secrets))
        throw new UsageError('--secrets must be auto, systemd or files');
      const directory = configurationDirectory(program.opts<{ config?: string }>().config, process.env);
      requireWritable(directory);
      if (flags.answers !== undefined) return setUpUnattended(directory, flags.answers, flags);
      const dialogue = new Dialogue();
      try {
        await setUpByPerson(dialogue, directory, flags);
      } catch (error) {
        if (!(error instanceof Interrupted)) throw error;
        process.exitCode = EXIT_INTERRUPTED;
      } finally {
        dialogue.close();
      }
    });
}

/** Throws `setup.unwritable` before the first question instead of after the final one. */
function requireWritable(directory: string): void {
  const hint = isServiceFolder(directory)
    ? 'Run `sudo tagferry setup`.'
    : 'Run it as the owner of the folder, or specify another folder with --config.';
  const places = [directory, join(directory, 'agent.env'), join(directory, 'credentials')];
  for (const place of places.filter((one, i) => i === 0 || existsSync(one))) {
    let nearest = resolve(place);
    while (!existsSync(nearest)) nearest = dirname(nearest);
    try {
      accessSync(nearest, constants.R_OK | constants.W_OK);
    } catch (cause) {
      throw new TagferryError(`this user cannot write to ${place} (${codeOf(cause)})`, {
        code: 'setup.unwritable',
        hint,
        cause,
      });
    }
  }
  if (isServiceFolder(directory) && process.getuid?.() !== 0) {
    throw new TagferryError('this user cannot configure the service', { code: 'setup.unwritable', hint });
  }
  const { stateDir } = agentAddress(directory, process.env);
  if (decommissioned(stateDir)?.restoring) throw rejected(decommissionMessage(stateDir)!);
}

async function initialState(directory: string, { keepSecrets: keep = false, login }: Flags): Promise<SetupContext> {
  return {
    directory,
    envText: readText(join(directory, 'agent.env')) ?? shippedText('agent.env'),
    tagsText: readText(join(directory, 'tags.yaml')) ?? shippedText('tags.yaml'),
    stored: await storedSecrets(directory),
    keepSecrets: keep,
    login,
  };
}

async function setUpByPerson(dialogue: Dialogue, directory: string, flags: Flags): Promise<void> {
  const context = await initialState(directory, flags);
  dialogue.say(
    `This command writes the configuration in ${resolve(directory)}. Press Enter to accept the answer in [brackets], or type - to remove it.\n`,
  );
  const interview = new Interview(dialogue, context);
  for (;;) {
    const answers = await interview.ask();
    addOpsToken(answers);
    dialogue.say(summaryOf(answers, context));
    const problems = checkAll(context, answers).map(problemLine);
    if (problems.length > 0) {
      if (!dialogue.isTerminal) throw new ConfigurationError([...problems, NOT_WRITTEN]);
      dialogue.say(`${problems.join('\n')}\n`);
      const next = await dialogue.choose('The configuration has errors.', { a: 'answer again', n: 'quit' });
      if (next === 'a') continue;
      dialogue.say(NOT_WRITTEN);
      process.exitCode = 78;
      return;
    }
    const choice = dialogue.isTerminal
      ? await dialogue.choose('Write the configuration?', { y: 'yes', a: 'answer again', n: 'no' })
      : 'y';
    if (choice === 'n') {
      dialogue.say(NOT_WRITTEN);
      process.exitCode = 1;
      return;
    }
    if (choice === 'y') {
      dialogue.beginWriting();
      return write(answers, context, flags, dialogue);
    }
  }
}

/**
 * Applies the same checks as the interactive questions. `setup` exits at the first answer that the platform rejects.
 */
async function setUpUnattended(directory: string, file: string, flags: Flags): Promise<void> {
  const say = (text: string) => void process.stderr.write(`${text}\n`);
  const screen = { say, show: (command: string) => say(`  ${command}`) };
  const context = await initialState(directory, flags);
  const fromFile = await readAnswersFile(file, directory, process.env);
  const answers: Answers = { ...fromFile, secrets: new Map([...context.stored, ...fromFile.secrets]) };
  requireSettings(file, answers, context.envText);
  if (answers.source) answers.source.name = sourceNameFor(context.tagsText, answers.source);
  addOpsToken(answers);
  if (flags.login) await testAnswers(directory, answers);
  if (answers.tag && answers.source) await testFirstSource(answers.tag, answers.source, say);
  say(summaryOf(answers, context));
  const problems = checkAll(context, answers).map(problemLine);
  if (problems.length > 0) throw new ConfigurationError([...problems, NOT_WRITTEN]);
  await write(answers, context, flags, screen);
}

/** Throws `ConfigurationError` with every required key that is missing in both the answers and the folder. */
function requireSettings(file: string, { env, secrets }: Answers, envText: string): void {
  const missing = KEY_NAMES.filter((key) => {
    if (!settingKey(key).required) return false;
    if (settingKey(key).secret) return !secrets.has(key.toLowerCase());
    return (env.get(key) ?? envValue(envText, key)) === '';
  });
  if (missing.length === 0) return;
  throw new ConfigurationError(
    missing.map((key) => `${file}: ${key} is missing, add ${key}${settingKey(key).secret ? '_FILE' : ''}=`),
  );
}

async function testAnswers(directory: string, answers: Answers): Promise<void> {
  const login = await testLogin(directory, answers);
  if (isFailed(login)) throw rejected(login.message, login.hint);
  try {
    const application = answers.env.get('CLIENT_APPLICATION');
    const found = application ? await testApplication(login, application) : '';
    const { failures } = answers.tag ? await testTag(directory, answers, login, answers.tag) : { failures: [] };
    const first = isFailed(found) ? found : failures[0];
    if (first) throw rejected(first.message, first.hint);
  } finally {
    await login.revoke().catch(() => {});
    await login.close();
  }
}

/** Protects the page and the status from other users on the machine. */
function addOpsToken({ secrets }: Answers): void {
  if (!secrets.has('ops_token')) secrets.set('ops_token', randomBytes(24).toString('base64url'));
}

async function write(
  { env, secrets, tag, source }: Answers,
  { directory, envText, tagsText, stored }: SetupContext,
  flags: Flags,
  screen: Screen,
): Promise<void> {
  // Without --secrets, the location of stored secrets does not change.
  const toStore = [...secrets].filter(([name, value]) => flags.secrets !== undefined || stored.get(name) !== value);
  const storedNow =
    toStore.length === 0
      ? undefined
      : await storeSecrets(directory, Object.fromEntries(toStore), (flags.secrets ?? 'auto') as Way);
  const path = join(directory, 'agent.env');
  const text = setEnvLines(envText, new Map<string, string>([...env, ...(storedNow?.env ?? [])]), storedNow?.notes);
  if (text !== readText(path)) await writeWhole(path, text, 0o640);
  const tagsPath = join(directory, 'tags.yaml');
  const tags = tagsAfter(tagsText, tag, source);
  if (tags !== readText(tagsPath)) await writeWhole(tagsPath, tags, 0o644);
  await addShippedFiles(directory);
  screen.say(`\nConfiguration written. ${storedNow ? `Secrets are ${storedNow.where}.` : 'Secrets are unchanged.'}`);
  if (storedNow && toStore.some(([name]) => name === 'ops_token')) showToken(directory, storedNow.isEncrypted, screen);
  if (await clearDecommissionMark(agentAddress(directory, process.env).stateDir))
    screen.say('This gateway was decommissioned and is in service again.');
  await showNextSteps(directory, screen);
}

/** Shows the commands that print the new token and the page URL with the token. */
function showToken(directory: string, isEncrypted: boolean, { say, show }: Screen): void {
  const file = join(resolve(directory), 'credentials/ops_token');
  const sudo = isServiceFolder(directory) ? 'sudo ' : '';
  const command = isEncrypted ? `${sudo}systemd-creds decrypt --name=ops_token ${file}.cred -` : `${sudo}cat ${file}`;
  say('The live page and /status now require a token (OPS_TOKEN). To print the token:');
  show(command);
  const { opsListen, opsTlsCert } = readSettingsLeniently({ directory, environment: process.env }).settings;
  if (!opsListen || !('port' in opsListen)) return;
  const { port } = opsListen;
  say('To print the page URL with the token, for a browser on this machine or through an SSH tunnel');
  say(`(ssh -L ${port}:127.0.0.1:${port}):`);
  show(`echo "${opsTlsCert ? 'https' : 'http'}://localhost:${port}/#token=$(${command})"`);
}
