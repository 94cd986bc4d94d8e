/**
 * What `/metrics` answers, by prom-client. The daemon loads it last, where operators are served: it is a tenth of what a start loads.
 */
import { Counter, Gauge, Registry } from 'prom-client';
import { CONFLICT_KINDS } from '../base/identity-conflicts.ts';
import type { SourceReport } from '../sources/source-report.ts';
import type { Count } from './count.ts';
import type { MetricFigures } from './figures.ts';

/** Of each source of tags.yaml; `null` is left out. */
type OfSource = (source: SourceReport) => number | boolean | null;
const SOURCE_METRICS: readonly [name: string, Metric: typeof Gauge | typeof Counter, help: string, read: OfSource][] = [
  [
    'tagferry_source_connected',
    Gauge,
    '1 while the source is connected; left out where there is nothing to be connected to.',
    (source) => source.connected,
  ],
  [
    'tagferry_source_silent',
    Gauge,
    '1 while the source has given nothing for longer than it should, or nothing yet.',
    (source) => source.silent,
  ],
  [
    'tagferry_source_silent_seconds',
    Gauge,
    'Since the last reading of the source, or since it was opened.',
    (source) => source.silent_seconds,
  ],
  [
    'tagferry_source_last_value_age_seconds',
    Gauge,
    'Since the last value of the source came to disk; left out until one did.',
    (source) => source.last_value_seconds_ago,
  ],
  [
    'tagferry_source_waiting_values',
    Gauge,
    'Values of the source that wait for a commit.',
    (source) => source.waiting_for_commit,
  ],
  [
    'tagferry_source_errors_total',
    Counter,
    'Reads and messages of the source that gave nothing, connections that failed.',
    (source) => source.errors,
  ],
  [
    'tagferry_source_polls_late_total',
    Counter,
    'Polls of the source that were not made when they were due.',
    (source) => source.polls_late,
  ],
  [
    'tagferry_source_window_used',
    Gauge,
    'Messages of the source that wait to be confirmed.',
    (source) => source.window?.used ?? null,
  ],
  [
    'tagferry_source_redeliveries_known_total',
    Counter,
    'Messages that came to the source again, were known and not stored a second time.',
    (source) => source.redelivered?.known ?? null,
  ],
  [
    'tagferry_source_redeliveries_taken_total',
    Counter,
    'Messages that somebody had been given before and the source took: at most so many may be twice at the platform.',
    (source) => source.redelivered?.taken ?? null,
  ],
];

