import { minFreeBytes } from '../buffer/bounds.ts';
import type { Settings } from '../config/settings.ts';
import type { RequestBudget } from '../platform/request-budget.ts';
import type { Session } from '../platform/session/session.ts';
import type { Uplink } from '../uplink/uplink.ts';
import type { BufferFlow } from './buffer-flow.ts';
import type { EventsFlow } from './events-flow.ts';
import type { MetricFigures } from './metrics.ts';
import { storeOptions } from './pace.ts';
import type { QuotaReport } from './quota.ts';

export interface FiguresParts {
  version: string;
  startedWallMs: number;
  settings: Settings;
  buffer: BufferFlow;
  session: Session;
  budget: RequestBudget;
  uplink: Uplink;
  events: EventsFlow;
  quota: QuotaReport | undefined;
}

/** What a scrape of `/metrics` reads beside the counters. */
export function metricFigures(parts: FiguresParts): MetricFigures {
  const { buffer, events, settings } = parts;
  const { disk, oldestAgeMs, quarantined } = buffer.facts;
  const uplink = parts.uplink.snapshot();
  const requests = parts.budget.stats();
  const { bounds } = storeOptions(settings);
  return {
    version: parts.version,
    startedSeconds: parts.startedWallMs / 1000,
    bufferValues: buffer.bufferedValues,
    bufferBytes: disk.bytes,
    bufferMaxBytes: settings.bufferMaxBytes,
    freeBytes: disk.freeBytes,
    minFreeBytes: minFreeBytes(disk, bounds),
    oldestAgeSeconds: oldestAgeMs / 1000,
    quarantined,
    waitingCommit: buffer.committer.waitingValues,
    setAside: buffer.setAside,
    isRefusing: buffer.problems.length > 0,
    assetsHeld: events.holds.heldCount(),
    session: parts.session.snapshot(),
    awaySeconds: (uplink.away?.forMs ?? 0) / 1000,
    postIntervalSeconds: uplink.intervalMs / 1000,
    seriesWaiting: uplink.waitingSeries.length,
    requestsToday: requests.dayUsed,
    requestsPerDay: requests.dayLimit,
    requestsProjected: requests.dayProjected,
    quota: parts.quota,
    isWebhookRegistered: settings.webhookUrl ? events.registration.current() !== undefined : undefined,
  };
}
