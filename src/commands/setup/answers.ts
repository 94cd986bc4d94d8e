/** Answers to the questions that `setup` asks, and their checks with and without the platform. */
import { resolve } from 'node:path';
import { systemClock } from '../../base/clock.ts';
import { messageOf, TagferryError } from '../../base/errors.ts';
import { version } from '../../base/installation.ts';
import { retryBounded } from '../../base/retry.ts';
import { checkConfiguration, readSettingsLeniently } from '../../config/configuration.ts';
import type { Problem } from '../../config/problem.ts';
import { type KeyName, settingKey } from '../../config/setting-keys.ts';
import type { Settings } from '../../config/settings.ts';
import { KEY_PATTERN } from '../../contract/values.ts';
import { diagnosePlatform } from '../../control/diagnosis.ts';
import { findClientApplication } from '../../platform/resources/connect-subscription.ts';
import { ACTION_KINDS } from '../../reactions/actions.ts';
import { SOURCE_KINDS } from '../../sources/kinds.ts';
import { fillValuesPath } from '../../uplink/post-address.ts';
import { envValue, setEnvLines } from '../configuration/files.ts';
import { withoutUnread } from '../configuration/verdict.ts';
import { logIn, type OwnLogin } from '../connection/own-login.ts';
import { isServiceFolder } from '../service/service-folder.ts';
import { type FirstSource, type FirstTag, firstTagLines, tagsAfter } from './first-tag.ts';

export interface Answers {
  /** Settings for agent.env, except secrets. An empty string removes the value. */
  env: Map<KeyName, string>;
  /** Secrets by key in lower case. */
  secrets: Map<string, string>;
  tag?: FirstTag | undefined;
  source?: FirstSource | undefined;
}

export interface SetupContext {
  directory: string;
  envText: string;
  tagsText: string;
  /** Stored secrets, by key in lower case. */
  stored: ReadonlyMap<string, string>;
  /** Whether to skip questions for stored secrets. */
  keepSecrets: boolean;
  /** Whether to test answers on the platform. */
  login: boolean;
}

/**
 * Returns the problem that `check` would report for each key if the answers replaced the settings in the folder. Errors
 * take precedence over warnings.
 */
export function checkAnswers(directory: string, answers: ReadonlyMap<KeyName, string>): Map<KeyName, Problem> {
  const { problems } = readSettingsLeniently({ directory, environment: overlay(directory, answers) });
  const found = new Map<KeyName, Problem>();
  for (const key of answers.keys()) {
    const own = problems.filter(({ reason }) => reason.startsWith(key) && !/^_?[A-Z]/.test(reason.slice(key.length)));
    const first = own.find(({ severity }) => severity === 'error') ?? own[0];
    if (first) found.set(key, first);
  }
  return found;
}

/** Returns environment variables that override the settings in agent.env, including `KEY_FILE`. */
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

/** Returns the reason why an answer is rejected, and the suggested correction. */
export function problemText({ reason, instead }: Pick<Problem, 'reason' | 'instead'>): string {
  return `${reason}: ${instead}`;
}

