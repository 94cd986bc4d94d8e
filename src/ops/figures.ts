import type { CertificateInUse } from '../base/certificates.ts';
import type { IdentityConflict } from '../base/identity-conflicts.ts';
import type { ConfigurationReport } from '../config/configuration-report.ts';
import type { Settings } from '../config/settings.ts';
import type { RequestBudget } from '../platform/request-budget.ts';
import type { Session } from '../platform/session/session.ts';
import type { SessionSnapshot } from '../platform/session/session-snapshot.ts';
import type { SourceReport } from '../sources/source-report.ts';
import type { Uplink } from '../uplink/uplink.ts';
import type { QuotaReport } from './quota.ts';
import type { ShownBuffer, ShownEvents } from './shown-parts.ts';

/**
 * The agent's metrics, by the names of docs/interface.md; docs/metrics.md lists them, and a test compares. These are what the gauges
 * show, read when somebody asks. What is not known, or not configured, is left out.
 */
export interface MetricFigures {
  version: string;
  /** Wall clock. */
  startedSeconds: number;
  /** Wall clock; 0 while the files are in force. */
  filesRefusedSinceSeconds: number;
  configuration: ConfigurationReport;
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
  unavailableSeconds: number;
  postIntervalSeconds: number;
  seriesWaiting: number;
  /** Requests a minute that were found to be this gateway's; 0 is no limit. */
  requestsShare: number;
  requestsShareReason: string;
  requestsToday: number;
  /** 0 is no limit. */
  requestsPerDay: number;
  requestsProjected: number | undefined;
  quota: QuotaReport | undefined;
  /** Of tags.yaml. */
  sources: readonly SourceReport[];
  certificates: readonly CertificateInUse[];
  identityConflicts: readonly IdentityConflict[];
  /** `undefined` where no webhook is to be registered. */
  isWebhookRegistered: boolean | undefined;
  isWebhookDisabled: boolean;
  /** Days until the platform disables the webhook because deliveries keep failing; `undefined` while they do not. */
  webhookDaysLeft: number | undefined;
  silentTargets: ShownEvents['silentTargets'];
}

export interface FiguresParts {
  version: string;
  startedWallMs: number;
  settings: Settings;
  /** Wall clock; 0 where the files are in force. */
  filesRefusedSinceSeconds: number;
  configuration: ConfigurationReport;
  buffer: ShownBuffer;
  session: Session;
  budget: RequestBudget;
  uplink: Uplink;
  events: ShownEvents;
  quota: QuotaReport | undefined;
  sources: readonly SourceReport[];
  certificates: readonly CertificateInUse[];
  identityConflicts: readonly IdentityConflict[];
}

/** What a scrape of `/metrics` reads beside the counters. */
export function metricFigures(parts: FiguresParts): MetricFigures {
  const { buffer, events, settings } = parts;
  const { disk, quarantined } = buffer.facts;
  const uplink = parts.uplink.snapshot();
  const requests = parts.budget.stats();
  return {
    version: parts.version,
    startedSeconds: parts.startedWallMs / 1000,
    filesRefusedSinceSeconds: parts.filesRefusedSinceSeconds,
    configuration: parts.configuration,
    bufferValues: buffer.bufferedValues,
    bufferBytes: disk.bytes,
    bufferMaxBytes: settings.bufferMaxBytes,
    freeBytes: disk.freeBytes,
    minFreeBytes: buffer.minFreeBytes,
    oldestAgeSeconds: buffer.oldestAgeMs / 1000,
    quarantined,
    waitingCommit: buffer.committer.waitingValues,
    setAside: buffer.setAside,
    isRefusing: buffer.problems.length > 0,
    assetsHeld: events.holds.heldCount(),
    session: parts.session.snapshot(),
    unavailableSeconds: (uplink.outage?.forMs ?? 0) / 1000,
    postIntervalSeconds: uplink.intervalMs / 1000,
    seriesWaiting: uplink.waitingIds.length,
    requestsShare: requests.share,
    requestsShareReason: requests.shareReason,
    requestsToday: requests.dayUsed,
    requestsPerDay: requests.dayLimit,
    requestsProjected: requests.dayProjected,
    quota: parts.quota,
    sources: parts.sources,
    certificates: parts.certificates,
    identityConflicts: parts.identityConflicts,
    isWebhookRegistered: settings.webhookUrl ? events.registration.current() !== undefined : undefined,
    webhookDaysLeft: events.failingWebhook?.daysLeft,
    isWebhookDisabled: events.registration.disabledBy !== undefined,
    silentTargets: events.silentTargets,
  };
}
