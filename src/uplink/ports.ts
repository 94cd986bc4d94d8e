/** What the uplink needs of other rooms, as narrow as it needs it. */

import type { Addressed, PostAddress } from './post-address.ts';

/** Which assets and series must not be posted to now; implemented by `access/`. */
export interface AccessPort {
  isHeld(asset: number): boolean;
  /** Series whose instrumentation is held. */
  heldSeries(): readonly number[];
  /** Held things whose turn it is to be tried again with one post, longest due first. They stay due until `probed`. */
  dueProbes(nowMonotonicMs: number): readonly Probe[];
  /** When `dueProbes` may next have something more (monotonic). */
  nextProbeAtMs(): number | undefined;
  /** The post of a probe goes out. */
  probed(probe: Probe): void;
  /** It was not answered, or with something that says nothing about access: it is due again. */
  unanswered(probe: Probe): void;
  /**
   * The platform answered 403 or 404. `series` where the post was a probe of these alone; `instrumentation` where the
   * post went to its address, and so says nothing about the asset's others.
   */
  refused(asset: number, status: 403 | 404, series?: readonly number[], instrumentation?: number): Promise<void>;
  /** There is no value to try it with. */
  foundNothing(probe: Probe): Promise<void>;
  /** The platform took a post of something that is held. */
  delivered(asset: number, series: readonly number[]): Promise<void>;
  /** The function it returns takes the listener away. */
  onChange(listener: () => void): () => void;
}

export interface Probe {
  asset: number;
  onlySeries?: readonly number[];
  /** What is tried, where it is a hold: of several probes with the same one, one is enough. */
  hold?: string;
  /** Monotonic. */
  dueSinceMs?: number;
}

/** Where batches are posted; implemented by `PostAddresses`. */
export interface AddressPort {
  /** Values of different instrumentations go to different addresses. */
  readonly byInstrumentation: boolean;
  /** `undefined` where the path names an instrumentation and there is none. */
  of(batch: Addressed): PostAddress | undefined;
}

/** The part of the platform's client that posts need. */
export interface ValuesClient {
  /** Any status is an answer; throws `PlatformError` where there was none. The budget rests after a 429 when the answer is given. */
  request(call: ValuesCall): Promise<ValuesAnswer>;
}

export interface ValuesCall {
  method: 'POST';
  path: string;
  body: Uint8Array;
  headers: Record<string, string>;
  /** The uplink takes from the budget itself, at the last moment. */
  kind: 'paid';
  /** However its body ends, an answer that has a status is one, and its words are bounded. */
  statusSuffices: true;
  /** How long the answer may take. */
  deadlineMs: number;
  signal: AbortSignal;
}

export interface ValuesAnswer {
  status: number;
  header(name: string): string | undefined;
  text: string;
  /** Removes secrets from text of the response that is to be quoted. */
  redact(text: string): string;
  /** Its body did not come whole. */
  truncated?: boolean;
}

/** The part of the request budget that posts need. */
export interface PostBudget {
  readonly isLimited: boolean;
  /** From one request to the next, as it lets them go now; 0 without a limit. */
  readonly intervalMs: number;
  tryTake(kind: 'live' | 'backlog' | 'probe'): boolean;
  nextAtMs(kind: 'live' | 'backlog' | 'probe'): number;
  giveBack(): void;
  /** Monotonic; `undefined` where nobody asked for a rest. */
  readonly restingUntilMs: number | undefined;
  /** A person says that it is over. */
  endRest(): void;
}

/** Called as things happen. */
export interface UplinkHooks {
  posted?(outcome: string): void;
  /** The platform accepted a post. `instrumentation`: where its address names one. */
  accepted?(asset: number, instrumentation: number | undefined): void;
  /** `waitedMs`: since the oldest live value of the batch was accepted; `undefined` for a batch of the backlog alone. */
  delivered?(values: number, waitedMs: number | undefined): void;
  /** `reason` is the status with which the platform refused them. */
  quarantined?(reason: string, values: number): void;
}
