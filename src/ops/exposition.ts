/**
 * Generates `/metrics` with prom-client. Loaded last and only if the ops listener is enabled, because loading it takes
 * one tenth of the startup time.
 */
import { Counter, Gauge, Registry } from 'prom-client';
import { CONFLICT_KINDS } from '../base/identity-conflicts.ts';
import type { SourceReport } from '../sources/status.ts';
import type { Count } from './count.ts';
import type { ReportedParts } from './reported-parts.ts';

/** Value of each source in tags.yaml; `null` is omitted. */
type OfSource = (source: SourceReport) => number | boolean | null;
const SOURCE_METRICS: readonly [name: string, Metric: typeof Gauge | typeof Counter, help: string, read: OfSource][] = [
  [
    'tagferry_source_connected',
    Gauge,
    '1 while the source is connected; absent for sources without a connection.',
    (source) => source.connected,
  ],
  [
    'tagferry_source_silent',
    Gauge,
    '1 while the source has returned no reading for longer than expected, or none since it was opened.',
    (source) => source.silent,
  ],
  [
    'tagferry_source_silent_seconds',
    Gauge,
    'Time since the last reading of the source, or since it was opened.',
    (source) => source.silent_seconds,
  ],
  [
    'tagferry_source_last_value_age_seconds',
    Gauge,
    'Time since the last value of the source was committed; absent before the first one.',
    (source) => source.last_value_seconds_ago,
  ],
  [
    'tagferry_source_waiting_values',
    Gauge,
    'Values of the source pending a commit.',
    (source) => source.waiting_for_commit,
  ],
  [
    'tagferry_source_errors_total',
    Counter,
    'Failed reads, messages and connections of the source.',
    (source) => source.errors,
  ],
  ['tagferry_source_polls_late_total', Counter, 'Missed polls of the source.', (source) => source.polls_late],
  [
    'tagferry_source_window_used',
    Gauge,
    'Unacknowledged messages of the source.',
    (source) => source.window?.used ?? null,
  ],
  [
    'tagferry_source_redeliveries_taken_total',
    Counter,
    'Accepted messages that the broker had delivered before: the maximum number of duplicates on the platform.',
    (source) => source.redelivered?.taken ?? null,
  ],
];

export interface MetricParts extends ReportedParts {
  /** Wall-clock time at which the configuration files were last rejected, in seconds; 0 if they are in use. */
  refusedSinceSeconds: number;
  logLinesDropped: number;
}

function stateOf(parts: MetricParts) {
  return {
    ...parts,
    webhook: parts.settings.webhookUrl ? parts.events.registration : undefined,
    session: parts.session.snapshot(),
    uplink: parts.uplink.snapshot(),
    requests: parts.budget.stats(),
  };
}

type MetricState = ReturnType<typeof stateOf>;

