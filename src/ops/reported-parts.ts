/** Parts of the agent that status and metrics are read from. */
import type { OwnUser } from '../access/access-event.ts';
import type { CertificateInUse } from '../base/certificates.ts';
import type { IdentityConflict } from '../base/identity-conflicts.ts';
import type { SeriesCatalogue } from '../buffer/series.ts';
import type { StoreFacts } from '../buffer/store-facts.ts';
import type { ConfigurationReport } from '../config/configuration-report.ts';
import type { Settings } from '../config/settings.ts';
import type { RequestBudget } from '../platform/request-budget.ts';
import type { Session } from '../platform/session/session.ts';
import type { SilentTarget } from '../reactions/engine/targets.ts';
import type { SourceReport } from '../sources/status.ts';
import type { Holds } from '../uplink/holds.ts';
import type { Uplink } from '../uplink/uplink.ts';
import type { FailingWebhook } from '../webhook/delivery-failures.ts';
import type { WebhookRegistration } from '../webhook/registration.ts';
import type { QuotaReport } from './quota.ts';

export interface ReportedParts {
  version: string;
  startedWallMs: number;
  settings: Settings;
  configuration: ConfigurationReport;
  buffer: ReportedBuffer;
  session: Session;
  budget: RequestBudget;
  uplink: Uplink;
  events: ReportedEvents;
  quota: QuotaReport | undefined;
  /** Sources in tags.yaml. */
  sources: readonly SourceReport[];
  certificates: readonly CertificateInUse[];
  identityConflicts: readonly IdentityConflict[];
}

export interface ReportedBuffer {
  readonly facts: StoreFacts;
  /** Age of the oldest waiting value in milliseconds; 0 if there is none. */
  readonly oldestAgeMs: number;
  readonly catalogue: SeriesCatalogue;
  /** Number of undelivered values, excluding quarantine. */
  readonly bufferedValues: number;
  readonly committer: { readonly waitingValues: number };
  /** Number of corrupt stores and rows since startup. */
  readonly setAside: number;
  /** Reasons why values cannot be accepted, as sentences; empty if they can. */
  readonly problems: readonly string[];
  /** Value of BUFFER_MIN_FREE, in bytes. */
  readonly minFreeBytes: number;
}

interface ReportedEvents {
  readonly holds: Pick<Holds, 'heldCount' | 'list'>;
  lostNodes(): { node: number; since: string }[];
  readonly registration: Pick<WebhookRegistration, 'current' | 'disabledBy' | 'isSecretKnown'>;
  /** Persistent delivery failures that will disable the webhook. */
  readonly failingWebhook: FailingWebhook | undefined;
  /** User whose access events apply; `undefined` if unknown. */
  readonly ownUser: OwnUser | undefined;
  /** Reaction targets that do not respond. */
  readonly silentTargets: readonly SilentTarget[];
  /** Address of the webhook listener; `undefined` if it is disabled. */
  readonly listening: string | undefined;
}
