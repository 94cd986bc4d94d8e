import { Counter, Gauge, Registry } from 'prom-client';
import type { DropReason } from '../buffer/store-facts.ts';
import type { SessionGrant } from '../platform/session/held-token.ts';
import type { SessionSnapshot } from '../platform/session/session-snapshot.ts';
import type { Meaning } from '../uplink/verdict.ts';
import type { RejectReason } from '../webhook/listener.ts';

/**
 * The agent's metrics, by the names of INTERFACE.md; docs/metrics.md lists them, and a test compares. Gauges are read when
 * somebody asks, so that nothing is counted twice and nothing is stale. What is not known, or not configured, is left out.
 */
export interface MetricFigures {
  version: string;
  /** Wall clock. */
  startedSeconds: number;
  bufferValues: number;
  bufferBytes: number;
  /** 0 is no bound. */
  bufferMaxBytes: number;
  freeBytes: number;
  /** BUFFER_MIN_FREE in bytes of this file system. */
  minFreeBytes: number;
  oldestAgeSeconds: number;
  quarantined: number;
  waitingCommit: number;
  setAside: number;
  /** New values are refused now. */
  isRefusing: boolean;
  assetsHeld: number;
  session: SessionSnapshot;
  /** 0 while the platform answers. */
  awaySeconds: number;
  postIntervalSeconds: number;
  seriesWaiting: number;
  requestsToday: number;
  /** 0 is no limit. */
  requestsPerDay: number;
  requestsProjected: number;
  quota: { calls: number; used: number } | undefined;
  /** `undefined` where no webhook is to be registered. */
  isWebhookRegistered: boolean | undefined;
}

/** Labels whose values are known beforehand begin at 0: what begins at 1 is no increase to Prometheus. */
const DROP_REASONS = names<DropReason>({ bytes: 0, age: 0, purge: 0 });
const GRANTS = names<SessionGrant>({ password: 0, refresh_token: 0 });
const POST_OUTCOMES = names<Meaning | 'aborted'>({
  delivered: 0,
  refused: 0,
  'no-access': 0,
  session: 0,
  quota: 0,
  rest: 0,
  later: 0,
  unreachable: 0,
  aborted: 0,
});
const REJECT_REASONS = names<RejectReason>({
  aborted: 0,
  commit: 0,
  malformed: 0,
  method: 0,
  no_secret: 0,
  path: 0,
  rate: 0,
  self_test: 0,
  signature_missing: 0,
  signature_wrong: 0,
  too_large: 0,
});

