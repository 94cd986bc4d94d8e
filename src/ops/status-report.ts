/** What `tagferry status` and `/status` show: the daemon's whole state in one JSON object, nothing secret in it. */
import type { CertificateInUse } from '../base/certificates.ts';
import type { Clock } from '../base/clock.ts';
import type { IdentityConflict } from '../base/identity-conflicts.ts';
import type { ConfigurationReport } from '../config/configuration-report.ts';
import type { Tags } from '../config/tags.ts';
import type { RequestBudget } from '../platform/request-budget.ts';
import type { Session } from '../platform/session/session.ts';
import { sessionReport } from '../platform/session/session-report.ts';
import { SeriesNames, unitText } from '../sources/series-names.ts';
import type { SourceReport } from '../sources/source-report.ts';
import type { Uplink } from '../uplink/uplink.ts';
import { describeEvent } from '../webhook/inbox-event.ts';
import type { QuotaReport } from './quota.ts';
import { drainSeconds, lastsSeconds, type RatesNow } from './rates.ts';
import type { InboxLook, ShownBuffer, ShownEvents } from './shown-parts.ts';

export interface StatusParts {
  version: string;
  clock: Clock;
  startedWallMs: number;
  startedMonotonicMs: number;
  tags: () => Tags;
  stateDir: string;
  platformUrl: string;
  /** BUFFER_MAX_BYTES. */
  maxBytes: number;
  webhookUrl: string | undefined;
  configuration: ConfigurationReport;
  buffer: ShownBuffer & InboxLook;
  session: Session;
  budget: RequestBudget;
  uplink: Uplink;
  events: ShownEvents;
  rates: RatesNow;
  quota: QuotaReport | undefined;
  addresses: () => Record<string, string | undefined>;
  sources: readonly SourceReport[];
  certificates: readonly CertificateInUse[];
  identityConflicts: readonly IdentityConflict[];
}

const LAST_EVENTS = 5;
/** What the platform says of a post's content, its sender or its asset: whoever says that is there. */
const REFUSALS: ReadonlySet<string> = new Set(['400', '401', '403', '404', '413', '422']);

