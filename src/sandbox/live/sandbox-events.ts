/**
 * Events in the page's stream by name, declared once for both the sandbox and the page. Times are in milliseconds since
 * 1970 according to the sandbox clock. The stream contains no secrets; for tokens, it contains only fingerprints.
 */
import type { PermissionType } from '../../contract/permissions.ts';
import type { DeliveryStatus } from '../../contract/webhooks.ts';
import type { Fault } from '../faults.ts';
import type { Happened, RequestEntry } from '../http/request-log.ts';
import type { Outage } from '../sandbox-options.ts';

import type { GrantKind } from '../tokens/token-store.ts';
import type { NamedThreshold, Scaling } from '../values/threshold-watch.ts';

/** User IDs by permission. */
export type Allowed = Readonly<Record<PermissionType, readonly number[]>>;

/** Objects and their permissions. */
export interface SiteView {
  users: readonly { id: number; name: string; isTechnical: boolean }[];
  assets: readonly { id: number; serial: string; description: string; allowed: Allowed }[];
  instrumentations: readonly { id: number; tag: string; assets: readonly number[]; allowed: Allowed }[];
  /** Unit symbols by unit code. */
  units: Readonly<Record<string, string>>;
  /** Number of assets and instrumentations that are not shown. */
  unshown: number;
}

/** Summary of a series. */
export interface SeriesLine {
  asset: number;
  key: string;
  received: number;
  last: { timestampMs: number; value: number; unit: string | undefined } | undefined;
}

/** A threshold in a chart. */
export interface ThresholdLine {
  threshold: NamedThreshold;
  /** Conversion from the series unit to the threshold unit; undefined if the units are not convertible. */
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
  /** Number of attempts in the current schedule. */
  attempts: number;
  /** Response to the latest attempt: a status, or the reason why there was no response. */
  lastAnswer: number | string | undefined;
  nextMs: number | undefined;
}

/** The displayed series and its thresholds. */
export interface ChartFrame {
  asset: number;
  key: string;
  thresholds: readonly ThresholdLine[];
}

export interface SandboxEvents {
  /** Sent when the stream is opened. */
  hello: { boot: string; url: string };
  site: SiteView;
  series: readonly SeriesLine[];
  chart: ChartFrame;
  /** Values of the displayed series: first the stored values, then new values. */
  points: { asset: number; key: string; points: readonly (readonly [timestampMs: number, value: number])[] };
  tokens: { lines: readonly TokenLine[]; alive: number };
  webhooks: readonly WebhookLine[];
  deliveries: readonly DeliveryLine[];
  faults: { outage: Outage | null; faults: readonly Fault[] };
  /** Requests in order of completion. */
  requests: readonly RequestEntry[];
  /** Changes that were not made by platform requests, numbered starting at 1. */
  happened: readonly (Happened & { id: number })[];
  /** Sent every second, after all other events. */
  tick: { atMs: number; speed: number; received: number; requests: number };
}
