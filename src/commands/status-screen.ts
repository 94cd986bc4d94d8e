import type { StatusReport } from '../agent/status-report.ts';
import { bytesText, counted, countText, durationText, timeText } from './amounts.ts';
import { cut, type Paint, plain, wrapped } from './table.ts';

/** The report as it arrives: through JSON, where what is `undefined` is left out. */
export type ToldStatus = Omit<StatusReport, 'holds' | 'events'> & {
  holds: StatusReport['holds'];
  events: StatusReport['events'];
};

type Session = ToldStatus['session'];

const MOST_HOLDS = 6;
const MOST_NODES = 3;
const LABEL_WIDTH = 10;

/** What is done with a line that is too long: a screen has so many rows, a pipe has as many as it needs. */
export type Overflow = 'cut' | 'wrap';

/**
 * The whole state on one screen, no line longer than `width` (where no word is). What a person is told to do is never cut. Colours come
 * last, so that they do not count.
 */
export function statusScreen(status: ToldStatus, width: number, paint: Paint, overflow: Overflow = 'cut'): string {
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
  const tail = `  up ${durationText(status.uptime_seconds)}, pid ${status.pid}`;
  lines.push(head + paint(state, state === 'online' ? 'green' : 'red') + tail);
  put('platform', status.platform);
  put('session', sessionText(status.session), !status.session.usable);
  for (const text of troubleTexts(status.session.last_error)) put('', text, true, true);
  putAway(status, put);
  const { ingested_per_minute: taken, delivered_per_minute: delivered } = status.rates;
  put(
    'values',
    `${countText(taken)} a minute in, ${countText(delivered)} a minute out; ${counted(status.tags, 'tag')}`,
  );
  putBuffer(status, put);
  putPosts(status, put);
  putRequests(status, put);
  putListener(status, put);
  putHolds(status, put);
  putEvents(status, put);
  return lines.join('\n');
}

/** `whole`: over as many lines as it needs, on a screen too. */
type Put = (label: string, text: string, bad?: boolean, whole?: boolean) => void;

function sessionText(session: Session): string {
  const grant = session.grant === 'password' ? 'by password' : session.grant === 'refresh_token' ? 'refreshed' : '';
  const parts = [
    session.state,
    grant,
    session.age_seconds === undefined ? '' : `${durationText(session.age_seconds)} old`,
    session.renews_in_seconds === undefined ? '' : `renews in ${durationText(session.renews_in_seconds)}`,
    session.retry_in_seconds === undefined ? '' : `tries again in ${durationText(session.retry_in_seconds)}`,
    session.access_token === undefined ? '' : `token ${session.access_token}`,
  ];
  return parts.filter((part) => part !== '').join(', ');
}

function troubleTexts(error: Session['last_error']): string[] {
  if (!error) return [];
  return [plain(error.message), ...(error.hint ? [plain(error.hint)] : [])];
}

function putAway({ uplink: { away } }: ToldStatus, put: Put): void {
  if (!away) return;
  const since = durationText(away.since_seconds);
  put(
    'away',
    `for ${since}, tried ${counted(away.attempts, 'time')}, next in ${durationText(away.next_try_in_seconds)} (${timeText(away.next_try_at)})`,
    true,
  );
  put('', plain(away.message), true, true);
  if (away.code === '402') put('', 'tagferry session renew tries at once', true);
}

function putBuffer({ buffer, rates }: ToldStatus, put: Put): void {
  const kinds = `${countText(buffer.live)} live, ${countText(buffer.backlog)} backlog`;
  const free = `${bytesText(buffer.bytes)} on disk, ${bytesText(buffer.free_bytes)} free`;
  put('buffer', `${counted(buffer.values, 'value')} (${kinds}), ${free}`);
  if (buffer.values > 0) {
    const drained = rates.drained_in_seconds;
    const when = drained === null ? 'not drained at this rate' : `drained in about ${durationText(drained)}`;
    put('', `oldest ${durationText(buffer.oldest_age_seconds)}, ${when}`, drained === null && buffer.backlog > 0);
  }
  if (buffer.quarantined > 0) {
    put('', `${counted(buffer.quarantined, 'value')} in quarantine: tagferry buffer quarantine`, true);
  }
  if (buffer.set_aside > 0) put('', `${counted(buffer.set_aside, 'corrupt part')} set aside: see the log`, true);
  for (const problem of buffer.problems) put('', plain(problem), true, true);
}

