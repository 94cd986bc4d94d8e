import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';
import type { UsageLimits } from './http/usage.ts';
import type { SandboxSeed } from './seed/seed.ts';
import type { StrictRule } from './strictness.ts';
import type { TokenOptions } from './tokens/token-store.ts';
import type { SendWebhook } from './webhooks/sender.ts';

/** All members are optional: `new Sandbox()` uses the default site and a free port on 127.0.0.1. */
export interface SandboxOptions extends TokenOptions {
  clock?: Clock;
  /** Speed of the clock. Default: 1. */
  speed?: number;
  seed?: SandboxSeed;
  log?: Logger;
  host?: string;
  /** Listening port. Default: 0, which selects a free port. The port does not change after `goOffline`. */
  port?: number;
  /** Separate port for `/sandbox/…`, which stays open during an outage; 0 selects a free port. */
  adminPort?: number;
  /** Separate port for {web_url}, the identity application; 0 selects a free port. */
  identityPort?: number;
  /** Start time of the clock, in milliseconds since 1970. Default: the machine's current time. */
  nowMs?: number;
  limits?: UsageLimits;
  /** `all` stores every value; `count` stores only counts, for long runs. */
  values?: 'all' | 'count';
  /** Maximum number of values to store. If it is exceeded, only counts are stored. Default: 2,000,000. */
  maxValues?: number;
  /**
   * `drop`: respond 204 and discard invalid values, as the platform does. `refuse` (default): respond 400 with the
   * reason.
   */
  invalidValues?: 'refuse' | 'drop';
  /** Name of the header that must contain the client ID in addition to the bearer token. Default: none. */
  apiKeyHeader?: string;
  /** Timeout for responses of webhook receivers. Default: 10 s (not shown in the specification). */
  webhookTimeoutMs?: number;
  /** PEM certificate of the authority that issued the certificates of webhook receivers. */
  webhookCa?: string;
  /** Replaces sending over HTTP, for tests of the delivery schedule. */
  sendWebhook?: SendWebhook;
  /** Maximum number of settled deliveries to retain. Default: 20,000. */
  maxDeliveries?: number;
  /** Strict rules to apply, which reject requests that some existing clients send. Default: none. */
  strict?: readonly StrictRule[];
}

/** Kind of outage: a closed socket (`refuse`), closed connections (`drop`), or a status for every request. */
export type Outage = 'refuse' | 'drop' | { status: number; retryAfter?: number | string };
