/**
 * Interactive questions that `setup` asks. Each answer is checked before the next question, and previous answers are
 * the defaults.
 */
import type { Problem } from '../../config/problem.ts';
import type { KeyName } from '../../config/setting-keys.ts';
import { envValue } from '../configuration/files.ts';
import { agentAddress } from '../connection/control-client.ts';
import type { OwnLogin } from '../connection/own-login.ts';
import { knownObjects } from '../verbs/assets.ts';
import {
  type Answers,
  type CheckTag,
  checkAnswers,
  type FailedTrial,
  isFailed,
  NO_KEY,
  problemText,
  readValueKey,
  rejected,
  type SetupContext,
  tagCheck,
  testApplication,
  testLogin,
  testTag,
} from './answers.ts';
import type { Dialogue } from './dialogue.ts';
import { askFirstSource } from './first-source.ts';
import { type FirstTag, hasTag } from './first-tag.ts';
import { askChecked, askObject, askSecret, askSetting, until } from './questions.ts';

const MAX_KNOWN = 1_000;
/** Placeholder for later answers, so that `check` can validate earlier ones. */
const COMING_ID = 999_999_999_999;
const COMING_KEY = 'answered-later';

export class Interview {
  readonly #dialogue: Dialogue;
  readonly #context: SetupContext;
  #answers: Answers;
  #login: OwnLogin | undefined;

  constructor(dialogue: Dialogue, context: SetupContext) {
    this.#dialogue = dialogue;
    this.#context = context;
    this.#answers = { env: new Map(), secrets: new Map(context.stored) };
  }

