import { bytesText, counted, countText, durationText, timeText } from '../../base/amounts.ts';
import { certificateNotes } from '../../base/certificates.ts';
import { systemClock } from '../../base/clock.ts';
import { plain } from '../../base/foreign-text.ts';
import { conflictWords } from '../../base/identity-conflicts.ts';
import { cut, type Paint, wrapped } from '../../base/table.ts';
import { identityText, pendingRestart, RESTART } from '../../config/configuration-report.ts';
import type { StatusReport } from '../../ops/status-report.ts';
import { sourceLines } from '../sources/report-text.ts';

/** Report after a round trip through JSON, which omits undefined members. */
export type ShownStatus = Omit<StatusReport, 'holds' | 'events'> & {
  holds: StatusReport['holds'];
  events: StatusReport['events'];
};

type Session = ShownStatus['session'];

const MAX_HOLDS = 5;
const MAX_NODES = 3;
const MAX_PROBLEMS = 3;
const MAX_FILES = 5;
const LABEL_WIDTH = 10;
const APPLY = 'Run `tagferry check`, then `tagferry reload`.';

/** Handling of long lines: truncated on a terminal, wrapped in a pipe. */
export type Overflow = 'cut' | 'wrap';

/** Shows the state on one screen, at most `width` columns wide. Instructions are wrapped and never truncated. */
export function statusScreen(status: ShownStatus, width: number, paint: Paint, overflow: Overflow = 'cut'): string {
  const lines: string[] = [];
  const put: Put = (label, text, bad = false, whole = false) => {
    const room = width - LABEL_WIDTH;
    const parts = whole || overflow === 'wrap' ? wrapped(text, room) : [cut(text, room)];
    for (const [i, part] of parts.entries()) {
      lines.push(`${(i === 0 ? label : '').padEnd(LABEL_WIDTH)}${bad ? paint(part, 'yellow') : part}`);
    }
  };
  const { state } = status;
  const head = `tagferry ${status.version}  `;
  const up = `up ${durationText(status.uptime_seconds)}, pid ${status.pid}`;
  const fits = head.length + state.length + 2 + up.length <= width;
  lines.push(head + paint(state, state === 'online' ? 'green' : 'red') + (fits ? `  ${up}` : ''));
  if (!fits) put('', up);
  put('platform', status.platform);
  put('session', sessionText(status.session), !status.session.usable);
  for (const text of errorTexts(status.session.last_error)) put('', text, true, true);
  putConfiguration(status, put);
  putAway(status, put);
  const { ingested_per_minute: ingested, delivered_per_minute: delivered } = status.rates;
  put(
    'values',
    `${countText(ingested)} per minute in, ${countText(delivered)} per minute out, ${counted(status.tags, 'tag')}`,
  );
  for (const [at, line] of sourceLines(status.sources).entries()) put(at === 0 ? 'sources' : '', line.text, line.bad);
  putBuffer(status, put);
  putPosts(status, put);
  putRequests(status, put);
  putListener(status, put);
  putConflicts(status, put);
  putCertificates(status, put);
  putHolds(status, put);
  putEvents(status, put);
  return lines.join('\n');
}

/** `whole`: wraps the text instead of truncating it. */
type Put = (label: string, text: string, bad?: boolean, whole?: boolean) => void;

function sessionText(session: Session): string {
  const grant = session.grant === 'password' ? 'with a password' : session.grant === 'refresh_token' ? 'refreshed' : '';
  const parts = [
    session.state,
    grant,
    session.age_seconds === undefined ? '' : `${durationText(session.age_seconds)} old`,
    session.renews_in_seconds === undefined ? '' : `renews in ${durationText(session.renews_in_seconds)}`,
    session.retry_in_seconds === undefined ? '' : `retries in ${durationText(session.retry_in_seconds)}`,
    session.access_token === undefined ? '' : `token ${session.access_token}`,
  ];
  return parts.filter((part) => part !== '').join(', ');
}

function errorTexts(error: Session['last_error']): string[] {
  if (!error) return [];
  return [plain(error.message), ...(error.hint ? [plain(error.hint)] : [])];
}