export function createMetrics(figures: () => MetricFigures) {
  const registry = new Registry();
  const registers = [registry];
  const counter = <Label extends string>(name: string, help: string, labelNames: readonly Label[] = []) =>
    new Counter<Label>({ name, help, labelNames: [...labelNames], registers });
  // A scrape reads all gauges in one turn of the event loop: from one look.
  let look: MetricFigures | undefined;
  const now = () => {
    look ??= figures();
    queueMicrotask(() => {
      look = undefined;
    });
    return look;
  };
  const gauge = (name: string, help: string, read: (now: MetricFigures) => number) =>
    new Gauge({
      name,
      help,
      registers,
      collect() {
        const value = read(now());
        // prom-client would write `Nan`, which not every reader takes.
        if (Number.isNaN(value)) this.remove();
        else this.set(value);
      },
    });
  const info = (
    name: string,
    help: string,
    labelNames: string[],
    read: (now: MetricFigures) => Record<string, string>,
  ) =>
    new Gauge({
      name,
      help,
      labelNames,
      registers,
      collect() {
        this.reset();
        this.set(read(now()), 1);
      },
    });

  info(
    'tagferry_build_info',
    'Version of the agent and of its runtime, as labels; always 1.',
    ['version', 'node'],
    (now) => ({
      version: now.version,
      node: process.versions.node,
    }),
  );
  gauge('tagferry_start_time_seconds', 'When the agent started, since 1970.', (now) => now.startedSeconds);
  gauge(
    'tagferry_buffer_values',
    'Values in the buffer that are not delivered, without quarantine.',
    (now) => now.bufferValues,
  );
  gauge('tagferry_buffer_bytes', 'Bytes of the buffer on disk, with WAL and quarantine.', (now) => now.bufferBytes);
  gauge('tagferry_buffer_max_bytes', 'BUFFER_MAX_BYTES; 0 is no bound.', (now) => now.bufferMaxBytes);
  gauge('tagferry_buffer_free_bytes', 'Free bytes on the file system of STATE_DIR.', (now) => now.freeBytes);
  gauge(
    'tagferry_buffer_min_free_bytes',
    'BUFFER_MIN_FREE in bytes: below it new values are refused.',
    (now) => now.minFreeBytes,
  );
  gauge('tagferry_buffer_oldest_age_seconds', 'Age of the oldest value in the buffer.', (now) => now.oldestAgeSeconds);
  gauge('tagferry_buffer_quarantined_values', 'Values in quarantine now.', (now) => now.quarantined);
  gauge('tagferry_buffer_waiting_values', 'Values that wait for a commit now.', (now) => now.waitingCommit);
  gauge('tagferry_refusing_values', '1 while new values are refused: the disk refuses, or the buffer is full.', (now) =>
    Number(now.isRefusing),
  );
  gauge(
    'tagferry_store_set_aside',
    'Corrupt stores and rows that were set aside since the start.',
    (now) => now.setAside,
  );
  gauge(
    'tagferry_assets_held',
    'Assets that are held because the platform does not let this user post to them.',
    (now) => now.assetsHeld,
  );
  gauge(
    'tagferry_series_waiting',
    'Series that wait because the platform refused one value after the other.',
    (now) => now.seriesWaiting,
  );
  gauge(
    'tagferry_platform_away_seconds',
    'How long the platform has been away; 0 while it answers.',
    (now) => now.awaySeconds,
  );
  gauge(
    'tagferry_post_interval_seconds',
    'How long a fresh value may wait for its post: POST_INTERVAL, or longer where the request budget does not reach.',
    (now) => now.postIntervalSeconds,
  );
  gauge('tagferry_session_valid', '1 while there is a valid access token.', (now) => Number(now.session.usable));
  gauge('tagferry_session_refused', '1 while the platform refuses the credentials.', (now) =>
    Number(now.session.lastError?.code === 'platform.sign_in_refused'),
  );
  gauge('tagferry_session_age_seconds', 'Age of the access token.', (now) => secondsOf(now.session.ageMs));
  gauge('tagferry_session_renews_in_seconds', 'Time to the next token renewal.', (now) =>
    secondsOf(now.session.renewsInMs),
  );
  info(
    'tagferry_session_info',
    'The state of the session and the grant of its token, as labels; always 1.',
    ['state', 'grant'],
    ({ session }) => ({
      state: session.state,
      grant: session.grant ?? 'none',
    }),
  );
  gauge('tagferry_requests_today', 'API calls of the last 24 hours.', (now) => now.requestsToday);
  gauge('tagferry_requests_day_limit', 'REQUESTS_PER_DAY; 0 is no limit.', (now) => now.requestsPerDay);
  gauge(
    'tagferry_requests_day_projected',
    'API calls in 24 hours at the pace of the last hour.',
    (now) => now.requestsProjected,
  );
  gauge(
    'tagferry_quota_calls',
    'API calls that the connect subscription allows; left out until the platform has told.',
    (now) => now.quota?.calls ?? Number.NaN,
  );
  gauge(
    'tagferry_quota_used',
    'API calls that the platform has counted against it; left out until it has told.',
    (now) => now.quota?.used ?? Number.NaN,
  );
  gauge(
    'tagferry_webhook_registered',
    '1 while the webhook of WEBHOOK_URL is registered and enabled; left out without WEBHOOK_URL.',
    (now) => (now.isWebhookRegistered === undefined ? Number.NaN : Number(now.isWebhookRegistered)),
  );

  const dropped = counter('tagferry_values_dropped_total', 'Values that a configured bound dropped.', ['reason']);
  const posts = counter('tagferry_posts_total', 'Posts of values.', ['outcome']);
  const renewals = counter('tagferry_session_renewals_total', 'Tokens obtained, the first login included.', ['grant']);
  const rejected = counter('tagferry_events_rejected_total', 'Requests to the webhook listener that were refused.', [
    'reason',
  ]);
  const commits = counter('tagferry_commits_total', 'Commits to disk.', ['outcome']);
  const quarantined = counter('tagferry_values_quarantined_total', 'Values that the platform refused.', ['reason']);
  for (const reason of DROP_REASONS) dropped.inc({ reason }, 0);
  for (const outcome of POST_OUTCOMES) posts.inc({ outcome }, 0);
  for (const grant of GRANTS) renewals.inc({ grant }, 0);
  for (const reason of REJECT_REASONS) rejected.inc({ reason }, 0);
  for (const outcome of ['ok', 'failed']) commits.inc({ outcome }, 0);
  for (const reason of ['400', '413', '422']) quarantined.inc({ reason }, 0);

  return {
    registry,
    dropped,
    posts,
    renewals,
    commits,
    quarantined,
    eventsRejected: rejected,
    ingested: counter('tagferry_values_ingested_total', 'Values that were acknowledged.', ['source']),
    delivered: counter('tagferry_values_delivered_total', 'Values that the platform took.'),
    restamped: counter(
      'tagferry_values_restamped_total',
      'Values stamped here before the clock was trusted: corrected, or sent as they are (doubtful).',
      ['outcome'],
    ),
    eventsReceived: counter('tagferry_events_received_total', 'Events that are in the inbox.', ['event_type']),
    reactions: counter('tagferry_reactions_total', 'Reactions that ran.', ['name', 'outcome']),
  };
}

/** Every member of a union: one that is forgotten does not compile. */
function names<Name extends string>(all: Record<Name, 0>): Name[] {
  return Object.keys(all) as Name[];
}

const secondsOf = (ms: number | undefined) => (ms ?? Number.NaN) / 1000;

export type Metrics = ReturnType<typeof createMetrics>;