function putPosts({ uplink }: ToldStatus, put: Put): void {
  const last =
    uplink.last_post_seconds_ago === null ? 'none yet' : `last ${durationText(uplink.last_post_seconds_ago)} ago`;
  const ok =
    uplink.last_delivered_seconds_ago === null
      ? 'nothing delivered yet'
      : `delivered ${durationText(uplink.last_delivered_seconds_ago)} ago`;
  put('posts', `${last}, ${ok}, ${uplink.posts_under_way} under way, every ${uplink.post_interval_seconds} s`);
  for (const series of uplink.waiting_series.slice(0, 3)) {
    put('', `asset ${series.asset}: refused with ${series.status}, a series waits: ${plain(series.message)}`, true);
  }
}

function putRequests({ requests, uplink }: ToldStatus, put: Put): void {
  const of = (limit: number) => (limit > 0 ? ` of ${countText(limit)}` : '');
  const over = requests.day_limit > 0 && requests.day_projected > requests.day_limit;
  put(
    'requests',
    `${countText(requests.minute)}${of(requests.minute_limit)} this minute, ${countText(requests.day)}${of(requests.day_limit)} in 24 h`,
  );
  put('', `at the pace of the last hour ${countText(requests.day_projected)} a day`, over);
  if (uplink.resting) {
    const { for_seconds: left, until } = uplink.resting;
    put('', `429: the platform asked for a rest, ${durationText(left)} until ${timeText(until)}`, true);
    put('', 'tagferry session renew ends it', true);
  }
  const { quota } = requests;
  if (!quota) return;
  const share = Math.round((quota.used / quota.calls) * 100);
  const since = quota.since ? ` since ${timeText(quota.since).slice(0, 10)}` : '';
  const left = quota.calls - quota.used;
  const days =
    requests.day_projected > 0 && left > 0
      ? `, enough for ${durationText((left / requests.day_projected) * 86_400)}`
      : '';
  put('quota', `${countText(quota.used)} of ${countText(quota.calls)} calls (${share} %)${since}${days}`, share >= 90);
}

function putListener({ listener }: ToldStatus, put: Put): void {
  const told = listener as Record<string, unknown> & ToldStatus['listener'];
  const where = (name: string, value: unknown) => `${name} ${typeof value === 'string' ? value : 'off'}`;
  put('listener', where('values', told.ingest));
  put('', where('webhook', listener.webhook));
  if (listener.webhook_url === undefined) return;
  const registered = listener.registered === undefined ? 'not registered' : `registered as ${listener.registered}`;
  const secret = listener.secret_known ? '' : ', secret unknown';
  const bad = listener.registered === undefined || !listener.secret_known;
  put('', `${registered}${secret}: ${listener.webhook_url}`, bad);
}

function putHolds(status: ToldStatus, put: Put): void {
  const { holds } = status;
  put('holds', holds.length === 0 ? 'none' : `${holds.length}: values wait in the buffer`, holds.length > 0);
  for (const hold of holds.slice(0, MOST_HOLDS)) {
    // What it is, why and since when first: a narrow screen cuts the rest.
    const next =
      hold.next_probe_in_seconds === null ? '' : `, tried again in ${durationText(hold.next_probe_in_seconds)}`;
    const tags = hold.tags.length > 0 ? ` (${hold.tags.join(' ')})` : '';
    const cause = plain(String(hold.cause)).replace(`${hold.kind}_`, '').replaceAll('_', ' ');
    put('', `${hold.kind} ${hold.id} ${cause} since ${timeText(hold.since)}${tags}${next}`, true);
  }
  if (holds.length > MOST_HOLDS) put('', `and ${holds.length - MOST_HOLDS} more: tagferry status --json`, true);
  for (const { node, since } of status.lost_nodes.slice(0, MOST_NODES))
    put('', `node ${node} disappeared since ${timeText(since)}`, true);
}

function putEvents({ events }: ToldStatus, put: Put): void {
  if (events.length === 0) put('events', 'none');
  for (const [i, event] of events.entries()) {
    const state = event.unrecognised ? 'unrecognised' : event.state;
    const bad = event.state === 'failed' || event.state === 'dead';
    put(i === 0 ? 'events' : '', `${timeText(event.received_at)}  ${plain(event.event_type) || '-'}  ${state}`, bad);
  }
}
