/** Content of `tagferry status` and `/status`: the agent's state as one JSON object without secrets. */
import type { Clock } from '../base/clock.ts';
import type { Tags } from '../config/tags.ts';
import { noTokenState } from '../platform/response-meanings.ts';
import { SeriesNames, unitText } from '../sources/intake/series-names.ts';
import type { Uplink } from '../uplink/uplink.ts';
import { describeEvent, type ListedEvent } from '../webhook/inbox-event.ts';
import { drainSeconds, lastsSeconds, type RatesNow } from './rates.ts';
import type { ReportedBuffer, ReportedParts } from './reported-parts.ts';

export interface StatusParts extends ReportedParts {
  clock: Clock;
  startedMonotonicMs: number;
  tags: () => Tags;
  buffer: ReportedBuffer & EventList;
  rates: RatesNow;
  addresses: () => Record<string, string | undefined>;
}

interface EventList {
  readonly inbox: { list(query: { limit: number }): Promise<ListedEvent[]> };
}

const LAST_EVENTS = 5;
/** Rejections of a post's content, sender or asset, which show that the platform is available. */
const REFUSALS: ReadonlySet<string> = new Set(['400', '401', '403', '404', '413', '422']);

/** Returns the overall state for systemd, status and page. Clients compare these values of the JSON member `state`. */
export function overallState(parts: Pick<StatusParts, 'session' | 'uplink' | 'buffer' | 'budget'>): string {
  if (parts.buffer.problems.length > 0) return 'rejecting values';
  if (!parts.session.isUsable) return noTokenState(parts.session.lastErrorCode);
  const { outage } = parts.uplink;
  if (outage && outage.cause !== 'foreign') {
    if (outage.code === '402') return 'quota used up';
    if (REFUSALS.has(outage.code)) return 'posts rejected';
  }
  if (outage) return 'platform unavailable';
  return parts.budget.restingUntilMs === undefined ? 'online' : 'resting';
}

export async function statusReport(parts: StatusParts) {
  const { buffer, clock, events, session, settings, uplink, budget, rates } = parts;
  const { facts } = buffer;
  const nowMs = clock.monotonicMs();
  const request = budget.stats();
  return {
    version: parts.version,
    pid: process.pid,
    state: overallState(parts),
    started_at: new Date(parts.startedWallMs).toISOString(),
    uptime_seconds: Math.round((nowMs - parts.startedMonotonicMs) / 1000),
    platform: settings.platformUrl,
    configuration: parts.configuration,
    session: session.snapshot(),
    buffer: {
      values: buffer.bufferedValues,
      live: facts.logValues,
      backlog: facts.segmentValues,
      quarantined: facts.quarantined,
      waiting_for_commit: buffer.committer.waitingValues,
      bytes: facts.disk.bytes,
      free_bytes: facts.disk.freeBytes,
      // 0 means no limit.
      max_bytes: settings.bufferMaxBytes,
      lasts_seconds: lastsSeconds(
        {
          values: buffer.bufferedValues,
          bytes: facts.disk.bytes,
          maxBytes: settings.bufferMaxBytes,
          freeBytes: facts.disk.freeBytes - buffer.minFreeBytes,
        },
        rates,
      ),
      oldest_age_seconds: Math.round(buffer.oldestAgeMs / 1000),
      series: buffer.catalogue.size,
      set_aside: buffer.setAside,
      problems: buffer.problems,
    },
    rates: {
      ingested_per_minute: rates.ingestedPerMinute,
      delivered_per_minute: rates.deliveredPerMinute,
      // Unknown while the platform is unavailable.
      drained_in_seconds: drainedInSeconds(parts),
    },
    uplink: uplinkReport(uplink, clock, seriesNames(parts)),
    requests: {
      minute: request.minuteUsed,
      minute_limit: request.minuteLimit,
      // Share of the limit if other clients also use it, inferred from 429 responses.
      share: Math.round(100 * request.share) / 100,
      share_reason: request.shareReason,
      day: request.dayUsed,
      day_limit: request.dayLimit,
      day_projected: request.dayProjected ?? null,
      quota: parts.quota ?? null,
      resting_seconds:
        request.restingUntilMs === undefined ? 0 : Math.max(0, Math.ceil((request.restingUntilMs - nowMs) / 1000)),
    },
    listener: {
      ...parts.addresses(),
      webhook: events.listening,
      webhook_url: settings.webhookUrl,
      registered: events.registration.current()?.webhook,
      // `command`: disabled by `webhook disable`; `platform`: disabled on the platform.
      disabled_by: events.registration.disabledBy ?? null,
      secret_known: events.registration.isSecretKnown,
      // Time since which deliveries have been failing, and days until the platform disables the webhook.
      failing: events.failingWebhook
        ? { since: new Date(events.failingWebhook.sinceMs).toISOString(), days_left: events.failingWebhook.daysLeft }
        : null,
    },
    sources: parts.sources,
    // User whose access events hold and release values; null if unknown, in which case direct events apply and relayed
    // ones do not.
    access_user: events.ownUser ?? null,
    holds: events.holds.list(),
    lost_nodes: events.lostNodes(),
    silent_targets: events.silentTargets.map(({ target, reactions, silentSeconds }) => ({
      target,
      reactions,
      silent_seconds: silentSeconds,
    })),
    certificates: parts.certificates.map(({ use, endsMs }) => ({ use, expires: new Date(endsMs).toISOString() })),
    // Indications of another agent with the same identity.
    identity_conflicts: parts.identityConflicts.map(({ kind, subject, sinceMs, count }) => ({
      kind,
      source: subject ?? null,
      since: new Date(sinceMs).toISOString(),
      count,
    })),
    events: await lastEvents(buffer),
    tags: parts.tags().tags.size,
    state_dir: settings.stateDir,
  };
}