/** Shows changed and rejected files, and settings that require a restart. */
function putConfiguration({ configuration }: ShownStatus, put: Put): void {
  const { changed_files: changed, refused } = configuration;
  put('config', plain(identityText(configuration)));
  if (changed.length > 0) {
    const more = changed.length > MAX_FILES ? ` and ${changed.length - MAX_FILES} more` : '';
    put('', `changed but not loaded: ${plain(changed.slice(0, MAX_FILES).join(', '))}${more}`, true, true);
    if (!refused) put('', APPLY, true, true);
  }
  if (refused) {
    put('files', `rejected at ${timeText(refused.since)}, previous configuration in effect`, true);
    for (const problem of refused.problems.slice(0, MAX_PROBLEMS)) put('', plain(problem), true, true);
    const more = refused.problems.length - MAX_PROBLEMS;
    put('', `${more > 0 ? `and ${more} more. ` : ''}${APPLY}`, true, true);
  }
  const pending = pendingRestart(configuration);
  if (pending === '') return;
  put(refused ? '' : 'files', `previous value in effect: ${pending}`, true, true);
  put('', `To apply the change, run ${RESTART}.`, true, true);
}

/** Shows certificates that expire soon or have expired. */
function putCertificates({ certificates }: ShownStatus, put: Put): void {
  const notes = certificateNotes(
    certificates.map(({ use, expires }) => ({ use: plain(use), endsMs: Date.parse(expires) })),
    systemClock.wallMs(),
  );
  for (const [at, note] of notes.entries()) put(at === 0 ? 'certs' : '', note, true, true);
}

/** Shows signs of another agent with this identity. */
function putConflicts({ identity_conflicts: conflicts }: ShownStatus, put: Put): void {
  for (const [at, { kind, source }] of conflicts.entries()) {
    const { what, hint } = conflictWords(kind, source === null ? null : plain(source));
    put(at === 0 ? 'identity' : '', what, true, true);
    put('', hint, true, true);
  }
}

function putAway({ state, uplink: { away } }: ShownStatus, put: Put): void {
  if (!away) return;
  const since = durationText(away.since_seconds);
  put(
    state === 'posts rejected' ? 'rejected' : 'outage',
    `for ${since}, ${counted(away.attempts, 'attempt')}, next in ${durationText(away.next_try_in_seconds)} (${timeText(away.next_try_at)})`,
    true,
  );
  put('', plain(away.message), true, true);
  if (away.code === '402') put('', 'To retry now, run `tagferry session renew`.', true);
  if (state === 'posts rejected') put('', rejectionAdvice(away.code), true, true);
}

function drainText(seconds: number | null, isAway: boolean): string {
  if (isAway) return 'posted after the outage';
  if (seconds === null) return 'growing at the current rate';
  return seconds === 0 ? 'posted continuously' : `empty in about ${durationText(seconds)}`;
}

function putBuffer({ buffer, rates, uplink }: ShownStatus, put: Put): void {
  const kinds = `${countText(buffer.live)} live, ${countText(buffer.backlog)} older (backlog)`;
  const free = `${bytesText(buffer.bytes)} on disk, ${bytesText(buffer.free_bytes)} free`;
  put('buffer', `${counted(buffer.values, 'value')} (${kinds}), ${free}`);
  if (buffer.values > 0) {
    const drained = rates.drained_in_seconds;
    const when = drainText(drained, uplink.away !== null);
    put('', `oldest ${durationText(buffer.oldest_age_seconds)}, ${when}`, drained === null);
  }
  if (buffer.quarantined > 0) {
    put('', `${counted(buffer.quarantined, 'value')} in quarantine, see \`tagferry buffer quarantine\``, true);
  }
  if (buffer.set_aside > 0) put('', `${counted(buffer.set_aside, 'corrupt part')} set aside, see the log`, true);
  for (const problem of buffer.problems) put('', plain(problem), true, true);
}

