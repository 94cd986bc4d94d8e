import type { Registry } from 'prom-client';
import type { DropReason } from '../buffer/store-facts.ts';
import type { Meaning } from '../platform/response-meanings.ts';
import type { SessionGrant } from '../platform/session/live-tokens.ts';
import type { RejectReason } from '../webhook/listener.ts';
import { Count } from './count.ts';
import type { MetricParts } from './exposition.ts';

/** Known label values start at 0, because Prometheus does not count an initial 1 as an increase. */
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
const WRITE_OUTCOMES = ['written', 'failed', 'unverified', 'rejected'] as const;
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

export function createMetrics(parts: () => MetricParts) {
  const counts: Count[] = [];
  const counter = <Label extends string = never>(name: string, help: string, labelNames: readonly Label[] = []) => {
    const count = new Count<Label>(name, help, labelNames);
    counts.push(count as Count<string>);
    return count;
  };
  const dropped = counter('tagferry_values_dropped_total', 'Values dropped because of a configured bound.', ['reason']);
  const posts = counter('tagferry_posts_total', 'Posts of values.', ['outcome']);
  const renewals = counter('tagferry_session_renewals_total', 'Tokens obtained, including those of the first login.', [
    'grant',
  ]);
  const rejected = counter('tagferry_events_rejected_total', 'Rejected requests to the webhook listener.', ['reason']);
  const commits = counter('tagferry_commits_total', 'Commits to disk.', ['outcome']);
  const quarantined = counter('tagferry_values_quarantined_total', 'Values rejected by the platform.', ['reason']);
  const writes = counter('tagferry_writes_total', 'Writes of values to devices.', ['outcome']);
  for (const outcome of WRITE_OUTCOMES) writes.inc({ outcome }, 0);
  for (const reason of DROP_REASONS) dropped.inc({ reason }, 0);
  for (const outcome of POST_OUTCOMES) posts.inc({ outcome }, 0);
  for (const grant of GRANTS) renewals.inc({ grant }, 0);
  for (const reason of REJECT_REASONS) rejected.inc({ reason }, 0);
  for (const outcome of ['ok', 'refused', 'failed']) commits.inc({ outcome }, 0);
  for (const reason of ['400', '413', '422']) quarantined.inc({ reason }, 0);

  let registry: Promise<Registry> | undefined;
  return {
    /** Returns the registry for Prometheus. The first call loads prom-client. */
    registry(): Promise<Registry> {
      registry ??= import('./exposition.ts').then(({ createRegistry }) => createRegistry(counts, parts));
      return registry;
    },
    dropped,
    posts,
    renewals,
    commits,
    earlyCommits: counter(
      'tagferry_commits_early_total',
      'Commits before COMMIT_INTERVAL, because a source could send no more values until a commit.',
    ),
    quarantined,
    eventsRejected: rejected,
    ingested: counter('tagferry_values_ingested_total', 'Acknowledged values.', ['source']),
    delivered: counter('tagferry_values_delivered_total', 'Values accepted by the platform.'),
    restamped: counter(
      'tagferry_values_restamped_total',
      'Values stamped by the agent before its clock was trusted: corrected, or posted unchanged (doubtful).',
      ['outcome'],
    ),
    eventsReceived: counter('tagferry_events_received_total', 'Events stored in the inbox.', ['event_type']),
    eventsUnreadable: counter(
      'tagferry_events_unreadable_total',
      'Events of a known type that could not be read; their reactions did not run.',
      ['event_type'],
    ),
    eventsPassed: counter('tagferry_events_elsewhere_total', 'Events from the broker intended for other gateways.', []),
    eventsRelayed: counter('tagferry_events_relayed_total', 'Events published for other gateways.', []),
    writes,
    reactions: counter('tagferry_reactions_total', 'Completed reactions.', ['name', 'outcome']),
  };
}

/** Returns all members of a union. A missing member is a compile error. */
function names<Name extends string>(all: Record<Name, 0>): Name[] {
  return Object.keys(all) as Name[];
}

export type Metrics = ReturnType<typeof createMetrics>;
