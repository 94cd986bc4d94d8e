import { diagnosePlatform, type PlatformDiagnosis } from '../../agent/diagnosis.ts';
import type { StatusReport } from '../../agent/status-report.ts';
import type { Configuration } from '../../config/configuration.ts';
import { messageOf, TagferryError } from '../../errors.ts';
import { fillValuesPath } from '../../uplink/post.ts';
import { counted, durationText } from '../amounts.ts';
import { askDaemon } from '../control-client.ts';
import { plain } from '../table.ts';
import { type CheckLine, type Consultation, failure, ok, warning } from './finding.ts';
import { logIn, type OwnLogin } from './own-login.ts';
import { webhookLines } from './webhook.ts';

/** Beyond this, timestamps of values and the ages of events are visibly wrong. */
const CLOCK_OFF_S = 30;

/**
 * Login and revocation, one call, the permission on each asset, the webhook. Where a daemon runs, its own session does the asking:
 * no second login, within its budget, and without its secrets in this shell. Else the doctor logs in once and revokes.
 */
export async function checkPlatform(consultation: Consultation): Promise<CheckLine[]> {
  const { daemon, place, configuration, platformAnswers } = consultation;
  if (daemon) {
    const session = sessionLine(daemon);
    if (session.state === 'failure') return [session];
    const diagnosis = await askDaemon<PlatformDiagnosis>(place, 'diagnose');
    return [session, ...diagnosisLines(diagnosis), ...(await webhookLines(consultation, undefined))];
  }
  if (!configuration) {
    const next = 'Mend the configuration, or run this where the daemon runs.';
    return [warning('sign_in', 'not tried: the credentials are not known here', next)];
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
      assets: [...instrumentationOf.keys()],
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