/** Gauges without labels. An unknown value (`undefined`) is omitted. */
const GAUGES: readonly [name: string, help: string, read: (now: MetricState) => number | boolean | undefined][] = [
  ['tagferry_start_time_seconds', 'Start time of the agent, in Unix time.', (now) => now.startedWallMs / 1000],
  [
    'tagferry_configuration_refused_since_seconds',
    'Time of the latest rejection of the configuration files, in Unix time; 0 while they are accepted.',
    (now) => now.refusedSinceSeconds,
  ],
  [
    'tagferry_configuration_in_force_since_seconds',
    'Load time of the active configuration, in Unix time.',
    ({ configuration }) => Date.parse(configuration.since) / 1000,
  ],
  [
    'tagferry_configuration_changed_files',
    'Configuration files that were added, removed or edited and are not loaded.',
    ({ configuration }) => configuration.changed_files.length,
  ],
  [
    'tagferry_buffer_values',
    'Undelivered values in the buffer, excluding quarantine.',
    (now) => now.buffer.bufferedValues,
  ],
  [
    'tagferry_buffer_bytes',
    'Size of the buffer on disk, including WAL and quarantine.',
    (now) => now.buffer.facts.disk.bytes,
  ],
  ['tagferry_buffer_max_bytes', 'BUFFER_MAX_BYTES; 0 means no limit.', (now) => now.settings.bufferMaxBytes],
  [
    'tagferry_buffer_free_bytes',
    'Free bytes on the file system of STATE_DIR.',
    (now) => now.buffer.facts.disk.freeBytes,
  ],
  [
    'tagferry_buffer_min_free_bytes',
    'BUFFER_MIN_FREE in bytes; new values are rejected below it.',
    (now) => now.buffer.minFreeBytes,
  ],
  [
    'tagferry_buffer_oldest_age_seconds',
    'Age of the oldest value in the buffer.',
    (now) => now.buffer.oldestAgeMs / 1000,
  ],
  ['tagferry_buffer_quarantined_values', 'Values in quarantine.', (now) => now.buffer.facts.quarantined],
  ['tagferry_buffer_waiting_values', 'Values pending a commit.', (now) => now.buffer.committer.waitingValues],
  [
    'tagferry_refusing_values',
    '1 while new values are rejected because the disk rejects writes or the buffer is full.',
    (now) => now.buffer.problems.length > 0,
  ],
  ['tagferry_store_set_aside', 'Corrupt stores and rows set aside since startup.', (now) => now.buffer.setAside],
  [
    'tagferry_assets_held',
    'Assets held because the technical user cannot post to them.',
    (now) => now.events.holds.heldCount(),
  ],
  [
    'tagferry_series_waiting',
    'Series whose posts are suspended because the platform rejected consecutive values.',
    (now) => now.uplink.waitingIds.length,
  ],
  [
    'tagferry_platform_unavailable_seconds',
    'Time since the platform became unavailable; 0 while it responds.',
    (now) => (now.uplink.outage?.forMs ?? 0) / 1000,
  ],
  [
    'tagferry_post_interval_seconds',
    'Maximum time between a new value and its post: POST_INTERVAL, or longer if the request budget is too small.',
    (now) => now.uplink.intervalMs / 1000,
  ],
  ['tagferry_session_valid', '1 while the access token is valid.', (now) => now.session.usable],
  [
    'tagferry_session_refused',
    '1 while the platform rejects the credentials.',
    (now) => now.session.last_error?.code === 'platform.sign_in_refused',
  ],
  ['tagferry_session_age_seconds', 'Age of the access token.', (now) => now.session.age_seconds],
  ['tagferry_session_renews_in_seconds', 'Time to the next token renewal.', (now) => now.session.renews_in_seconds],
  [
    'tagferry_requests_share',
    'Share of the request limit measured for this gateway, in requests per minute; 0 means no limit.',
    (now) => now.requests.share,
  ],
  ['tagferry_requests_today', 'API calls in the last 24 hours.', (now) => now.requests.dayUsed],
  ['tagferry_requests_day_limit', 'REQUESTS_PER_DAY; 0 means no limit.', (now) => now.requests.dayLimit],
  [
    'tagferry_requests_day_projected',
    'Projected API calls in 24 hours at the rate of the last hour; absent in the first ten minutes.',
    (now) => now.requests.dayProjected,
  ],
  [
    'tagferry_quota_calls',
    'API calls included in the connect subscription; absent until the platform reports them.',
    (now) => now.quota?.calls,
  ],
  [
    'tagferry_quota_used',
    'API calls counted against the connect subscription; absent until the platform reports them.',
    (now) => now.quota?.used,
  ],
  [
    'tagferry_quota_payload_bytes',
    'Payload included in the connect subscription; absent until the platform reports it.',
    (now) => now.quota?.payload?.bytes,
  ],
  [
    'tagferry_quota_payload_used_bytes',
    'Payload counted against the connect subscription; absent until the platform reports it.',
    (now) => now.quota?.payload?.used,
  ],
  [
    'tagferry_webhook_registered',
    '1 while the webhook for WEBHOOK_URL is registered; absent without WEBHOOK_URL.',
    (now) => now.webhook && now.webhook.current() !== undefined,
  ],
  [
    'tagferry_webhook_disabled',
    '1 while the webhook is disabled by `webhook disable` or on the platform; absent without WEBHOOK_URL.',
    (now) => now.webhook && now.webhook.disabledBy !== undefined,
  ],
  [
    'tagferry_webhook_days_until_disabled',
    'Days until the platform disables the webhook because of failing deliveries; absent while deliveries succeed.',
    (now) => now.events.failingWebhook?.daysLeft,
  ],
];