function drainedInSeconds({ buffer, uplink, rates }: StatusParts): number | null {
  const { state, intervalMs } = uplink.snapshot();
  if (state === 'away') return null;
  return drainSeconds({ values: buffer.bufferedValues, oldestAgeMs: buffer.oldestAgeMs, intervalMs }, rates);
}

export type StatusReport = Awaited<ReturnType<typeof statusReport>>;

const QUOTA_SPENT = 'API call quota used up, all posts paused';

function outageMessage({ code, reason, isForeign }: { code: string; reason: string; isForeign: boolean }): string {
  if (isForeign) return `the response is not from the platform: ${reason}`;
  return code === '402' ? `${QUOTA_SPENT}: ${reason}` : reason;
}

/** Series with its name in tags.yaml. */
interface NamedSeries {
  key?: string;
  group?: string | undefined;
  /** Unit number or code. */
  unit?: string | undefined;
  tag?: string | undefined;
}

function seriesNames({ buffer, tags }: StatusParts): (series: number) => NamedSeries {
  let names: SeriesNames | undefined;
  return (id) => {
    const series = buffer.catalogue.get(id);
    if (series === undefined) return {};
    // Created on demand, because most reports contain no series.
    names ??= new SeriesNames(tags().tags);
    const { key, group, unit } = series;
    return { key, group, unit: unit && unitText(unit), tag: names.tagOf(series) };
  };
}

/** Reports posts: state, latest post and pending values. */
function uplinkReport(uplink: Uplink, clock: Clock, name: (series: number) => NamedSeries) {
  const now = uplink.snapshot();
  const seconds = (ms: number) => Math.round(ms / 1000);
  // Uses the wall clock of the event. After a clock change, the age is wrong, but showing it is preferable to hiding
  // it.
  const ago = (atMs: number | undefined) => (atMs === undefined ? null : Math.max(0, seconds(clock.wallMs() - atMs)));
  const text = (atMs: number | undefined) => (atMs === undefined ? null : new Date(atMs).toISOString());
  const until = (forMs: number) => new Date(clock.wallMs() + forMs).toISOString();
  return {
    state: now.state,
    away: now.outage
      ? {
          since_seconds: seconds(now.outage.forMs),
          code: now.outage.code,
          message: outageMessage(now.outage),
          foreign_answer: now.outage.isForeign,
          attempts: now.outage.attempts,
          next_try_in_seconds: Math.round(now.outage.nextTryInMs / 100) / 10,
          next_try_at: until(now.outage.nextTryInMs),
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
    last_error: now.lastRefusal
      ? { at: text(now.lastRefusal.atMs), code: now.lastRefusal.code, message: now.lastRefusal.reason }
      : null,
    delivered_values: now.deliveredValues,
    quarantined_values: now.quarantinedValues,
    posts_under_way: now.postsInProgress,
    post_interval_seconds: Math.round(now.intervalMs / 100) / 10,
    post_max_bytes: now.maxBytes,
    waiting_series: now.waitingSeries.map(({ nextTryInMs, reason, ...rest }) => ({
      ...rest,
      ...name(rest.series),
      message: reason,
      next_try_in_seconds: seconds(nextTryInMs),
    })),
    paused_assets: now.pausedAssets.map(({ asset, failures, forMs }) => ({
      asset,
      failures,
      for_seconds: seconds(forMs),
    })),
  };
}

/** Returns the latest inbox events, or none if the disk cannot be read. */
async function lastEvents(buffer: EventList) {
  try {
    return (await buffer.inbox.list({ limit: LAST_EVENTS })).map(describeEvent);
  } catch {
    return [];
  }
}
