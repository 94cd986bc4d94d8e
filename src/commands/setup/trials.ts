/** What only the platform can say of an answer. Each gives what is wrong, or nothing. */
import { systemClock } from '../../base/clock.ts';
import { messageOf, TagferryError } from '../../base/errors.ts';
import { version } from '../../base/installation.ts';
import { retryBounded } from '../../base/retry.ts';
import { diagnosePlatform } from '../../control/diagnosis.ts';
import { ClientApplications } from '../../platform/resources/client-applications.ts';
import { fillValuesPath } from '../../uplink/post-address.ts';
import { logIn, type OwnLogin } from '../doctor/own-login.ts';
import { type Answers, settingsOf } from './answers.ts';
import type { FirstTag } from './first-tag.ts';

export interface Trouble {
  message: string;
  hint: string;
}

const PATIENCE_MS = 20_000;

export async function tryLogin(directory: string, answers: Answers): Promise<OwnLogin | Trouble> {
  try {
    const login = () => logIn(settingsOf(directory, answers), { clock: systemClock, version: version() });
    return await retryBounded(login, { retries: 2 });
  } catch (error) {
    const hint = error instanceof TagferryError && error.hint ? error.hint : 'Check the answers.';
    return { message: messageOf(error), hint };
  }
}

export const isTrouble = (outcome: object | string): outcome is Trouble =>
  typeof outcome === 'object' && 'hint' in outcome && 'message' in outcome;

/** Finds the application of that name; without a name the one that the API key belongs to. Returns its name. */
export async function tryApplication({ client }: OwnLogin, name?: string): Promise<string | Trouble> {
  try {
    return (await new ClientApplications(client).find(name, AbortSignal.timeout(PATIENCE_MS))).name;
  } catch (error) {
    return { message: messageOf(error), hint: error instanceof TagferryError ? (error.hint ?? '') : '' };
  }
}

/** What the platform says of the tag's asset and instrumentation; `failures` of them that nobody would want to post to. */
export async function tryTag(
  directory: string,
  answers: Answers,
  { client }: OwnLogin,
  tag: Pick<FirstTag, 'asset' | 'instrumentation'>,
): Promise<{ said: string[]; failures: Trouble[] }> {
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
  return { said: all.filter(({ ok }) => ok).map(({ message }) => message), failures };
}
