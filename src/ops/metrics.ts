import type { Registry } from 'prom-client';
import type { DropReason } from '../buffer/store-facts.ts';
import type { SessionGrant } from '../platform/session/issued-token.ts';
import type { Meaning } from '../uplink/verdict.ts';
import type { RejectReason } from '../webhook/listener.ts';
import { Count } from './count.ts';
import type { MetricFigures } from './figures.ts';

/** Labels whose values are known beforehand begin at 0: what begins at 1 is no increase to Prometheus. */
const DROP_REASONS = names<DropReason>({ bytes: 0, age: 0, quarantine: 0, purge: 0 });
const GRANTS = names<SessionGrant>({ password: 0, refresh_token: 0 });
const POST_OUTCOMES = names<Meaning | 'aborted'>({
  delivered: 0,
  refused: 0,
  'no-access': 0,
  session: 0,
  quota: 0,
  rest: 0,
  'not-understood': 0,
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
  const counts: Count[] = [];
  const counter = <Label extends string = never>(name: string, help: string, labelNames: readonly Label[] = []) => {
    const count = new Count<Label>(name, help, labelNames);
    counts.push(count as Count<string>);
    return count;
  };
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
  for (const outcome of ['ok', 'refused', 'failed']) commits.inc({ outcome }, 0);
  for (const reason of ['400', '413', '422']) quarantined.inc({ reason }, 0);

  let registry: Promise<Registry> | undefined;
  return {
    /** As Prometheus reads them; the first call loads what writes them. */
    registry(): Promise<Registry> {
      registry ??= import('./exposition.ts').then(({ createRegistry }) => createRegistry(counts, figures));
      return registry;
    },
    dropped,
    posts,
    renewals,
    commits,
    earlyCommits: counter(
      'tagferry_commits_early_total',
      'Commits before COMMIT_INTERVAL, because a source could bring nothing more before one.',
    ),
    quarantined,
    eventsRejected: rejected,
    ingested: counter('tagferry_values_ingested_total', 'Values that were acknowledged.', ['source']),
    ahead: counter('tagferry_values_ahead_total', 'Of them: with a time more than a day ahead.', ['source']),
    delivered: counter('tagferry_values_delivered_total', 'Values that the platform took.'),
    restamped: counter(
      'tagferry_values_restamped_total',
      'Values stamped here before the clock was trusted: corrected, or sent as they are (doubtful).',
      ['outcome'],
    ),
    eventsReceived: counter('tagferry_events_received_total', 'Events that are in the inbox.', ['event_type']),
    eventsPassed: counter('tagferry_events_elsewhere_total', 'Events from the broker that concern other gateways.', []),
    eventsRelayed: counter('tagferry_events_relayed_total', 'Events that were published for other gateways.', []),
    reactions: counter('tagferry_reactions_total', 'Reactions that ran.', ['name', 'outcome']),
  };
}

/** Every member of a union: one that is forgotten does not compile. */
function names<Name extends string>(all: Record<Name, 0>): Name[] {
  return Object.keys(all) as Name[];
}

export type Metrics = ReturnType<typeof createMetrics>;
