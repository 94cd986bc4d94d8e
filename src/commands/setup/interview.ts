/** The questions, in order; each answer is judged before the next question. What was answered before is what Enter takes. */
import type { Problem } from '../../config/problem.ts';
import type { KeyName } from '../../config/setting-keys.ts';
import { knownObjects } from '../assets.ts';
import { daemonPlace } from '../control-client.ts';
import type { OwnLogin } from '../doctor/own-login.ts';
import {
  type Answers,
  answerWords,
  judgeAnswers,
  NO_KEY,
  readValueKey,
  refused,
  type Surroundings,
} from './answers.ts';
import type { Dialogue } from './dialogue.ts';
import { envValue } from './env-lines.ts';
import { askFirstSource } from './first-source.ts';
import { type FirstTag, hasTag } from './first-tag.ts';
import { askObject } from './object-question.ts';
import { askJudged, askSecret, askSetting, until } from './questions.ts';
import { isTrouble, type Trouble, tryApplication, tryLogin, tryTag } from './trials.ts';
import { type JudgeTag, tagJudge } from './verdict.ts';

/** Known objects of all kinds that one answer may match. */
const MAX_KNOWN = 1_000;
/** Stand for answers that are still to come, so that `check` can judge the ones before them. */
const COMING_ID = 999_999_999_999;
const COMING_KEY = 'answered-later';

export class Interview {
  readonly #dialogue: Dialogue;
  readonly #around: Surroundings;
  #answers: Answers;
  #login: OwnLogin | undefined;

  constructor(dialogue: Dialogue, around: Surroundings) {
    this.#dialogue = dialogue;
    this.#around = around;
    this.#answers = { env: new Map(), secrets: new Map(around.stored) };
  }

