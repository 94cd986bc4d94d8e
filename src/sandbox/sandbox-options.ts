import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';
import type { EventTimes } from './events/event-time.ts';
import type { UsageLimits } from './http/usage.ts';
import type { SandboxSeed } from './seed/seed.ts';
import type { StrictRule } from './strictness.ts';
import type { TokenOptions } from './tokens/token-store.ts';
import type { SendWebhook } from './webhooks/sender.ts';

/** Everything is optional: `new Sandbox()` is the default site on a free port of 127.0.0.1. */
export interface SandboxOptions extends TokenOptions {
  clock?: Clock;
  /** Seconds of the sandbox in one second; 1 unless given. */
  speed?: number;
  seed?: SandboxSeed;
  log?: Logger;
  host?: string;
  /** 0, the default: a free one, the same again after `goOffline`. */
  port?: number;
  /** A second address for `/sandbox/…` alone, which stays when the platform's socket is closed; 0 is a free one. */
  adminPort?: number;
  /** {web_url} as an address of its own: the identity application answers there alone, and {base_url} has none of it; 0 is a free port. */
  identityPort?: number;
  /** The sandbox's clock at the start, milliseconds since 1970; the machine's unless given. */
  nowMs?: number;
  /** Origins of web pages that may call (CORS), or `*`; none unless given. */
  corsOrigin?: string;
  /** How events write when they occurred: platform 6.2 has it with or without offset. `Z` unless given. */
  eventTimes?: EventTimes;
  limits?: UsageLimits;
  /** `all`: every value can be read back; `count`: only counts, for runs that take days. */
  values?: 'all' | 'count';
  /** So many values are kept before only counts are; 2,000,000 unless given. */
  maxValues?: number;
  /** `drop`: values that are not valid vanish behind a 204, as on the platform; `refuse`, the default: 400 says what is wrong. */
  invalidValues?: 'refuse' | 'drop';
  /** Tell each value beyond a threshold instead of the crossing alone. */
  everyThresholdValue?: boolean;
  /** Header that must carry the client id beside the bearer token; none unless given. */
  apiKeyHeader?: string;
  /** How long a webhook's receiver may take; 10 s unless given (not shown in the spec). */
  webhookTimeoutMs?: number;
  /** PEM of an authority that webhook receivers may be signed by. */
  webhookCa?: string;
  /** Sends webhooks in place of HTTP: for tests of the schedule. */
  sendWebhook?: SendWebhook;
  /** Settled deliveries remembered; 20,000 unless given. */
  maxDeliveries?: number;
  deliveriesUnder?: 'events' | 'webhook_events';
  /** Offset of can_permit in v1 permission ids, which platform 2.2 does not show. Default: 3. Any whole number that no other type has. */
  canPermitOffset?: number;
  /** Edges of the model graph, which platform 2.2 does not show, as `Node>Asset`; those of `permissions/inheritance.ts` unless given. */
  inheritance?: readonly string[];
  /** An edge device that was seen goes offline after so many milliseconds of the sandbox without a sign of life; 5 minutes unless given, 0 is never (platform 3.4 does not show when). */
  edgeDeviceOfflineAfterMs?: number;
  /** What a v1 endpoint answers after its sunset; 410 unless given (not shown in platform 9). */
  afterSunsetStatus?: number;
  /** What is refused that clients in the field send and the letter of the spec does not name; none unless given. */
  strict?: readonly StrictRule[];
  /** Keeps the state here from run to run: read at start, written at stop and every 10 s. */
  stateFile?: string;
}

/** How the platform is away. `refuse`: nobody listens on the port. `drop`: connections break. Or a status for every request. */
export type Outage = 'refuse' | 'drop' | { status: number; retryAfter?: number | string };
