import type { EventType } from '../../contract/events.ts';
import type { SiteChanges } from '../events/site-changes.ts';
import type { ClientExam } from '../exam/client-exam.ts';
import type { DrillScope } from '../exam/drill.ts';
import type { Faults } from '../faults.ts';
import type { RequestLog } from '../http/request-log.ts';
import type { Usage } from '../http/usage.ts';
import type { InheritanceRule, PermitableRef } from '../permissions/inheritance.ts';
import type { PermissionAdminOptions } from '../permissions/permission-admin.ts';
import type { PermissionRegistry } from '../permissions/permission-registry.ts';
import type { Expectation } from '../requests/expectation.ts';
import type { WholeRequest } from '../requests/whole-request.ts';
import type { SandboxClock } from '../sandbox-clock.ts';
import type { Outage } from '../sandbox-options.ts';
import type { Notice, User } from '../site/records.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { TokenStore } from '../tokens/token-store.ts';
import type { NewThreshold, ThresholdWatch } from '../values/threshold-watch.ts';
import type { ValueLedger } from '../values/value-ledger.ts';
import type { PostedSeries } from '../values/values-body.ts';
import type { WebhookFaults } from '../webhooks/webhook-faults.ts';
import type { Delivery, WebhookRecord } from '../webhooks/webhook-registry.ts';

/** What stands behind the service, as `/sandbox/…`, the causes and the keyboard reach it. `Sandbox` is one. */
export interface Stage {
  readonly url: string;
  readonly adminUrl: string;
  readonly clock: SandboxClock;
  readonly site: SiteModel;
  readonly changes: SiteChanges;
  readonly permissions: PermissionRegistry;
  readonly inheritance: readonly InheritanceRule[];
  readonly values: ValueLedger;
  readonly thresholds: ThresholdWatch;
  readonly tokens: TokenStore;
  readonly faults: Faults;
  readonly webhookFaults: WebhookFaults;
  readonly usage: Usage;
  readonly requests: RequestLog;
  readonly notices: readonly Notice[];
  readonly outage: Outage | undefined;
  goOffline(how?: Outage): Promise<void>;
  goOnline(): Promise<void>;
  later(delayMs: number, act: () => Promise<void>): void;
  user(who?: number | string): User;
  grantPermission(on: PermitableRef, options?: PermissionAdminOptions): void;
  takePermission(on: PermitableRef, options?: PermissionAdminOptions & { direct?: boolean }): void;
  setThreshold(wanted: NewThreshold): number;
  removeThreshold(id: number): boolean;
  /** Values as if they had been posted. */
  takeValues(asset: number, posted: readonly PostedSeries[]): void;
  webhooks(): readonly WebhookRecord[];
  expectRequests(expectation: Expectation): Promise<WholeRequest[]>;
  readonly clientExam: ClientExam;
  provokeClient(scope: Partial<DrillScope>, onStep: (what: string) => void): Promise<string[]>;
  deliveries(webhook?: number): readonly Delivery[];
  resend(ids: readonly number[]): number;
  /** Deliveries of a type since the start. */
  deliveriesOf(type: EventType): number;
  /** Says in the request log what happened behind the scenes. */
  report(sentence: string): void;
}