/** Returns settings for a login: the answers, and settings from the folder, such as the proxy, CA and CLIENT_AUTH. */
function settingsOf(directory: string, { env, secrets }: Answers): Settings {
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

/** Excludes this process's systemd credentials, because they contain answers and do not belong to the service. */
export function withoutCredentials({ CREDENTIALS_DIRECTORY: _, ...environment }: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return environment;
}

export function readObjectNumber(text: string): number | undefined {
  return /^[1-9]\d{0,14}$/.test(text) ? Number(text) : undefined;
}

export const NO_NUMBER = 'enter a positive integer';
export const NO_KEY = 'use only letters, digits, ".", "-" and "_"';

/** Returns a value key in lower case, as the platform stores it; `undefined` if it is invalid. */
export function readValueKey(text: string): string | undefined {
  const key = text.toLowerCase();
  return KEY_PATTERN.test(key) ? key : undefined;
}

/** Returns the error for a rejected answer when it cannot be corrected interactively. */
export function rejected(reason: string, hint?: string): TagferryError {
  return new TagferryError(`${reason}. Nothing was written`, {
    code: 'setup.refused',
    hint: hint || undefined,
  });
}

/** Returns the errors that `check` will report once the answers are written. */
export function checkAll({ directory, envText, tagsText }: SetupContext, answers: Answers): Problem[] {
  const secrets = [...answers.secrets].flatMap(([name, value]) => {
    const key = name.toUpperCase();
    return [
      [key, value],
      [`${key}_FILE`, ''],
    ];
  });
  const { problems } = checkConfiguration({
    directory,
    environment: { ...withoutCredentials(process.env), ...Object.fromEntries(secrets) },
    kinds: SOURCE_KINDS,
    actions: ACTION_KINDS,
    coming: new Map([
      ['agent.env', setEnvLines(envText, answers.env)],
      ['tags.yaml', tagsAfter(tagsText, answers.tag, answers.source)],
    ]),
  });
  const seen = isServiceFolder(directory) ? withoutUnread(problems, directory).problems : problems;
  return seen.filter(({ severity }) => severity === 'error');
}

/** Returns the first error that a tag and its source add to the configuration. */
export type CheckTag = (tag: FirstTag, source?: FirstSource) => Problem | undefined;

export function tagCheck(context: SetupContext, answers: Answers): CheckTag {
  const known = new Set(
    checkAll(context, { ...answers, tag: undefined, source: undefined }).map(({ reason }) => reason),
  );
  return (tag, source) => checkAll(context, { ...answers, tag, source }).find(({ reason }) => !known.has(reason));
}

/** Returns the configuration to be written, without the values of secrets. */
export function summaryOf(
  { env, secrets, tag, source }: Answers,
  { directory, envText, stored }: SetupContext,
): string {
  const lines = [...env].flatMap(([key, value]) => {
    const before = envValue(envText, key);
    if (value === '' && before === '') return [];
    if (value === before) return [`  ${key}=${value}`];
    return [`  ${key}=${value}${before === '' ? '' : `  (was ${before})`}`];
  });
  const kept = [...secrets].map(([name, value]) => {
    const state = stored.get(name) === value ? 'unchanged' : stored.has(name) ? 'replaced' : 'new';
    return `  ${name.toUpperCase()}: ${state}`;
  });
  const tags = tag ? ['', `${directory}/tags.yaml:`, indented(firstTagLines(tag, source))] : [];
  return ['', `${directory}/agent.env:`, ...lines, ...kept, ...tags, ''].join('\n');
}

function indented(text: string): string {
  return text.trimEnd().replaceAll(/^(?=.)/gm, '  ');
}

export interface FailedTrial {
  message: string;
  hint: string;
}

const TIMEOUT_MS = 20_000;

export async function testLogin(directory: string, answers: Answers): Promise<OwnLogin | FailedTrial> {
  try {
    const login = () => logIn(settingsOf(directory, answers), { clock: systemClock, version: version() });
    return await retryBounded(login, { retries: 2 });
  } catch (error) {
    const hint = error instanceof TagferryError && error.hint ? error.hint : 'Check the answers.';
    return { message: messageOf(error), hint };
  }
}

export const isFailed = (outcome: object | string): outcome is FailedTrial =>
  typeof outcome === 'object' && 'hint' in outcome && 'message' in outcome;

/** Returns the name of the client application with this name, or of the application that owns the API key. */
export async function testApplication({ client }: OwnLogin, name?: string): Promise<string | FailedTrial> {
  try {
    return (await findClientApplication(client, name, AbortSignal.timeout(TIMEOUT_MS))).name;
  } catch (error) {
    return { message: messageOf(error), hint: error instanceof TagferryError ? (error.hint ?? '') : '' };
  }
}

/** Checks whether the tag's values can be posted. Returns a sentence for each passed check, and the failures. */
export async function testTag(
  directory: string,
  answers: Answers,
  { client }: OwnLogin,
  tag: Pick<FirstTag, 'asset' | 'instrumentation'>,
): Promise<{ confirmed: string[]; failures: FailedTrial[] }> {
  const path = settingsOf(directory, answers).valuesPath ?? '/v1/assets/{asset_id}/values';
  const { assets, instrumentations } = await diagnosePlatform({
    client,
    clock: systemClock,
    application: answers.env.get('CLIENT_APPLICATION'),
    assets: [tag.asset],
    instrumentations: tag.instrumentation === undefined ? [] : [tag.instrumentation],
    requestsPerMinute: 0,
    pathOf: (asset) => fillValuesPath(path, asset, tag.instrumentation),
  });
  const all = [...assets, ...instrumentations];
  const failures = all.filter(({ ok }) => !ok).map(({ message, next }) => ({ message, hint: next }));
  return { confirmed: all.filter(({ ok }) => ok).map(({ message }) => message), failures };
}
