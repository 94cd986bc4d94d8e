import type { Clock } from '../clock.ts';
import type { Logger } from '../logger.ts';
import type { UsageLimits } from './http/usage.ts';
import type { SandboxSeed } from './seed/seed.ts';
import type { TokenOptions } from './tokens/token-store.ts';
import type { SendWebhook } from './webhooks/sender.ts';

/** Everything is optional: `new Sandbox()` is the default plant on a free port of 127.0.0.1. */
export interface SandboxOptions extends TokenOptions {
  clock?: Clock;
  /** Seconds of the sandbox in one second; 1 unless told. */
  speed?: number;
  seed?: SandboxSeed;
  log?: Logger;
  host?: string;
  /** 0, the default: a free one, the same again after `goOffline`. */
  port?: number;
  /** A second address for `/sandbox/…` alone, which stays when the platform's socket is closed; 0 is a free one. */
  adminPort?: number;
  limits?: UsageLimits;
  /** `all`: every value can be read back; `count`: only counts, for runs that take days. */
  values?: 'all' | 'count';
  /** So many values are kept before only counts are; 2,000,000 unless told. */
  mostValues?: number;
  /** `drop`: values that are not valid vanish behind a 204, as on the platform; `refuse`, the default: 400 says what is wrong. */
  invalidValues?: 'refuse' | 'drop';
  /** Tell each value beyond a threshold instead of the crossing alone. */
  everyThresholdValue?: boolean;
  /** Header that must carry the client id beside the bearer token; none unless told. */
  apiKeyHeader?: string;
  /** How long a webhook's receiver may take; 10 s unless told (not shown in the spec). */
  webhookTimeoutMs?: number;
  /** PEM of an authority that webhook receivers may be signed by. */
  webhookCa?: string;
  /** Sends webhooks in place of HTTP: for tests of the schedule. */
  sendWebhook?: SendWebhook;
  /** Settled deliveries remembered; 20,000 unless told. */
  mostDeliveries?: number;
  deliveriesUnder?: 'events' | 'webhook_events';
  /** Of can_permit in v1 permission ids, not shown in spec 2.2: 3 unless told, or 5, 6, 7. */
  canPermitOffset?: number;
  /** Edges of the model graph, which spec 2.2 does not show, as `Node>Asset`; those of `permissions/inheritance.ts` unless told. */
  inheritance?: readonly string[];
  /** An edge device that was seen goes offline after so many milliseconds of the sandbox without a sign of life; 5 minutes unless told, 0 is never (spec 3.4 does not show when). */
  edgeDeviceOfflineAfterMs?: number;
  /** What a v1 endpoint answers after its sunset; 410 unless told (not shown in spec 9). */
  afterSunsetStatus?: number;
  /** Keeps the state here from run to run: read at start, written at stop and every 10 s. */
  stateFile?: string;
}

/** How the platform is away. `refuse`: nobody listens on the port. `drop`: connections break. Or a status for every request. */
export type Outage = 'refuse' | 'drop' | { status: number; retryAfter?: number | string };
