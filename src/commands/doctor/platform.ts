import { counted, durationText } from '../../base/amounts.ts';
import { messageOf, TagferryError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import type { Configuration } from '../../config/configuration.ts';
import type { Webhook } from '../../contract/webhooks.ts';
import { diagnosePlatform, objectsOfTags, type PlatformDiagnosis } from '../../control/diagnosis.ts';
import type { StatusReport } from '../../ops/status-report.ts';
import type { PlatformClient } from '../../platform/client.ts';
import { findClientApplication } from '../../platform/resources/connect-subscription.ts';
import { Webhooks } from '../../platform/resources/webhooks.ts';
import { noTokenState } from '../../platform/response-meanings.ts';
import { fillValuesPath } from '../../uplink/post-address.ts';
import { sameAddress } from '../../webhook/drift.ts';
import type { ListedWebhook } from '../../webhook/registration.ts';
import type { SelfTestLine } from '../../webhook/self-test.ts';
import { askAgent } from '../connection/control-client.ts';
import { logIn, type OwnLogin } from '../connection/own-login.ts';
import { rejectionAdvice, seriesAdvice, seriesText } from '../status/status-screen.ts';
import { type CheckLine, type DoctorContext, failure, ok, warning } from './context.ts';

/** A larger offset visibly distorts value timestamps and event ages. */
const CLOCK_OFF_S = 30;
const MAX_SERIES = 5;

/**
 * Checks login, API, permissions on assets, and the webhook. A running agent sends the requests in its own session and
 * within its budget. Otherwise the doctor signs in and revokes its token.
 */
export async function checkPlatform(context: DoctorContext): Promise<CheckLine[]> {
  const { agent, place, configuration, platformAnswers, unread } = context;
  if (agent) {
    const session = sessionLine(agent);
    if (session.state === 'failure') return [session];
    const diagnosis = await askAgent<PlatformDiagnosis>(place, 'diagnose');
    return [
      session,
      ...placeLines(agent),
      ...diagnosisLines(diagnosis),
      ...refusedLines(agent),
      ...(await webhookLines(context, diagnosis, undefined)),
    ];
  }
  if (!configuration) {
    if (unread.length > 0)
      return [warning('sign_in', 'skipped: this user cannot read the credentials', 'Run `sudo tagferry doctor`.')];
    return [warning('sign_in', 'skipped: the configuration is not valid', 'Correct the problems above.')];
  }
  if (!platformAnswers) return [warning('sign_in', 'skipped: the platform is unreachable', 'Fix the problems above.')];
  return askWithOwnLogin(context, configuration);
}

async function askWithOwnLogin(context: DoctorContext, configuration: Configuration): Promise<CheckLine[]> {
  const { clock } = context;
  const { settings, tags } = configuration;
  let login: OwnLogin;
  try {
    login = await logIn(settings, context);
  } catch (error) {
    return [
      failure('sign_in', messageOf(error), hintOf(error) ?? 'Check CLIENT_ID, CLIENT_SECRET and the technical user.'),
    ];
  }
  try {
    const lines = [ok('sign_in', `${settings.technicalUsername} can sign in`)];
    const instrumentationOf = new Map([...tags.tags.values()].map((tag) => [tag.asset, tag.instrumentation]));
    const diagnosis = await diagnosePlatform({
      client: login.client,
      clock,
      application: settings.clientApplication,
      ...objectsOfTags(tags),
      requestsPerMinute: settings.requestsPerMinute,
      pathOf: (asset) => fillValuesPath(settings.valuesPath, asset, instrumentationOf.get(asset)),
    });
    lines.push(...diagnosisLines(diagnosis), ...(await webhookLines(context, diagnosis, login.client)));
    lines.push(await revocationLine(login));
    return lines;
  } finally {
    await login.close();
  }
}

async function revocationLine(login: OwnLogin): Promise<CheckLine> {
  try {
    await login.revoke();
    return ok('revocation', 'the token was revoked');
  } catch (error) {
    const next = 'The token expires within 11 minutes. Ask the platform operator for the cause.';
    return warning('revocation', messageOf(error), hintOf(error) ?? next);
  }
}

function sessionLine({ session }: StatusReport): CheckLine {
  if (session.usable) {
    const renews =
      session.renews_in_seconds === undefined ? '' : `, renews in ${durationText(session.renews_in_seconds)}`;
    return ok('sign_in', `the agent is signed in (${session.grant ?? session.state}${renews})`);
  }
  if (session.state === 'renewing' || session.state === 'none') {
    return warning('sign_in', 'the agent is signing in', 'Run the command again in a moment.');
  }
  const { last_error: error } = session;
  const retry = session.retry_in_seconds === undefined ? '' : `; retries in ${durationText(session.retry_in_seconds)}`;
  const why = error ? plain(error.message) : `the session is ${session.state}`;
  const next = error?.hint ?? 'See `tagferry session show`. To retry now, run `tagferry session renew`.';
  const isUnavailable = noTokenState(error?.code) === 'platform unavailable';
  const state = isUnavailable ? 'platform unavailable, the agent cannot sign in' : 'the agent is signed out';
  return failure('sign_in', `${state}: ${why}${retry}`, next);
}

/** Reports responses to the agent's posts that did not come from the platform. */
function placeLines({ uplink: { away } }: StatusReport): CheckLine[] {
  if (!away?.foreign_answer) return [];
  const next =
    'Sign in to the captive portal of this network, if any, and check PLATFORM_URL and HTTPS_PROXY. Values remain in the buffer.';
  return [failure('platform.place', plain(away.message), next)];
}

/** Reports rejected posts, rejected series and quarantined values. */
function refusedLines({ state, uplink, buffer }: StatusReport): CheckLine[] {
  const all = `the platform rejects all posts: ${plain(uplink.away?.message ?? '')}`;
  const lines = state === 'posts rejected' ? [failure('posts', all, rejectionAdvice(uplink.away?.code ?? ''))] : [];
  const waiting = uplink.waiting_series.slice(0, MAX_SERIES).map((series) => {
    const why = series.status === 0 ? 'not sent' : `rejected with ${series.status}`;
    const words = `${seriesText(series)} ${why}: ${plain(series.message)}`;
    return failure('series', words, seriesAdvice(series));
  });
  lines.push(...waiting);
  if (uplink.waiting_series.length > MAX_SERIES) {
    const more = `and ${uplink.waiting_series.length - MAX_SERIES} more rejected series`;
    lines.push(failure('series', more, 'See `tagferry status --json`.'));
  }
  if (buffer.quarantined > 0) {
    const next =
      "See `tagferry buffer quarantine` for the platform's responses. `tagferry buffer requeue` posts the values again.";
    lines.push(warning('quarantine', `${counted(buffer.quarantined, 'value')} in quarantine`, next));
  }
  return lines;
}

function diagnosisLines(diagnosis: PlatformDiagnosis): CheckLine[] {
  const { call, assets, assets_left: left, clock_offset_seconds: offset } = diagnosis;
  const lines = [call.ok ? ok('api', plain(call.message)) : failure('api', plain(call.message), call.next)];
  if (offset !== null) lines.push(offsetLine(offset));
  const refused = assets.filter((asset) => !asset.ok);
  for (const asset of refused) lines.push(failure('assets', plain(asset.message), asset.next));
  const rest = left > 0 ? `; ${counted(left, 'more asset')} not checked` : '';
  const writable = assets.length - refused.length;
  if (writable > 0) lines.push(ok('assets', `values can be posted to ${counted(writable, 'asset')}${rest}`));
  else if (assets.length === 0 && call.ok && left === 0) {
    lines.push(warning('assets', 'no assets in tags.yaml', 'Add the first tag to tags.yaml.'));
  }
  const unseen = diagnosis.instrumentations.filter((one) => !one.ok);
  for (const one of unseen) lines.push(warning('instrumentations', plain(one.message), one.next));
  const seen = diagnosis.instrumentations.length - unseen.length;
  if (seen > 0) lines.push(ok('instrumentations', `${counted(seen, 'instrumentation')} accessible`));
  if (assets.length > 0)
    lines.push(ok('units', 'the platform checks units and keys only when it receives the first value'));
  return lines;
}

function offsetLine(offset: number): CheckLine {
  const text = `this clock is ${durationText(Math.abs(offset))} ${offset > 0 ? 'behind' : 'ahead of'} the platform`;
  if (Math.abs(offset) <= CLOCK_OFF_S)
    return ok('clock.platform', offset === 0 ? 'this clock matches the platform' : text);
  return warning('clock.platform', text, 'Set the clock: `timedatectl set-ntp true`.');
}

function hintOf(error: unknown): string | undefined {
  return error instanceof TagferryError ? error.hint : undefined;
}

/**
 * Checks that the webhook is registered, enabled and reachable. `client`: the doctor's own session if no agent is
 * running.
 */
async function webhookLines(
  { agent, settings, place, subject }: DoctorContext,
  { call }: PlatformDiagnosis,
  client: PlatformClient | undefined,
): Promise<CheckLine[]> {
  const url = agent ? agent.listener.webhook_url : settings.webhookUrl;
  const lines: CheckLine[] = agent && call.ok ? await leftBehindLines(place) : [];
  if (!url) return [ok('webhook', 'no webhook, because WEBHOOK_URL is empty'), ...lines];
  if (call.ok) lines.push(await registrationCheck(url, place, settings.clientApplication, client));
  else lines.push(warning('webhook.registered', 'not checked: API calls fail', 'Fix the failure of `api` first.'));
  if (subject === 'files') return lines;
  if (!agent) {
    lines.push(
      warning(
        'webhook.reachable',
        'not tested: no agent is running',
        'Start the agent, then run `tagferry webhook test`.',
      ),
    );
    return lines;
  }
  const { checks } = await askAgent<{ checks: SelfTestLine[] }>(place, 'webhook/test');
  for (const check of checks) {
    const text = `${check.target} ${check.address}: ${plain(check.message)}`;
    lines.push(check.ok ? ok('webhook.reachable', text) : failure('webhook.reachable', text, check.next));
  }
  return lines;
}

async function registrationCheck(
  url: string,
  place: DoctorContext['place'],
  application: string | undefined,
  client: PlatformClient | undefined,
): Promise<CheckLine> {
  try {
    const all = client
      ? await listWith(client, application)
      : (await askAgent<{ webhooks: Webhook[] }>(place, 'webhook/ls')).webhooks;
    return registrationLine(all, url);
  } catch (error) {
    const hint = error instanceof TagferryError ? error.hint : undefined;
    return failure('webhook.registered', messageOf(error), hint ?? 'See `tagferry webhook ls`.');
  }
}

/** Returns webhooks registered for previous URLs. Other checks report an unreachable platform. */
async function leftBehindLines(place: DoctorContext['place']): Promise<CheckLine[]> {
  const asked = askAgent<{ webhooks: ListedWebhook[] }>(place, 'webhook/ls');
  const { webhooks } = await asked.catch(() => ({ webhooks: [] }));
  return webhooks
    .filter((webhook) => webhook.left_behind)
    .map(({ id, url }) =>
      warning(
        'webhook.left_behind',
        `webhook ${id} still delivers to ${plain(url)}, an address that is no longer configured`,
        'Run `tagferry webhook prune`, unless another gateway is using it.',
      ),
    );
}

function registrationLine(webhooks: readonly Webhook[], url: string): CheckLine {
  const own = webhooks.find((webhook) => sameAddress(webhook.url, url));
  const check = 'webhook.registered';
  if (!own) {
    return failure(
      check,
      `the platform has no webhook for ${url}`,
      'Run `tagferry webhook register`, or start the agent.',
    );
  }
  if (own.disabled) {
    const next = 'Run `tagferry webhook enable`. The platform disables webhooks that fail for two weeks.';
    return failure(check, `webhook ${own.id} is disabled`, next);
  }
  return ok(check, `webhook ${own.id} is registered and enabled`);
}

async function listWith(client: PlatformClient, application: string | undefined): Promise<Webhook[]> {
  const signal = AbortSignal.timeout(20_000);
  const { id } = await findClientApplication(client, application, signal);
  return Array.fromAsync(new Webhooks(client, id).list(signal));
}
