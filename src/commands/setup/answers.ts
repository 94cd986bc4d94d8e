/** What setup is told, by whatever way, and what of it can be judged without the platform. */
import { resolve } from 'node:path';
import { TagferryError } from '../../base/errors.ts';
import { readSettingsLeniently } from '../../config/configuration.ts';
import type { Problem } from '../../config/problem.ts';
import { type KeyName, settingKey } from '../../config/setting-keys.ts';
import type { Settings } from '../../config/settings.ts';
import { KEY_PATTERN } from '../../contract/values.ts';
import type { FirstSource, FirstTag } from './first-tag.ts';

export interface Answers {
  /** Keys of agent.env that are no secrets; an empty text takes the line's value away. */
  env: Map<KeyName, string>;
  /** By their keys in lower case. */
  secrets: Map<string, string>;
  tag?: FirstTag | undefined;
  source?: FirstSource | undefined;
}

export interface Surroundings {
  directory: string;
  envText: string;
  tagsText: string;
  /** Secrets that are kept already, by their keys in lower case. */
  stored: ReadonlyMap<string, string>;
  /** Known secrets are not asked for. */
  keepSecrets: boolean;
  /** Whether the platform is asked. */
  login: boolean;
}

/** What `check` reports of settings that are given together, over those of the folder: for each an error, or a warning. */
export function judgeAnswers(directory: string, answers: ReadonlyMap<KeyName, string>): Map<KeyName, Problem> {
  const { problems } = readSettingsLeniently({ directory, environment: overlay(directory, answers) });
  const found = new Map<KeyName, Problem>();
  for (const key of answers.keys()) {
    const own = problems.filter(({ reason }) => reason.startsWith(key) && !/^_?[A-Z]/.test(reason.slice(key.length)));
    const first = own.find(({ severity }) => severity === 'error') ?? own[0];
    if (first) found.set(key, first);
  }
  return found;
}

/** Answers over what agent.env says, the file of `KEY_FILE` among it. */
function overlay(directory: string, answers: ReadonlyMap<KeyName, string>): Record<string, string> {
  const pairs = [...answers].flatMap(([key, text]) => {
    const isPath = settingKey(key).form.as === 'path' && text !== '';
    return [
      [key, isPath ? resolve(directory, text) : text],
      [`${key}_FILE`, ''],
    ];
  });
  return Object.fromEntries(pairs);
}

/** As an answer is told why it cannot be taken. */
export function answerWords({ reason, instead }: Pick<Problem, 'reason' | 'instead'>): string {
  return `${reason}: ${instead}`;
}

/** What a login needs: what was answered, over what the folder says of the rest (proxy, authority, CLIENT_AUTH). */
export function settingsOf(directory: string, { env, secrets }: Answers): Settings {
  const given = new Map(env);
  const proxy = secrets.get('https_proxy');
  if (proxy !== undefined) given.set('HTTPS_PROXY', proxy);
  const environment = { ...withoutCredentials(process.env), ...overlay(directory, given) };
  const { settings } = readSettingsLeniently({ directory, environment });
  return {
    ...settings,
    identityUrl: settings.identityUrl ?? settings.platformUrl,
    clientSecret: secrets.get('client_secret'),
    technicalPassword: secrets.get('technical_password'),
    clientAuth: settings.clientAuth ?? 'basic',
  } as Settings;
}

/** What systemd handed to this process is an answer, and none of the configuration that is written. */
export function withoutCredentials({ CREDENTIALS_DIRECTORY: _, ...environment }: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return environment;
}

export function readObjectNumber(text: string): number | undefined {
  return /^[1-9]\d{0,14}$/.test(text) ? Number(text) : undefined;
}

export const NO_NUMBER = 'write a whole number above 0';
export const NO_KEY = 'a key is letters, digits, ".", "-" and "_"';

/** In the form that the platform has it in; `undefined` where it is none. */
export function readValueKey(text: string): string | undefined {
  const key = text.toLowerCase();
  return KEY_PATTERN.test(key) ? key : undefined;
}

/** An answer that cannot be taken, where nobody is there to give another. */
export function refused(words: string, hint?: string): TagferryError {
  return new TagferryError(`${words}: nothing was written`, {
    code: 'setup.refused',
    ...(hint === undefined || hint === '' ? {} : { hint }),
  });
}
