/** What `tagferry status` and `/status` show: the daemon's whole state in one JSON object, nothing secret in it. */
import type { Clock } from '../clock.ts';
import type { Tags } from '../config/tags.ts';
import type { RequestBudget } from '../platform/request-budget.ts';
import type { Session } from '../platform/session/session.ts';
import type { Uplink } from '../uplink/uplink.ts';
import { describeEvent } from '../webhook/inbox-event.ts';
import type { BufferFlow } from './buffer-flow.ts';
import type { EventsFlow } from './events-flow.ts';
import type { QuotaReport } from './quota.ts';
import { drainSeconds, type RatesNow } from './rates.ts';

export interface StatusParts {
  version: string;
  clock: Clock;
  startedWallMs: number;
  startedMonotonicMs: number;
  tags: () => Tags;
  stateDir: string;
  platformUrl: string;
  webhookUrl: string | undefined;
  buffer: BufferFlow;
  session: Session;
  budget: RequestBudget;
  uplink: Uplink;
  events: EventsFlow;
  rates: RatesNow;
  quota: QuotaReport | undefined;
  addresses: () => Record<string, string | undefined>;
}

const LAST_EVENTS = 5;

/** One word for the whole: what STATUS tells systemd and an operator reads first. */
export function overallState(parts: Pick<StatusParts, 'session' | 'uplink' | 'buffer'>): string {
  if (parts.buffer.problems.length > 0) return 'refusing values';
  if (!parts.session.snapshot().usable) return 'signed out';
  const { away, restsForMs } = parts.uplink.snapshot();
  if (away) return away.code === '402' ? 'quota spent' : 'platform away';
  return restsForMs === undefined ? 'online' : 'resting';
}

export async function statusReport(parts: StatusParts) {
  const { buffer, clock, events, session, uplink, budget, rates } = parts;
  const { facts } = buffer;
  const nowMs = clock.monotonicMs();
  const request = budget.stats();
  return {
    version: parts.version,
    pid: process.pid,
    state: overallState(parts),
    started_at: new Date(parts.startedWallMs).toISOString(),
    uptime_seconds: Math.round((nowMs - parts.startedMonotonicMs) / 1000),
    platform: parts.platformUrl,
    session: sessionReport(session),
    buffer: {
      values: buffer.bufferedValues,
      live: facts.logValues,
      backlog: facts.segmentValues,
      quarantined: facts.quarantined,
      waiting_for_commit: buffer.committer.waitingValues,
      bytes: facts.disk.bytes,
      free_bytes: facts.disk.freeBytes,
      oldest_age_seconds: Math.round(facts.oldestAgeMs / 1000),
      series: buffer.catalogue.size,
      set_aside: buffer.setAside,
      problems: buffer.problems,
    },
    rates: {
      ingested_per_minute: rates.ingestedPerMinute,
      delivered_per_minute: rates.deliveredPerMinute,
      // Nobody knows while the platform is away.
      drained_in_seconds: uplink.snapshot().state === 'away' ? null : drainSeconds(buffer.bufferedValues, rates),
    },
    uplink: uplinkReport(uplink, clock),
    requests: {
      minute: request.minuteUsed,
      minute_limit: request.minuteLimit,
      day: request.dayUsed,
      day_limit: request.dayLimit,
      day_projected: Math.round(request.dayProjected),
      quota: parts.quota ?? null,
      resting_seconds:
        request.restingUntilMs === undefined ? 0 : Math.max(0, Math.ceil((request.restingUntilMs - nowMs) / 1000)),
    },
    listener: {
      ...parts.addresses(),
      webhook: events.listening,
      webhook_url: parts.webhookUrl,
      registered: events.registration.current()?.webhook,
      secret_known: events.registration.isSecretKnown,
    },
    holds: events.holds.list(),
    lost_nodes: events.holds.lostNodes(),
    events: await lastEvents(buffer),
    tags: parts.tags().tags.size,
    state_dir: parts.stateDir,
  };
}

export type StatusReport = Awaited<ReturnType<typeof statusReport>>;

/** What a reload or `session renew` ends early. */
const QUOTA_SPENT = 'the quota of API calls is spent, all posts pause';

/** Posts: how they go, when the last went, what waits for the platform's word. */
function uplinkReport(uplink: Uplink, clock: Clock) {
  const now = uplink.snapshot();
  const seconds = (ms: number) => Math.round(ms / 1000);
  // By the wall clock at the time: a jump since shows as an odd age, which is better than a hidden one.
  const ago = (atMs: number | undefined) => (atMs === undefined ? null : Math.max(0, seconds(clock.wallMs() - atMs)));
  const text = (atMs: number | undefined) => (atMs === undefined ? null : new Date(atMs).toISOString());
  const until = (forMs: number) => new Date(clock.wallMs() + forMs).toISOString();
  return {
    state: now.state,
    away: now.away
      ? {
          since_seconds: seconds(now.away.forMs),
          code: now.away.code,
          message: now.away.code === '402' ? `${QUOTA_SPENT}: ${now.away.words}` : now.away.words,
          attempts: now.away.attempts,
          next_try_in_seconds: Math.round(now.away.nextTryInMs / 100) / 10,
          next_try_at: until(now.away.nextTryInMs),
        }
      : null,
    resting:
      now.restsForMs === undefined
        ? null
        : { code: '429', for_seconds: seconds(now.restsForMs), until: until(now.restsForMs) },
    last_post_at: text(now.lastPostAtMs),
    last_post_seconds_ago: ago(now.lastPostAtMs),
    last_delivered_at: text(now.lastDeliveredAtMs),
    last_delivered_seconds_ago: ago(now.lastDeliveredAtMs),
    delivered_values: now.deliveredValues,
    quarantined_values: now.quarantinedValues,
    posts_under_way: now.postsUnderWay,
    post_interval_seconds: Math.round(now.intervalMs / 100) / 10,
    post_max_bytes: now.maxBytes,
    waiting_series: now.waitingSeries.map(({ nextTryInMs, words, ...rest }) => ({
      ...rest,
      message: words,
      next_try_in_seconds: seconds(nextTryInMs),
    })),
    paused_assets: now.pausedAssets.map(({ asset, failures, forMs }) => ({
      asset,
      failures,
      for_seconds: seconds(forMs),
    })),
  };
}

export function sessionReport(session: Session) {
  const now = session.snapshot();
  const seconds = (ms: number | undefined) => (ms === undefined ? undefined : Math.round(ms / 1000));
  return {
    state: now.state,
    usable: now.usable,
    grant: now.grant,
    age_seconds: seconds(now.ageMs),
    expires_in_seconds: seconds(now.expiresInMs),
    renews_in_seconds: seconds(now.renewsInMs),
    retry_in_seconds: seconds(now.retryInMs),
    access_token: now.accessTokenHint,
    failures: now.failures,
    last_error: now.lastError,
  };
}

/** The last events of the inbox; none where the disk does not let us look. */
async function lastEvents(buffer: BufferFlow) {
  try {
    return (await buffer.inbox.list({ limit: LAST_EVENTS })).map(describeEvent);
  } catch {
    return [];
  }
}