/** Label values of a metric that is always 1. */
const TEXTS: readonly [
  name: string,
  help: string,
  labelNames: string[],
  read: (now: MetricState) => Record<string, string>,
][] = [
  [
    'tagferry_build_info',
    'Version of the agent and of its runtime, as labels; always 1.',
    ['version', 'node'],
    ({ version }) => ({ version, node: process.versions.node }),
  ],
  [
    'tagferry_configuration_info',
    'Digest of the active configuration and of the files it was read from, and CONFIG_VERSION, as labels; always 1.',
    ['digest', 'files', 'version'],
    ({ configuration: { digest, files_digest, version } }) => ({
      digest: digest ?? '',
      files: files_digest ?? '',
      version: version ?? '',
    }),
  ],
  [
    'tagferry_session_info',
    'Session state and token grant, as labels; always 1.',
    ['state', 'grant'],
    ({ session: { state, grant } }) => ({ state, grant: grant ?? 'none' }),
  ],
  [
    'tagferry_requests_share_info',
    'Reason for the request share, as a label; always 1.',
    ['reason'],
    ({ requests }) => ({ reason: requests.shareReason }),
  ],
];

/** Values with one label. */
const LABELLED: readonly [
  name: string,
  help: string,
  label: string,
  read: (now: MetricState) => readonly (readonly [label: string, value: number])[],
][] = [
  [
    'tagferry_certificate_expiry_timestamp_seconds',
    'Expiry time of a certificate in use; `use` is a listener, the platform or a source.',
    'use',
    (now) => now.certificates.map(({ use, endsMs }) => [use, endsMs / 1000]),
  ],
  [
    'tagferry_identity_conflict',
    "1 while another agent seems to be using this gateway's identity; `kind` is the evidence: broker, token or webhook.",
    'kind',
    (now) => CONFLICT_KINDS.map((kind) => [kind, now.identityConflicts.some((each) => each.kind === kind) ? 1 : 0]),
  ],
  [
    'tagferry_reaction_target_silent_seconds',
    'Time since a reaction target stopped responding; absent while it responds.',
    'target',
    (now) => now.events.silentTargets.map(({ target, silentSeconds }) => [target, silentSeconds]),
  ],
];

/** Returns a registry that reads all values on each scrape, so that none is stale or counted twice. */
export function createRegistry(counts: readonly Count[], parts: () => MetricParts): Registry {
  const registry = new Registry();
  const registers = [registry];
  // All gauges are read in one turn of the event loop, so they reflect the same state.
  let state: MetricState | undefined;
  const now = () => {
    state ??= stateOf(parts());
    queueMicrotask(() => {
      state = undefined;
    });
    return state;
  };
  for (const [name, help, read] of GAUGES) {
    new Gauge({
      name,
      help,
      registers,
      collect() {
        const value = read(now());
        // prom-client would write `Nan`, which some parsers reject.
        if (value === undefined || Number.isNaN(value)) this.remove();
        else this.set(Number(value));
      },
    });
  }
  for (const [name, help, labelNames, read] of TEXTS) {
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
  }
  for (const [name, help, label, read] of LABELLED) {
    new Gauge({
      name,
      help,
      labelNames: [label],
      registers,
      collect() {
        this.reset();
        for (const [text, value] of read(now())) this.set({ [label]: text }, value);
      },
    });
  }
  for (const [name, Metric, help, read] of SOURCE_METRICS) {
    new Metric({
      name,
      help,
      labelNames: ['source', 'kind'],
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
  new Counter({
    name: 'tagferry_log_lines_dropped_total',
    help: 'Log lines dropped because the log output was not writable.',
    registers,
    collect() {
      this.reset();
      this.inc(now().logLinesDropped);
    },
  });
  for (const count of counts) {
    new Counter({
      name: count.name,
      help: count.help,
      labelNames: [...count.labelNames],
      registers,
      collect() {
        this.reset();
        for (const { labels, value } of count.values) this.inc(labels, value);
      },
    });
  }
  return registry;
}