function putPosts({ uplink }: ShownStatus, put: Put): void {
  const last =
    uplink.last_post_seconds_ago === null
      ? 'none yet'
      : `latest attempt ${durationText(uplink.last_post_seconds_ago)} ago`;
  const ok =
    uplink.last_delivered_seconds_ago === null
      ? 'nothing delivered yet'
      : `delivered ${durationText(uplink.last_delivered_seconds_ago)} ago`;
  put('posts', `${last}, ${ok}, ${uplink.posts_under_way} in progress, every ${uplink.post_interval_seconds} s`);
  for (const series of uplink.waiting_series.slice(0, 3)) {
    const why = series.status === 0 ? 'not sent' : `rejected with ${series.status}`;
    put('', `${seriesText(series)} ${why}: ${plain(series.message)}`, true, true);
    if (series.status === 0) continue;
    put('', seriesAdvice(series), true, true);
  }
}

const SHARE_TEXTS = {
  refused: 'reduced after a 429 response; other clients may share the limit',
  growing: 'increasing until the next 429 response',
} as const;

function putRequests({ requests, uplink }: ShownStatus, put: Put): void {
  const of = (limit: number) => (limit > 0 ? ` of ${countText(limit)}` : '');
  const projected = requests.day_projected ?? 0;
  const over = requests.day_limit > 0 && projected > requests.day_limit;
  put(
    'requests',
    `${countText(requests.minute)}${of(requests.minute_limit)} this minute, ${countText(requests.day)}${of(requests.day_limit)} in 24 h`,
  );
  if (requests.share_reason !== 'configured') {
    const share = `limited to ${requests.share} per minute`;
    put('', `${share}, ${SHARE_TEXTS[requests.share_reason]}`);
  }
  if (requests.day_projected !== null) put('', `${countText(projected)} per day at the rate of the last hour`, over);
  if (uplink.resting) {
    const { for_seconds: left, until } = uplink.resting;
    put(
      '',
      `rate limited by the platform (429): posts paused for ${durationText(left)}, until ${timeText(until)}`,
      true,
    );
    put('', 'To post now, run `tagferry session renew`.', true);
  }
  const { quota } = requests;
  if (!quota) return;
  const share = Math.round((quota.used / quota.calls) * 100);
  const since = quota.since ? ` since ${timeText(quota.since).slice(0, 10)}` : '';
  const left = quota.calls - quota.used;
  const days = projected > 0 && left > 0 ? `, enough for ${durationText((left / projected) * 86_400)}` : '';
  put('quota', `${countText(quota.used)} of ${countText(quota.calls)} calls (${share} %)${since}${days}`, share >= 90);
  const { payload } = quota;
  if (!payload) return;
  const payloadShare = Math.round((payload.used / payload.bytes) * 100);
  put('', `${bytesText(payload.used)} of ${bytesText(payload.bytes)} payload (${payloadShare} %)`, payloadShare >= 90);
}

const DISABLED_BY = { command: '`webhook disable`', platform: 'the platform' };

function putListener({ listener }: ShownStatus, put: Put): void {
  const reported = listener as Record<string, unknown> & ShownStatus['listener'];
  const where = (name: string, value: unknown) => `${name} ${typeof value === 'string' ? value : 'off'}`;
  put('listener', `${where('values', reported.ingest)}, ${where('webhook', listener.webhook)}`);
  if (listener.webhook_url === undefined) return;
  const registered = listener.registered === undefined ? 'not registered' : `registered as ${listener.registered}`;
  const secret = listener.secret_known ? '' : ', secret unknown';
  const disabled = listener.disabled_by === null ? '' : `, disabled by ${DISABLED_BY[listener.disabled_by]}`;
  const bad = listener.registered === undefined || !listener.secret_known || disabled !== '';
  put('', `${registered}${secret}${disabled}: ${listener.webhook_url}`, bad);
  if (disabled !== '') put('', 'To enable it, run `tagferry webhook enable`.', true);
  else if (listener.failing) {
    put(
      '',
      `deliveries are failing: the platform will disable the webhook in ${counted(listener.failing.days_left, 'day')}`,
      true,
    );
    put('', 'See `tagferry webhook deliveries --status failed`.', true);
  }
}