  /** If called again, uses the previous answers as defaults. Revokes its tokens at the end. */
  async ask(): Promise<Answers> {
    try {
      await this.#askCredentials();
      if (this.#login) await this.#askApplication(this.#login);
      const question = 'HTTPS URL for webhook events (empty: none)';
      await this.#setting('WEBHOOK_URL', question);
      await this.#askTag();
      return this.#answers;
    } finally {
      await this.#login?.revoke().catch(() => {});
      await this.#login?.close();
      this.#login = undefined;
    }
  }

  /**
   * Asks for the platform address and credentials. On a terminal, repeats the questions until the platform accepts the
   * answers.
   */
  async #askCredentials(): Promise<void> {
    const dialogue = this.#dialogue;
    for (;;) {
      await this.#setting('PLATFORM_URL', 'API URL, for example https://api.example.com');
      await this.#setting('IDENTITY_URL', 'Identity application URL (empty: same as the API)');
      await this.#setting('CLIENT_ID', 'API key of the connect subscription');
      await this.#secret('client_secret', 'API secret');
      await this.#setting('TECHNICAL_USERNAME', 'User name of the technical user');
      await this.#secret('technical_password', 'Password of the technical user');
      if (!this.#context.login) return;
      const outcome = await testLogin(this.#context.directory, this.#answers);
      if (!isFailed(outcome)) {
        dialogue.say('  Login successful.\n');
        this.#login = outcome;
        return;
      }
      if (!dialogue.isTerminal) throw rejected(outcome.message, outcome.hint);
      dialogue.say(`\n  ${outcome.message}\n  ${outcome.hint}\n`);
      if (await dialogue.keeps()) return;
    }
  }

  async #askApplication(login: OwnLogin): Promise<void> {
    const current = await testApplication(login);
    const shown = isFailed(current) ? 'empty: keep the current one' : `empty: keep the current one, ${current}`;
    if (isFailed(current)) this.#dialogue.say(`  ${current.message}\n`);
    for (;;) {
      await this.#setting('CLIENT_APPLICATION', `Name of the client application (${shown})`);
      const name = this.#answers.env.get('CLIENT_APPLICATION') ?? '';
      const found = name === '' ? name : await testApplication(login, name);
      if (!isFailed(found) || (await this.#isKept(found))) return;
    }
  }

  /** Asks for the first tag, which is optional. */
  async #askTag(): Promise<void> {
    const dialogue = this.#dialogue;
    const { tag: before, source } = this.#answers;
    this.#answers.tag = undefined;
    this.#answers.source = undefined;
    const check = tagCheck(this.#context, this.#answers);
    const draft = { asset: COMING_ID, instrumentation: COMING_ID, key: COMING_KEY, unit: '' };
    const name = await askChecked(
      dialogue,
      () => dialogue.askOrRemove('Name of the first tag, for example FT-101 (empty: add it later)', before?.name),
      (answer) => (answer === '' ? undefined : check({ ...draft, name: answer })),
    );
    if (name === '') return;
    if (hasTag(this.#context.tagsText, name))
      dialogue.say(`  tags.yaml already contains ${name}. Its other values are not changed.`);
    const objects = await this.#askObjects(before, { ...draft, name }, check);
    const key = await until(dialogue, async () => {
      const answer = readValueKey(await dialogue.ask('Value key', before?.key ?? 'flow'));
      if (answer === undefined) return NO_KEY;
      const problem = check({ name, ...objects, key: answer, unit: '' });
      return problem ? problemText(problem) : { answer };
    });
    const unit = await askChecked(
      dialogue,
      () => dialogue.askOrRemove('Unit number or code on the platform (empty: none)', before?.unit),
      (answer) => check({ name, ...objects, key, unit: answer }),
    );
    if (unit !== '' && this.#login) {
      dialogue.say(
        '  The platform checks units only when it receives the first value. Check `tagferry status` afterwards.',
      );
    }
    const tag: FirstTag = { name, ...objects, key, unit };
    this.#answers.tag = tag;
    this.#answers.source = await askFirstSource(dialogue, tag, this.#context.tagsText, source, check);
  }

  async #askObjects(
    before: FirstTag | undefined,
    draft: FirstTag,
    check: CheckTag,
  ): Promise<Pick<FirstTag, 'asset' | 'instrumentation'>> {
    const dialogue = this.#dialogue;
    const find = (text: string) => knownObjects(agentAddress(this.#context.directory, process.env), text, MAX_KNOWN);
    let known = { asset: before?.asset, instrumentation: before?.instrumentation };
    for (;;) {
      const asset = (await askObject(dialogue, {
        kind: 'asset',
        text: 'Asset number on the platform, or serial number',
        isNeeded: true,
        fallback: known.asset,
        check: (id) => check({ ...draft, asset: id! }),
        find,
      }))!;
      const instrumentation = await askObject(dialogue, {
        kind: 'instrumentation',
        text: 'Instrumentation number, or tag (empty: none)',
        isNeeded: false,
        fallback: known.instrumentation,
        check: (id) => check({ ...draft, asset, instrumentation: id }),
        find,
      });
      if (!this.#login) return { asset, instrumentation };
      const { confirmed, failures } = await testTag(this.#context.directory, this.#answers, this.#login, {
        asset,
        instrumentation,
      });
      for (const line of confirmed) dialogue.say(`  ${line}`);
      const trouble = failures[0];
      if (!trouble || (await this.#isKept(trouble))) return { asset, instrumentation };
      known = { asset, instrumentation };
    }
  }

  /** Shows why the platform rejects an answer. Returns whether the user keeps the answer. */
  async #isKept({ message, hint }: FailedTrial): Promise<boolean> {
    if (!this.#dialogue.isTerminal) throw rejected(message, hint);
    this.#dialogue.say(`\n  ${message}\n  ${hint}\n`);
    return this.#dialogue.keeps();
  }

  async #setting(key: KeyName, question: string): Promise<void> {
    const before = this.#answers.env.get(key) ?? envValue(this.#context.envText, key);
    const check = (answer: string) => this.#check(key, answer);
    this.#answers.env.set(key, await askSetting(this.#dialogue, key, question, before, check));
  }

  async #secret(name: string, question: string): Promise<void> {
    const known = this.#answers.secrets.get(name);
    if (known !== undefined && this.#context.keepSecrets) return;
    const check = (answer: string) => this.#check(name.toUpperCase() as KeyName, answer);
    this.#answers.secrets.set(name, await askSecret(this.#dialogue, question, known, check));
  }

  #check(key: KeyName, answer: string): Problem | undefined {
    return checkAnswers(this.#context.directory, new Map([...this.#answers.env, [key, answer]])).get(key);
  }
}
