/** Interfaces that the uplink requires from other modules. */

import type { Addressed, PostAddress } from './post-address.ts';

/** Held assets and series; implemented by `access/`. */
export interface AccessPort {
  isHeld(asset: number): boolean;
  /** Series whose instrumentation is held. */
  heldSeries(): readonly number[];
  /** Returns the due probes of held objects, longest due first. They remain due until `probed` is called. */
  dueProbes(nowMonotonicMs: number): readonly Probe[];
  /** Monotonic time at which `dueProbes` may return more probes, in milliseconds. */
  nextProbeAtMs(): number | undefined;
  /** Records that the post of a probe is being sent. */
  probed(probe: Probe): void;
  /** Makes a probe due again after its post received no response, or a response unrelated to access. */
  unanswered(probe: Probe): void;
  /**
   * Records a 403 or 404 response. `series` is set if the post was a probe of these series only. `instrumentation` is
   * set if the post URL contains it; the response then does not concern other instrumentations of the asset.
   */
  refused(asset: number, status: 403 | 404, series?: readonly number[], instrumentation?: number): Promise<void>;
  /** Records that a probe found no values. */
  foundNothing(probe: Probe): Promise<void>;
  /** Records an accepted post of a held object. */
  delivered(asset: number, series: readonly number[]): Promise<void>;
  /** Returns a function that removes the listener. */
  onChange(listener: () => void): () => void;
}

export interface Probe {
  asset: number;
  onlySeries?: readonly number[];
  /** Key of the probed hold. If several probes have the same key, one is sufficient. */
  hold?: number;
  /** Monotonic time, in milliseconds. */
  dueSinceMs?: number;
}

export interface DueProbe extends Probe {
  maxValues: number;
}

/** URLs to which batches are posted; implemented by `PostAddresses`. */
export interface AddressPort {
  /** Whether values of different instrumentations are posted to different URLs. */
  readonly byInstrumentation: boolean;
  /** Returns `undefined` if the path requires an instrumentation and the series has none. */
  of(batch: Addressed): PostAddress | undefined;
}

/** Part of the platform client that posts require. */
export interface ValuesClient {
  /**
   * Returns a response with any status; throws `PlatformError` if there is none. After a 429, the budget is paused
   * before the response is returned.
   */
  request(call: ValuesCall): Promise<ValuesAnswer>;
}

export interface ValuesCall {
  method: 'POST';
  path: string;
  body: Uint8Array;
  headers: Record<string, string>;
  /** The uplink has acquired the request from the budget. */
  kind: 'paid';
  /**
   * A response counts once its status has arrived, even if its body is incomplete. The response text is limited in
   * length.
   */
  statusSuffices: true;
  /** Timeout of the whole call, in milliseconds. */
  deadlineMs: number;
  signal: AbortSignal;
}

export interface ValuesAnswer {
  status: number;
  header(name: string): string | undefined;
  text: string;
  /** Removes secrets from response text that is quoted. */
  redact(text: string): string;
  /** Whether the body is incomplete. */
  truncated?: boolean;
}

/** Part of the request budget that posts require. */
export interface PostBudget {
  readonly isLimited: boolean;
  /** Current interval between requests, in milliseconds; 0 means no limit. */
  readonly intervalMs: number;
  tryAcquire(kind: 'live' | 'backlog' | 'probe'): boolean;
  nextAtMs(kind: 'live' | 'backlog' | 'probe'): number;
  refund(): void;
  /** Monotonic end of a pause after a 429, in milliseconds; `undefined` if there is none. */
  readonly restingUntilMs: number | undefined;
  /** Ends a pause at an operator's request. */
  endRest(): void;
}

/** Callbacks for metrics and logs. */
export interface UplinkHooks {
  posted?(outcome: string): void;
  /** Called after an accepted post. `instrumentation` is set if the post URL contains it. */
  accepted?(asset: number, instrumentation: number | undefined): void;
  /**
   * `waitedMs` is the time since the oldest live value of the batch was accepted; `undefined` for batches that contain
   * only backlog values.
   */
  delivered?(values: number, waitedMs: number | undefined): void;
  /** `reason` is the status with which the platform rejected the values. */
  quarantined?(reason: string, values: number): void;
}