/** Counters are copied and gauges read when somebody asks, so that nothing is counted twice and nothing is stale. */
export function createRegistry(counts: readonly Count[], figures: () => MetricFigures): Registry {
  const registry = new Registry();
  const registers = [registry];
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
    'tagferry_configuration_refused_since_seconds',
    'Since when the files of the configuration are refused and those of before are in force; 0 while they are in force.',
    (now) => now.filesRefusedSinceSeconds,
  );
  info(
    'tagferry_configuration_info',
    'Digest of the configuration in force and of the files it was read from, and CONFIG_VERSION, as labels; always 1.',
    ['digest', 'files', 'version'],
    ({ configuration }) => ({
      digest: configuration.digest ?? '',
      files: configuration.files_digest ?? '',
      version: configuration.version ?? '',
    }),
  );
  gauge(
    'tagferry_configuration_in_force_since_seconds',
    'When the configuration in force was loaded, since 1970.',
    ({ configuration }) => Date.parse(configuration.since) / 1000,
  );
  gauge(
    'tagferry_configuration_changed_files',
    'Configuration files that were added, removed or edited and are not loaded.',
    ({ configuration }) => configuration.changed_files.length,
  );
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
    'tagferry_platform_unavailable_seconds',
    'How long the platform has been unavailable; 0 while it answers.',
    (now) => now.unavailableSeconds,
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
  gauge(
    'tagferry_requests_share',
    'Requests a minute that were found to be this gateway’s of the limit; 0 is no limit.',
    (now) => now.requestsShare,
  );
  info(
    'tagferry_requests_share_info',
    'Why the share is as it is, as a label; always 1.',
    ['reason'],
    ({ requestsShareReason: reason }) => ({ reason }),
  );
  gauge('tagferry_requests_today', 'API calls of the last 24 hours.', (now) => now.requestsToday);
  gauge('tagferry_requests_day_limit', 'REQUESTS_PER_DAY; 0 is no limit.', (now) => now.requestsPerDay);
  gauge(
    'tagferry_requests_day_projected',
    'API calls in 24 hours at the pace of the last hour; absent in the first ten minutes.',
    (now) => now.requestsProjected ?? Number.NaN,
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
    'tagferry_quota_payload_bytes',
    'Payload that the connect subscription allows; absent until the platform reports it.',
    (now) => now.quota?.payload?.bytes ?? Number.NaN,
  );
  gauge(
    'tagferry_quota_payload_used_bytes',
    'Payload counted against it; absent until the platform reports it.',
    (now) => now.quota?.payload?.used ?? Number.NaN,
  );
  gauge(
    'tagferry_webhook_registered',
    '1 while the webhook of WEBHOOK_URL is registered; left out without WEBHOOK_URL.',
    (now) => (now.isWebhookRegistered === undefined ? Number.NaN : Number(now.isWebhookRegistered)),
  );
  gauge(
    'tagferry_webhook_disabled',
    '1 while the webhook stays disabled, by `webhook disable` or on the platform; left out without WEBHOOK_URL.',
    (now) => (now.isWebhookRegistered === undefined ? Number.NaN : Number(now.isWebhookDisabled)),
  );

  gauge(
    'tagferry_webhook_days_until_disabled',
    'Days until the platform disables the webhook because deliveries keep failing; absent while they do not.',
    (now) => now.webhookDaysLeft ?? Number.NaN,
  );

  for (const [name, Metric, help, read] of SOURCE_METRICS) {
    const labelNames = ['source', 'kind'];
    new Metric({
      name,
      help,
      labelNames,
      registers,
      collect() {
        this.reset();
        for (const source of now().sources) {
          const value = read(source);
          if (value !== null) this.inc({ source: source.name, kind: source.kind }, Number(value));
        }
      },
    });
  }

  new Gauge({
    name: 'tagferry_certificate_expiry_timestamp_seconds',
    help: 'When a certificate in use expires; `use` is a listener, the platform or a source.',
    labelNames: ['use'],
    registers,
    collect() {
      this.reset();
      for (const { use, endsMs } of now().certificates) this.set({ use }, endsMs / 1000);
    },
  });

  new Gauge({
    name: 'tagferry_identity_conflict',
    help: 'Whether another agent seems to have the identity of this gateway; `kind` is the sign: broker, token or webhook.',
    labelNames: ['kind'],
    registers,
    collect() {
      const present = new Set(now().identityConflicts.map(({ kind }) => kind));
      for (const kind of CONFLICT_KINDS) this.set({ kind }, present.has(kind) ? 1 : 0);
    },
  });

  new Gauge({
    name: 'tagferry_reaction_target_silent_seconds',
    help: 'Time since a target of reactions stopped responding; left out while it responds.',
    labelNames: ['target'],
    registers,
    collect() {
      this.reset();
      for (const { target, silentSeconds } of now().silentTargets) this.set({ target }, silentSeconds);
    },
  });

  for (const count of counts) {
    const { name, help, labelNames } = count;
    new Counter({
      name,
      help,
      labelNames: [...labelNames],
      registers,
      collect() {
        this.reset();
        for (const { labels, value } of count.values) this.inc(labels, value);
      },
    });
  }
  return registry;
}

const secondsOf = (ms: number | undefined) => (ms ?? Number.NaN) / 1000;
