/**
 * What the stream of the sandbox's page carries, by the name of the event: the one declaration for the sandbox, which writes it, and for the
 * page, which reads it. Times are milliseconds since 1970 by the sandbox's clock. No secrets, and of tokens their fingerprints alone.
 */
import type { PermissionType } from '../../contract/permissions.ts';
import type { DeliveryStatus } from '../../contract/webhooks.ts';
import type { Fault } from '../faults.ts';
import type { RequestEntry } from '../http/request-entry.ts';
import type { Happened } from '../http/request-log.ts';
import type { Outage } from '../sandbox-options.ts';
import type { Threshold } from '../site/records.ts';
import type { GrantKind } from '../tokens/token-store.ts';
import type { Scaling } from '../values/threshold-watch.ts';

/** Which users have each permission, by id. */
export type Allowed = Readonly<Record<PermissionType, readonly number[]>>;

/** What there is and who may do what with it. */
export interface SiteView {
  users: readonly { id: number; name: string; isTechnical: boolean }[];
  assets: readonly { id: number; serial: string; description: string; allowed: Allowed }[];
  instrumentations: readonly { id: number; tag: string; assets: readonly number[]; allowed: Allowed }[];
  /** Symbols of units by their codes. */
  units: Readonly<Record<string, string>>;
  /** Assets and instrumentations beyond what a page can show. */
  unshown: number;
}

/** The values of a key of an asset, as far as a list shows them. */
export interface SeriesLine {
  asset: number;
  key: string;
  received: number;
  last: { timestampMs: number; value: number; unit: string | undefined } | undefined;
}

/** A threshold in a chart. */
export interface ThresholdLine {
  threshold: Threshold;
  /** From a value of the series to one in the threshold's unit; `undefined`: the units cannot be turned into one another. */
  scaling: Scaling | undefined;
}

interface TokenLine {
  fingerprint: string;
  user: string;
  grant: GrantKind;
  expiresMs: number;
}

export interface WebhookLine {
  id: number;
  url: string;
  eventTypes: readonly string[];
  isDisabled: boolean;
}

export interface DeliveryLine {
  id: number;
  webhook: number;
  eventType: string;
  createdMs: number;
  status: DeliveryStatus;
  /** Tries of the schedule under way. */
  attempts: number;
  /** What the last try was answered: a status, or why there was none. */
  lastAnswer: number | string | undefined;
  nextMs: number | undefined;
}

/** A series whose chart is looked at, and its thresholds. */
export interface ChartFrame {
  asset: number;
  key: string;
  thresholds: readonly ThresholdLine[];
}

export interface SandboxEvents {
  /** First of all, at each beginning. */
  hello: { boot: string; url: string };
  site: SiteView;
  series: readonly SeriesLine[];
  chart: ChartFrame;
  /** Values of the series whose chart is looked at: those there are, then those that come. */
  points: { asset: number; key: string; points: readonly (readonly [timestampMs: number, value: number])[] };
  tokens: { lines: readonly TokenLine[]; alive: number };
  webhooks: readonly WebhookLine[];
  deliveries: readonly DeliveryLine[];
  faults: { outage: Outage | null; faults: readonly Fault[] };
  /** In the order in which they ended. */
  requests: readonly RequestEntry[];
  /** What was done behind the scenes, numbered from 1. */
  happened: readonly (Happened & { id: number })[];
  /** Each second, last of what is new. */
  tick: { atMs: number; speed: number; received: number; requests: number };
}
