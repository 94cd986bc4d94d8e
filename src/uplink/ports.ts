/** What the uplink needs of other rooms, as narrow as it needs it. */

/** Which assets and series must not be posted to now; implemented by `access/`. */
export interface AccessPort {
  isHeld(asset: number): boolean;
  /** Series whose instrumentation is held. */
  heldSeries(): readonly number[];
  /** Held things whose turn it is to be tried again with one post. */
  dueProbes(nowMonotonicMs: number): readonly Probe[];
  /** The platform answered 403 or 404. `series` where the post was a probe of these alone. */
  refused(asset: number, status: 403 | 404, series?: readonly number[]): Promise<void>;
  /** The platform took a post of something that is held. */
  delivered(asset: number, series: readonly number[]): Promise<void>;
  /** The function it returns takes the listener away. */
  onChange(listener: () => void): () => void;
}

export interface Probe {
  asset: number;
  onlySeries?: readonly number[];
}

/** The part of the platform's client that posts need. */
export interface ValuesClient {
  /** Any status is an answer; throws `PlatformError` where there was none. */
  request(call: ValuesCall): Promise<ValuesAnswer>;
}

export interface ValuesCall {
  method: 'POST';
  path: string;
  body: Uint8Array;
  headers: Record<string, string>;
  /** The uplink takes from the budget itself, at the last moment. */
  kind: 'paid';
  signal: AbortSignal;
}

export interface ValuesAnswer {
  status: number;
  header(name: string): string | undefined;
  text: string;
}

/** The part of the request budget that posts need. */
export interface PostBudget {
  readonly isLimited: boolean;
  tryTake(kind: 'live' | 'backlog' | 'probe'): boolean;
  nextAtMs(kind: 'live' | 'backlog' | 'probe'): number;
  giveBack(): void;
  restUntil(monotonicMs: number): void;
}

/** Called as things happen: for metrics. */
export interface UplinkHooks {
  posted?(outcome: string): void;
  delivered?(values: number): void;
  /** `reason` is the status with which the platform refused them. */
  quarantined?(reason: string, values: number): void;
}