  /** May be called again: what was answered is then what Enter takes. Tokens are revoked at the end. */
  async ask(): Promise<Answers> {
    try {
      await this.#askCredentials();
      if (this.#login) await this.#askApplication(this.#login);
      const question = 'Public https address for webhook events (empty: no events, or later)';
      await this.#setting('WEBHOOK_URL', question);
      await this.#askTag();
      return this.#answers;
    } finally {
      await this.#login?.revoke().catch(() => {});
      await this.#login?.close();
      this.#login = undefined;
    }
  }

  /** Address and credentials, asked again on a terminal as long as the platform refuses them. */
  async #askCredentials(): Promise<void> {
    const dialogue = this.#dialogue;
    for (;;) {
      await this.#setting('PLATFORM_URL', 'Address of the API, for example https://api.example.com');
      await this.#setting('IDENTITY_URL', 'Address of the identity application (empty: the same)');
      await this.#setting('CLIENT_ID', 'API key of the connect subscription');
      await this.#secret('client_secret', 'API secret');
      await this.#setting('TECHNICAL_USERNAME', 'Name of the technical user');
      await this.#secret('technical_password', 'Its password');
      if (!this.#around.login) return;
      const outcome = await tryLogin(this.#around.directory, this.#answers);
      if (!isTrouble(outcome)) {
        dialogue.say('  The platform takes these credentials.\n');
        this.#login = outcome;
        return;
      }
      if (!dialogue.isTerminal) throw refused(outcome.message, outcome.hint);
      dialogue.say(`\n  ${outcome.message}\n  ${outcome.hint}\n`);
      if (await dialogue.keeps()) return;
    }
  }

  async #askApplication(login: OwnLogin): Promise<void> {
    const current = await tryApplication(login);
    const shown = isTrouble(current) ? 'empty: the current one' : `empty: the current one, ${current}`;
    if (isTrouble(current)) this.#dialogue.say(`  ${current.message}\n`);
    for (;;) {
      await this.#setting('CLIENT_APPLICATION', `Name of the client application (${shown})`);
      const name = this.#answers.env.get('CLIENT_APPLICATION') ?? '';
      const found = name === '' ? name : await tryApplication(login, name);
      if (!isTrouble(found) || (await this.#isKept(found))) return;
    }
  }

  /** The first measuring point; none where there shall be none yet. */
  async #askTag(): Promise<void> {
    const dialogue = this.#dialogue;
    const { tag: before, source } = this.#answers;
    this.#answers.tag = undefined;
    this.#answers.source = undefined;
    const judge = tagJudge(this.#around, this.#answers);
    const draft = { asset: COMING_ID, instrumentation: COMING_ID, key: COMING_KEY, unit: '' };
    const name = await askJudged(
      dialogue,
      () => dialogue.askOrRemove('Name of the first tag, for example FT-101 (empty: later)', before?.name),
      (answer) => (answer === '' ? undefined : judge({ ...draft, name: answer })),
    );
    if (name === '') return;
    if (hasTag(this.#around.tagsText, name))
      dialogue.say(`  tags.yaml has ${name}: its other values stay as they are.`);
    const objects = await this.#askObjects(before, { ...draft, name }, judge);
    const key = await until(dialogue, async () => {
      const answer = readValueKey(await dialogue.ask('Key of its value', before?.key ?? 'flow'));
      if (answer === undefined) return NO_KEY;
      const problem = judge({ name, ...objects, key: answer, unit: '' });
      return problem ? answerWords(problem) : { answer };
    });
    const unit = await askJudged(
      dialogue,
      () => dialogue.askOrRemove('Unit: its number or its code on the platform (empty: none)', before?.unit),
      (answer) => judge({ name, ...objects, key, unit: answer }),
    );
    if (unit !== '' && this.#login) {
      dialogue.say(
        '  Whether the platform knows the unit it tells with the first value alone: see tagferry status then.',
      );
    }
    const tag: FirstTag = { name, ...objects, key, unit };
    this.#answers.tag = tag;
    this.#answers.source = await askFirstSource(dialogue, tag, this.#around.tagsText, source, judge);
  }

  async #askObjects(
    before: FirstTag | undefined,
    draft: FirstTag,
    judge: JudgeTag,
  ): Promise<Pick<FirstTag, 'asset' | 'instrumentation'>> {
    const dialogue = this.#dialogue;
    const find = (text: string) => knownObjects(daemonPlace(this.#around.directory, process.env), text, MAX_KNOWN);
    let known = { asset: before?.asset, instrumentation: before?.instrumentation };
    for (;;) {
      const asset = (await askObject(dialogue, {
        kind: 'asset',
        text: 'Its asset number on the platform, or its serial number',
        isNeeded: true,
        fallback: known.asset,
        judge: (id) => judge({ ...draft, asset: id! }),
        find,
      }))!;
      const instrumentation = await askObject(dialogue, {
        kind: 'instrumentation',
        text: 'Its instrumentation number, or its tag (empty: none)',
        isNeeded: false,
        fallback: known.instrumentation,
        judge: (id) => judge({ ...draft, asset, instrumentation: id }),
        find,
      });
      if (!this.#login) return { asset, instrumentation };
      const { said, failures } = await tryTag(this.#around.directory, this.#answers, this.#login, {
        asset,
        instrumentation,
      });
      for (const line of said) dialogue.say(`  ${line}`);
      const trouble = failures[0];
      if (!trouble || (await this.#isKept(trouble))) return { asset, instrumentation };
      known = { asset, instrumentation };
    }
  }

  /** Shows why the platform rejects an answer, and returns whether a person keeps it. */
  async #isKept({ message, hint }: Trouble): Promise<boolean> {
    if (!this.#dialogue.isTerminal) throw refused(message, hint);
    this.#dialogue.say(`\n  ${message}\n  ${hint}\n`);
    return this.#dialogue.keeps();
  }

  async #setting(key: KeyName, question: string): Promise<void> {
    const before = this.#answers.env.get(key) ?? envValue(this.#around.envText, key);
    const judge = (answer: string) => this.#judge(key, answer);
    this.#answers.env.set(key, await askSetting(this.#dialogue, key, question, before, judge));
  }

  async #secret(name: string, question: string): Promise<void> {
    const known = this.#answers.secrets.get(name);
    if (known !== undefined && this.#around.keepSecrets) return;
    const judge = (answer: string) => this.#judge(name.toUpperCase() as KeyName, answer);
    this.#answers.secrets.set(name, await askSecret(this.#dialogue, question, known, judge));
  }

  #judge(key: KeyName, answer: string): Problem | undefined {
    return judgeAnswers(this.#around.directory, new Map([...this.#answers.env, [key, answer]])).get(key);
  }
}