/** One word for the whole: what STATUS tells systemd and an operator reads first. */
export function overallState(parts: Pick<StatusParts, 'session' | 'uplink' | 'buffer' | 'budget'>): string {
  if (parts.buffer.problems.length > 0) return 'refusing values';
  if (!parts.session.isUsable) return 'signed out';
  const { outage } = parts.uplink;
  if (outage && !outage.isForeign) {
    if (outage.code === '402') return 'quota spent';
    if (REFUSALS.has(outage.code)) return 'posts refused';
  }
  if (outage) return 'platform away';
  return parts.budget.restingUntilMs === undefined ? 'online' : 'resting';
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
    configuration: parts.configuration,
    session: sessionReport(session),
    buffer: {
      values: buffer.bufferedValues,
      live: facts.logValues,
      backlog: facts.segmentValues,
      quarantined: facts.quarantined,
      waiting_for_commit: buffer.committer.waitingValues,
      bytes: facts.disk.bytes,
      free_bytes: facts.disk.freeBytes,
      // 0 is no bound.
      max_bytes: parts.maxBytes,
      lasts_seconds: lastsSeconds(
        {
          values: buffer.bufferedValues,
          bytes: facts.disk.bytes,
          maxBytes: parts.maxBytes,
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
      // Nobody knows while the platform is away.
      drained_in_seconds: drainedInSeconds(parts),
    },
    uplink: uplinkReport(uplink, clock, seriesNames(parts)),
    requests: {
      minute: request.minuteUsed,
      minute_limit: request.minuteLimit,
      // Of the limit, where others have a part in it: found by the platform's 429.
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
      webhook_url: parts.webhookUrl,
      registered: events.registration.current()?.webhook,
      // `command`: by `webhook disable`; `platform`: there.
      disabled_by: events.registration.disabledBy ?? null,
      secret_known: events.registration.isSecretKnown,
      // Deliveries have failed since then, and the platform disables the webhook in so many days.
      failing: events.failingWebhook
        ? { since: new Date(events.failingWebhook.sinceMs).toISOString(), days_left: events.failingWebhook.daysLeft }
        : null,
    },
    sources: parts.sources,
    // Whose events of access hold and release values; null where the user is unknown and no event is compared.
    access_user: events.ownUser ?? null,
    holds: events.holds.list(),
    lost_nodes: events.holds.lostNodes(),
    silent_targets: events.silentTargets.map(({ target, reactions, silentSeconds }) => ({
      target,
      reactions,
      silent_seconds: silentSeconds,
    })),
    certificates: parts.certificates.map(({ use, endsMs }) => ({ use, expires: new Date(endsMs).toISOString() })),
    // Signs of another agent with this identity.
    identity_conflicts: parts.identityConflicts.map(({ kind, subject, sinceMs, count }) => ({
      kind,
      source: subject ?? null,
      since: new Date(sinceMs).toISOString(),
      count,
    })),
    events: await lastEvents(buffer),
    tags: parts.tags().tags.size,
    state_dir: parts.stateDir,
  };
}

function drainedInSeconds({ buffer, uplink, rates }: StatusParts): number | null {
  const { state, intervalMs } = uplink.snapshot();
  if (state === 'away') return null;
  return drainSeconds({ values: buffer.bufferedValues, oldestAgeMs: buffer.oldestAgeMs, intervalMs }, rates);
}

export type StatusReport = Awaited<ReturnType<typeof statusReport>>;

/** What a reload or `session renew` ends early. */
const QUOTA_SPENT = 'the quota of API calls is spent, all posts pause';

function outageMessage({ code, words, isForeign }: { code: string; words: string; isForeign: boolean }): string {
  if (isForeign) return `something answers in the platform's place: ${words}`;
  return code === '402' ? `${QUOTA_SPENT}: ${words}` : words;
}

/** A series in the words of tags.yaml. */
interface NamedSeries {
  key?: string;
  group?: string | undefined;
  /** Its number, or its code. */
  unit?: string | undefined;
  tag?: string | undefined;
}

function seriesNames({ buffer, tags }: StatusParts): (series: number) => NamedSeries {
  let names: SeriesNames | undefined;
  return (id) => {
    const series = buffer.catalogue.get(id);
    if (series === undefined) return {};
    // Built for a report that has something to name, which most have not.
    names ??= new SeriesNames(tags().tags);
    const { key, group, unit } = series;
    return { key, group, unit: unit && unitText(unit), tag: names.tagOf(series) };
  };
}

/** Posts: how they go, when the last went, what waits for the platform's word. */
function uplinkReport(uplink: Uplink, clock: Clock, name: (series: number) => NamedSeries) {
  const now = uplink.snapshot();
  const seconds = (ms: number) => Math.round(ms / 1000);
  // By the wall clock at the time: a jump since shows as an odd age, which is better than a hidden one.
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
      ? { at: text(now.lastRefusal.atMs), code: now.lastRefusal.code, message: now.lastRefusal.words }
      : null,
    delivered_values: now.deliveredValues,
    quarantined_values: now.quarantinedValues,
    posts_under_way: now.postsUnderWay,
    post_interval_seconds: Math.round(now.intervalMs / 100) / 10,
    post_max_bytes: now.maxBytes,
    waiting_series: now.waitingSeries.map(({ nextTryInMs, words, ...rest }) => ({
      ...rest,
      ...name(rest.series),
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

/** The last events of the inbox; none where the disk does not let us look. */
async function lastEvents(buffer: InboxLook) {
  try {
    return (await buffer.inbox.list({ limit: LAST_EVENTS })).map(describeEvent);
  } catch {
    return [];
  }
}