function putHolds(status: ShownStatus, put: Put): void {
  const [silent, ...others] = status.silent_targets;
  if (silent) {
    const more = others.length === 0 ? '' : `, and ${others.length} more`;
    put('silent', `${silent.target} has not responded for ${durationText(silent.silent_seconds)}${more}`, true);
  }
  const { holds } = status;
  const waiting = holds.some((hold) => hold.values_wait) ? ', values stay in the buffer' : '';
  put('held', holds.length === 0 ? 'none' : `${holds.length}${waiting}`, holds.length > 0);
  for (const hold of holds.slice(0, MAX_HOLDS)) {
    // The most important facts come first, because a narrow screen cuts off the rest.
    const next =
      hold.next_probe_in_seconds === null ? '' : `, next attempt in ${durationText(hold.next_probe_in_seconds)}`;
    const tags = hold.tags.length > 0 ? ` (${hold.tags.join(' ')})` : '';
    const cause = plain(String(hold.cause)).replace(`${hold.kind}_`, '').replaceAll('_', ' ');
    put('', `${hold.kind} ${hold.id} ${cause} since ${timeText(hold.since)}${tags}${next}`, true);
  }
  if (holds.length > MAX_HOLDS) put('', `and ${holds.length - MAX_HOLDS} more, see \`tagferry status --json\``, true);
  for (const [at, { node, since }] of status.lost_nodes.slice(0, MAX_NODES).entries())
    put(at === 0 ? 'nodes' : '', `node ${node} missing since ${timeText(since)}`, true);
  if (status.access_user === null && status.listener.webhook_url !== undefined) {
    put(
      'access',
      'technical user unknown, access events of all users apply. To fix, set TECHNICAL_USER_ID.',
      false,
      true,
    );
  }
}

function putEvents({ events }: ShownStatus, put: Put): void {
  if (events.length === 0) put('events', 'none');
  for (const [i, event] of events.entries()) {
    const state = event.unrecognised ? 'unrecognised' : event.state;
    const bad = event.state === 'failed' || event.state === 'dead';
    put(i === 0 ? 'events' : '', `${timeText(event.received_at)}  ${plain(event.event_type) || '-'}  ${state}`, bad);
  }
}

/** A series whose values the platform rejects, as shown by `status` and `doctor`. */

export interface ShownSeries {
  asset: number;
  key?: string | undefined;
  group?: string | undefined;
  /** Unit number or code. */
  unit?: string | undefined;
  tag?: string | undefined;
}

/** `FT-101 flow (asset 881, unit 12)` */
export function seriesText({ asset, key, group, unit, tag }: ShownSeries): string {
  const name = [tag, key].filter((part) => part !== undefined).join(' ');
  const facts = [`asset ${asset}`, group && `group ${group}`, unit && `unit ${unit}`].filter(Boolean);
  return name === '' ? facts.join(', ') : `${name} (${facts.join(', ')})`;
}

/** Returns the `tagferry buffer` options that select the series. */
function selectionText({ asset, key, tag }: ShownSeries): string {
  const whose = tag === undefined ? `--asset ${asset}` : `--tag ${tag}`;
  return key === undefined ? whose : `${whose} --key ${key}`;
}

/** Returns advice for the status code with which the platform rejects every post. */
export function rejectionAdvice(code: string): string {
  if (code === '401')
    return 'Run `tagferry session renew`. If this does not help, check API_KEY_HEADER and PLATFORM_URL.';
  if (code === '403' || code === '404') {
    return 'Check VALUES_PATH, the numbers in tags.yaml, and the permissions of the technical user (`tagferry doctor`).';
  }
  return 'Correct tags.yaml, then run `tagferry reload`.';
}

/** Returns advice for a series whose values the platform rejects. */
export function seriesAdvice(series: ShownSeries): string {
  return `After a correction, run \`tagferry buffer requeue ${selectionText(series)}\`.`;
}
