import { Counter, Gauge, Registry } from 'prom-client';
import type { SessionSnapshot } from '../platform/session/session-snapshot.ts';

/**
 * The agent's metrics, by the names of INTERFACE.md. Gauges are read when somebody asks: `figures` is called at each
 * scrape, so that nothing is counted twice and nothing is stale.
 */
export interface MetricFigures {
  bufferValues: number;
  bufferBytes: number;
  oldestAgeSeconds: number;
  assetsHeld: number;
  session: SessionSnapshot;
  requestsToday: number;
  quarantined: number;
  waitingCommit: number;
  setAside: number;
}

export function createMetrics(figures: () => MetricFigures) {
  const registry = new Registry();
  const registers = [registry];
  const counter = <Label extends string>(name: string, help: string, labelNames: readonly Label[] = []) =>
    new Counter<Label>({ name, help, labelNames: [...labelNames], registers });
  const gauge = (name: string, help: string, read: (now: MetricFigures) => number) =>
    new Gauge({
      name,
      help,
      registers,
      collect() {
        this.set(read(figures()));
      },
    });

  gauge(
    'tagferry_buffer_values',
    'Values in the buffer that are not delivered, without quarantine.',
    (now) => now.bufferValues,
  );
  gauge('tagferry_buffer_bytes', 'Bytes of the buffer on disk, with WAL and quarantine.', (now) => now.bufferBytes);
  gauge('tagferry_buffer_oldest_age_seconds', 'Age of the oldest value in the buffer.', (now) => now.oldestAgeSeconds);
  gauge('tagferry_buffer_quarantined_values', 'Values in quarantine now.', (now) => now.quarantined);
  gauge('tagferry_buffer_waiting_values', 'Values that wait for a commit now.', (now) => now.waitingCommit);
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
  gauge('tagferry_session_valid', '1 while there is a valid access token.', (now) => (now.session.usable ? 1 : 0));
  gauge('tagferry_session_age_seconds', 'Age of the access token.', (now) => secondsOf(now.session.ageMs));
  gauge('tagferry_session_renews_in_seconds', 'Time to the next token renewal.', (now) =>
    secondsOf(now.session.renewsInMs),
  );
  new Gauge({
    name: 'tagferry_session_info',
    help: 'The state of the session and the grant of its token, as labels; always 1.',
    labelNames: ['state', 'grant'],
    registers,
    collect() {
      const { state, grant } = figures().session;
      this.reset();
      this.set({ state, grant: grant ?? 'none' }, 1);
    },
  });
  gauge('tagferry_requests_today', 'API calls of the day so far.', (now) => now.requestsToday);

  return {
    registry,
    ingested: counter('tagferry_values_ingested_total', 'Values that were acknowledged.', ['source']),
    delivered: counter('tagferry_values_delivered_total', 'Values that the platform took.'),
    dropped: counter('tagferry_values_dropped_total', 'Values that a configured bound dropped.', ['reason']),
    quarantined: counter('tagferry_values_quarantined_total', 'Values that the platform refused.', ['reason']),
    restamped: counter(
      'tagferry_values_restamped_total',
      'Values stamped here before the clock was trusted: corrected, or sent as they are (doubtful).',
      ['outcome'],
    ),
    posts: counter('tagferry_posts_total', 'Posts of values.', ['outcome']),
    renewals: counter('tagferry_session_renewals_total', 'Tokens obtained, the first login included.', ['grant']),
    eventsReceived: counter('tagferry_events_received_total', 'Events that are in the inbox.', ['event_type']),
    eventsRejected: counter('tagferry_events_rejected_total', 'Requests to the webhook listener that were refused.', [
      'reason',
    ]),
    reactions: counter('tagferry_reactions_total', 'Reactions that ran.', ['name', 'outcome']),
    commits: counter('tagferry_commits_total', 'Commits to disk.', ['outcome']),
  };
}

const secondsOf = (ms: number | undefined) => (ms ?? Number.NaN) / 1000;

export type Metrics = ReturnType<typeof createMetrics>;
