import { counted, durationText } from '../../base/amounts.ts';
import { messageOf, TagferryError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import type { Configuration } from '../../config/configuration.ts';
import { diagnosePlatform, objectsOfTags, type PlatformDiagnosis } from '../../control/diagnosis.ts';
import type { StatusReport } from '../../ops/status-report.ts';
import { fillValuesPath } from '../../uplink/post-address.ts';
import { askDaemon } from '../control-client.ts';
import { choiceText, seriesText } from '../series-text.ts';
import { type CheckLine, type Consultation, failure, ok, warning } from './finding.ts';
import { logIn, type OwnLogin } from './own-login.ts';
import { webhookLines } from './webhook.ts';

/** Beyond this, timestamps of values and the ages of events are visibly wrong. */
const CLOCK_OFF_S = 30;
const MAX_SERIES = 5;

/**
 * Login and revocation, one call, the permission on each asset, the webhook. Where a daemon runs, its own session does the asking:
 * no second login, within its budget, and without its secrets in this shell. Else the doctor logs in once and revokes.
 */
export async function checkPlatform(consultation: Consultation): Promise<CheckLine[]> {
  const { daemon, place, configuration, platformAnswers, unread } = consultation;
  if (daemon) {
    const session = sessionLine(daemon);
    if (session.state === 'failure') return [session];
    const diagnosis = await askDaemon<PlatformDiagnosis>(place, 'diagnose');
    return [
      session,
      ...placeLines(daemon),
      ...diagnosisLines(diagnosis),
      ...refusedLines(daemon),
      ...(await webhookLines(consultation, undefined)),
    ];
  }
  if (!configuration) {
    if (unread.length > 0) return [warning('sign_in', 'not tried: this user cannot read the credentials', 'Use sudo.')];
    return [warning('sign_in', 'not tried: the configuration is not valid', 'Correct the lines above.')];
  }
  if (!platformAnswers)
    return [warning('sign_in', 'not tried: the platform cannot be reached', 'Mend the lines above.')];
  return askWithOwnLogin(consultation, configuration);
}

async function askWithOwnLogin(consultation: Consultation, configuration: Configuration): Promise<CheckLine[]> {
  const { clock } = consultation;
  const { settings, tags } = configuration;
  let login: OwnLogin;
  try {
    login = await logIn(settings, consultation);
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
    lines.push(...diagnosisLines(diagnosis), ...(await webhookLines(consultation, login.client)));
    lines.push(await revocationLine(login));
    return lines;
  } finally {
    await login.close();
  }
}

async function revocationLine(login: OwnLogin): Promise<CheckLine> {
  try {
    await login.revoke();
    return ok('revocation', 'the token was taken back');
  } catch (error) {
    const next = 'Tokens that cannot be revoked live for 11 minutes; ask the platform why.';
    return warning('revocation', messageOf(error), hintOf(error) ?? next);
  }
}

function sessionLine({ session }: StatusReport): CheckLine {
  if (session.usable) {
    const renews =
      session.renews_in_seconds === undefined ? '' : `, renews in ${durationText(session.renews_in_seconds)}`;
    return ok('sign_in', `the daemon is signed in (${session.grant ?? session.state}${renews})`);
  }
  if (session.state === 'renewing' || session.state === 'none') {
    return warning('sign_in', 'the daemon is signing in just now', 'Run this again in a moment.');
  }
  const { last_error: error } = session;
  const retry =
    session.retry_in_seconds === undefined ? '' : `; tries again in ${durationText(session.retry_in_seconds)}`;
  const why = error ? plain(error.message) : `the session is ${session.state}`;
  const next = error?.hint ?? 'See `tagferry session show`; `tagferry session renew` tries at once.';
  return failure('sign_in', `the daemon is signed out: ${why}${retry}`, next);
}

/** What the daemon's posts meet: the doctor's own questions may go another way. */
function placeLines({ uplink: { away } }: StatusReport): CheckLine[] {
  if (!away?.foreign_answer) return [];
  const next =
    'Sign this network in (a portal?), and check PLATFORM_URL and HTTPS_PROXY; the values wait in the buffer.';
  return [failure('platform.place', plain(away.message), next)];
}

function refusalNext(code: string): string {
  if (code === '401') return '`tagferry session renew`; where it stays so, check API_KEY_HEADER and PLATFORM_URL.';
  if (code === '403' || code === '404') {
    return 'Check VALUES_PATH, the numbers in tags.yaml, and what the technical user may see.';
  }
  return 'Mend in tags.yaml what it names, then `tagferry reload`.';
}

/** What the platform has refused: series that wait, each with its words, and what is in quarantine. */
function refusedLines({ state, uplink, buffer }: StatusReport): CheckLine[] {
  const all = `the platform refuses every post: ${plain(uplink.away?.message ?? '')}`;
  const lines = state === 'posts refused' ? [failure('posts', all, refusalNext(uplink.away?.code ?? ''))] : [];
  const waiting = uplink.waiting_series.slice(0, MAX_SERIES).map((series) => {
    const why = series.status === 0 ? 'it was not sent' : `the platform refused it with ${series.status}`;
    const words = `${seriesText(series)} waits: ${why}: ${plain(series.message)}`;
    const next = `Mend unit, key or group in tags.yaml, \`tagferry reload\`; then \`tagferry buffer requeue ${choiceText(series)}\`.`;
    return failure('series', words, next);
  });
  lines.push(...waiting);
  if (uplink.waiting_series.length > MAX_SERIES) {
    const more = `and ${uplink.waiting_series.length - MAX_SERIES} more series that the platform refuses`;
    lines.push(failure('series', more, 'See `tagferry status --json`.'));
  }
  if (buffer.quarantined > 0) {
    const next =
      "`tagferry buffer quarantine` shows them with the platform's words; `tagferry buffer requeue` sends them again.";
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
  const rest = left > 0 ? `; ${counted(left, 'more asset')} not asked for` : '';
  const taken = assets.length - refused.length;
  if (taken > 0) lines.push(ok('assets', `${counted(taken, 'asset')} can be posted to${rest}`));
  else if (assets.length === 0 && call.ok && left === 0) {
    lines.push(warning('assets', 'tags.yaml names no asset', 'Write the first tag into tags.yaml.'));
  }
  const unseen = diagnosis.instrumentations.filter((one) => !one.ok);
  for (const one of unseen) lines.push(warning('instrumentations', plain(one.message), one.next));
  const seen = diagnosis.instrumentations.length - unseen.length;
  if (seen > 0) lines.push(ok('instrumentations', `${counted(seen, 'instrumentation')} of the tags can be seen`));
  if (assets.length > 0) lines.push(ok('units', 'the platform tells of units and keys with the first value alone'));
  return lines;
}

function offsetLine(offset: number): CheckLine {
  const text = `this clock is ${durationText(Math.abs(offset))} ${offset > 0 ? 'behind' : 'ahead of'} the platform's`;
  if (Math.abs(offset) <= CLOCK_OFF_S)
    return ok('clock.platform', offset === 0 ? "this clock is the platform's" : text);
  return warning('clock.platform', text, 'Set the clock: `timedatectl set-ntp true`.');
}

function hintOf(error: unknown): string | undefined {
  return error instanceof TagferryError ? error.hint : undefined;
}
