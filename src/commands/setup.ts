import { randomBytes } from 'node:crypto';
import { accessSync, constants, existsSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import type { Command } from 'commander';
import { ConfigurationError, codeOf, TagferryError, UsageError } from '../base/errors.ts';
import { configurationDirectory, readSettingsLeniently } from '../config/configuration.ts';
import { problemLine } from '../config/problem.ts';
import { KEY_NAMES, settingKey } from '../config/setting-keys.ts';
import { clearDecommissionMark, decommissioned, decommissionedWords } from '../store/decommission-mark.ts';
import { daemonPlace } from './control-client.ts';
import { isServiceFolder } from './service-folder.ts';
import { type Answers, refused, type Surroundings } from './setup/answers.ts';
import { readAnswersFile } from './setup/answers-file.ts';
import { addShippedFiles, readText, shippedText, writeWhole } from './setup/configuration-files.ts';
import { Dialogue, EXIT_INTERRUPTED, Interrupted, type Screen } from './setup/dialogue.ts';
import { envValue, setEnvLines } from './setup/env-lines.ts';
import { tryFirstSource } from './setup/first-source.ts';
import { sourceNameFor, tagsAfter } from './setup/first-tag.ts';
import { Interview } from './setup/interview.ts';
import { tellNextSteps } from './setup/next-steps.ts';
import { keepSecrets } from './setup/secret-keeping.ts';
import { storedSecrets } from './setup/stored-secrets.ts';
import { summaryOf } from './setup/summary.ts';
import { isTrouble, tryApplication, tryLogin, tryTag } from './setup/trials.ts';
import { judgeAll } from './setup/verdict.ts';

interface Flags {
  login: boolean;
  secrets?: string;
  answers?: string;
  keepSecrets?: boolean;
}

type Way = 'auto' | 'systemd' | 'files';
const WAYS: readonly string[] = ['auto', 'systemd', 'files'];
const NOT_WRITTEN = 'Nothing was written.';

/** Adds `tagferry setup`: from nothing to a configuration that works. Nothing is written before everything is answered. */
export function define(program: Command): void {
  program
    .command('setup')
    .description('ask for what is needed, try the login, write the configuration with its comments kept')
    .option('--answers <file>', 'ask nothing: lines of agent.env, and the first tag (- is standard input)')
    .option('--keep-secrets', 'do not ask for secrets that are there')
    .option('--no-login', 'do not ask the platform: it cannot be reached from here')
    .option('--secrets <auto|systemd|files>', 'encrypted by systemd-creds, or files of 0600; auto unless told')
    .addHelpText(
      'after',
      '\nIn a pipe, the lines of standard input are the answers, in the order of the questions; setup ends if the platform rejects one. ' +
        'In --answers, secrets come from files (CLIENT_SECRET_FILE=path; - is the next line of standard input), from systemd ' +
        'credentials of the same names, or from the file itself if its mode is 0600. FIRST_TAG, FIRST_TAG_ASSET, _INSTRUMENTATION, ' +
        '_KEY, _UNIT, _SOURCE and _ADDRESS describe the first tag. Exit status 78 if an answer is wrong, 1 if the platform rejects it, 130 after Ctrl-C.',
    )
    .action(async (flags: Flags) => {
      if (flags.secrets !== undefined && !WAYS.includes(flags.secrets))
        throw new UsageError('--secrets is auto, systemd or files');
      const directory = configurationDirectory(program.opts<{ config?: string }>().config, process.env);
      demandWritable(directory);
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

/** Said before the first question, not after the last. */
function demandWritable(directory: string): void {
  const hint = isServiceFolder(directory)
    ? 'Run `sudo tagferry setup`.'
    : 'Run it as the owner of the folder, or name another with --config.';
  const places = [directory, join(directory, 'agent.env'), join(directory, 'credentials')];
  for (const place of places.filter((one, i) => i === 0 || existsSync(one))) {
    let nearest = resolve(place);
    while (!existsSync(nearest)) nearest = dirname(nearest);
    try {
      accessSync(nearest, constants.R_OK | constants.W_OK);
    } catch (cause) {
      throw new TagferryError(`${place} cannot be written by this user (${codeOf(cause)})`, {
        code: 'setup.unwritable',
        hint,
        cause,
      });
    }
  }
  if (isServiceFolder(directory) && process.getuid?.() !== 0) {
    throw new TagferryError('the service and its secrets are not for this user', { code: 'setup.unwritable', hint });
  }
  const { stateDir } = daemonPlace(directory, process.env);
  if (decommissioned(stateDir)?.restoring) throw refused(decommissionedWords(stateDir)!);
}

async function surroundings(directory: string, { keepSecrets: keep = false, login }: Flags): Promise<Surroundings> {
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
  const around = await surroundings(directory, flags);
  dialogue.say(
    `This writes the configuration in ${resolve(directory)}. Enter accepts the answer in [brackets], - removes it.\n`,
  );
  const interview = new Interview(dialogue, around);
  for (;;) {
    const answers = await interview.ask();
    addOpsToken(answers);
    dialogue.say(summaryOf(answers, around));
    const problems = judgeAll(around, answers).map(problemLine);
    if (problems.length > 0) {
      if (!dialogue.isTerminal) throw new ConfigurationError([...problems, NOT_WRITTEN]);
      dialogue.say(`${problems.join('\n')}\n`);
      const next = await dialogue.choose('These errors prevent writing', { a: 'answer again', n: 'end' });
      if (next === 'a') continue;
      dialogue.say(NOT_WRITTEN);
      process.exitCode = 78;
      return;
    }
    const choice = dialogue.isTerminal
      ? await dialogue.choose('Write this?', { y: 'yes', a: 'answer again', n: 'no' })
      : 'y';
    if (choice === 'n') {
      dialogue.say(NOT_WRITTEN);
      process.exitCode = 1;
      return;
    }
    if (choice === 'y') {
      dialogue.beginWriting();
      return write(answers, around, flags, dialogue);
    }
  }
}

/** Judges as a person would be judged; the first answer that the platform refuses ends it. */
async function setUpUnattended(directory: string, file: string, flags: Flags): Promise<void> {
  const say = (text: string) => void process.stderr.write(`${text}\n`);
  const screen = { say, show: (command: string) => say(`  ${command}`) };
  const around = await surroundings(directory, flags);
  const given = await readAnswersFile(file, directory, process.env);
  const answers: Answers = { ...given, secrets: new Map([...around.stored, ...given.secrets]) };
  demandRequired(file, answers, around.envText);
  if (answers.source) answers.source.name = sourceNameFor(around.tagsText, answers.source);
  addOpsToken(answers);
  if (flags.login) await tryAnswers(directory, answers);
  if (answers.tag && answers.source) await tryFirstSource(answers.tag, answers.source, say);
  say(summaryOf(answers, around));
  const problems = judgeAll(around, answers).map(problemLine);
  if (problems.length > 0) throw new ConfigurationError([...problems, NOT_WRITTEN]);
  await write(answers, around, flags, screen);
}

/** Throws `ConfigurationError` with every key that neither the answers nor the folder have. */
function demandRequired(file: string, { env, secrets }: Answers, envText: string): void {
  const missing = KEY_NAMES.filter((key) => {
    if (!settingKey(key).required) return false;
    if (settingKey(key).secret) return !secrets.has(key.toLowerCase());
    return (env.get(key) ?? envValue(envText, key)) === '';
  });
  if (missing.length === 0) return;
  throw new ConfigurationError(
    missing.map((key) => `${file}: ${key} is missing, write ${key}${settingKey(key).secret ? '_FILE' : ''}=`),
  );
}

async function tryAnswers(directory: string, answers: Answers): Promise<void> {
  const login = await tryLogin(directory, answers);
  if (isTrouble(login)) throw refused(login.message, login.hint);
  try {
    const application = answers.env.get('CLIENT_APPLICATION');
    const found = application ? await tryApplication(login, application) : '';
    const { failures } = answers.tag ? await tryTag(directory, answers, login, answers.tag) : { failures: [] };
    const first = isTrouble(found) ? found : failures[0];
    if (first) throw refused(first.message, first.hint);
  } finally {
    await login.revoke().catch(() => {});
    await login.close();
  }
}

/** Page and status want one from now on: who is on the machine need not be one who may look. */
function addOpsToken({ secrets }: Answers): void {
  if (!secrets.has('ops_token')) secrets.set('ops_token', randomBytes(24).toString('base64url'));
}

async function write(
  { env, secrets, tag, source }: Answers,
  { directory, envText, tagsText, stored }: Surroundings,
  flags: Flags,
  screen: Screen,
): Promise<void> {
  // Where nobody said how, what is kept already stays where it is.
  const toKeep = [...secrets].filter(([name, value]) => flags.secrets !== undefined || stored.get(name) !== value);
  const kept =
    toKeep.length === 0
      ? undefined
      : await keepSecrets(directory, Object.fromEntries(toKeep), (flags.secrets ?? 'auto') as Way);
  const path = join(directory, 'agent.env');
  const text = setEnvLines(envText, new Map<string, string>([...env, ...(kept?.env ?? [])]), kept?.notes);
  if (text !== readText(path)) writeWhole(path, text, 0o640);
  const tagsPath = join(directory, 'tags.yaml');
  const tags = tagsAfter(tagsText, tag, source);
  if (tags !== readText(tagsPath)) writeWhole(tagsPath, tags, 0o644);
  addShippedFiles(directory);
  screen.say(`\nWritten. ${kept ? `The secrets are ${kept.where}.` : 'The secrets stay where they are.'}`);
  if (kept && toKeep.some(([name]) => name === 'ops_token')) showToken(directory, kept.isEncrypted, screen);
  if (await clearDecommissionMark(daemonPlace(directory, process.env).stateDir))
    screen.say('This gateway had been decommissioned: it is in service again.');
  await tellNextSteps(directory, screen);
}

/** Shows the commands that print the new token, and the address of the page with it. */
function showToken(directory: string, isEncrypted: boolean, { say, show }: Screen): void {
  const file = join(resolve(directory), 'credentials/ops_token');
  const sudo = isServiceFolder(directory) ? 'sudo ' : '';
  const command = isEncrypted ? `${sudo}systemd-creds decrypt --name=ops_token ${file}.cred -` : `${sudo}cat ${file}`;
  say('The live page and /status require a token (OPS_TOKEN) from now on. To print the token:');
  show(command);
  const { opsListen, opsTlsCert } = readSettingsLeniently({ directory, environment: process.env }).settings;
  if (!opsListen || !('port' in opsListen)) return;
  const { port } = opsListen;
  say('To print the address of the page with the token, to be opened on this machine or through an SSH tunnel');
  say(`(ssh -L ${port}:127.0.0.1:${port}):`);
  show(`echo "${opsTlsCert ? 'https' : 'http'}://localhost:${port}/#token=$(${command})"`);
}
