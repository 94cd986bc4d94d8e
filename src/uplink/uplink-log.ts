/**
 * Writes the uplink's log lines and metrics. Each step of a batch is logged at debug. Failures are logged at warn or
 * error once and then whenever their count has doubled; repetitions are logged at debug.
 */
import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import type { Batch, Refusal } from '../buffer/client/lanes.ts';
import { callErrorOf, type Verdict } from '../platform/response-meanings.ts';
import type { Outage, OutageCause } from './health.ts';

/** Callbacks for metrics. */
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
  /** Called after each outage. */
  restored?(): void;
}

/** Fields common to all log lines about a batch. */
export interface Named {
  /** Name used in log lines. */
  readonly name: string;
  readonly asset: number;
}

/** Only failures of the platform itself use the event `uplink.away`. */
const OUTAGES: Record<OutageCause, { event: string; message: string }> = {
  unavailable: { event: 'uplink.away', message: 'platform unavailable, values stay in the buffer' },
  foreign: { event: 'uplink.away', message: 'response does not come from the platform, values stay in the buffer' },
  'signed-out': { event: 'uplink.signed_out', message: 'no valid session, values stay in the buffer' },
  denied: { event: 'uplink.none_visible', message: 'access to every posted asset denied, values stay in the buffer' },
  rejected: { event: 'uplink.all_refused', message: 'every post rejected, values stay in the buffer' },
  quota: { event: 'uplink.quota', message: 'API call quota used up, all posts paused' },
};
const FAILURES = {
  store: { event: 'uplink.store_failed', message: 'buffer operation failed' },
  // A store failure at shutdown.
  post: { event: 'uplink.post_failed', message: 'POST request failed' },
  plan: { event: 'uplink.plan_failed', message: 'failed to select the next post' },
};
export const QUARANTINE_HINT =
  'Run `tagferry buffer quarantine`, and correct tags.yaml for new values. Quarantined values keep their unit and key: ' +
  'run `tagferry buffer requeue` when the platform accepts these.';

export class UplinkLog {
  readonly hooks: UplinkHooks;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #repeats = new Repeats();
  deliveredValues = 0;
  quarantinedValues = 0;
  /** Wall-clock times, for display. */
  lastPostAtMs: number | undefined;
  lastDeliveredAtMs: number | undefined;
  /** Latest post that was not accepted. */
  lastRefusal: { atMs: number; code: string; reason: string } | undefined;

  constructor(clock: Clock, log: Logger, hooks: UplinkHooks) {
    this.#clock = clock;
    this.#log = log;
    this.hooks = hooks;
  }

  taken(
    batch: Named,
    { id: slice, values, body, series }: Batch,
    as: { lane: string; kind: string; isTrial: boolean },
  ): void {
    const { lane, kind, isTrial } = as;
    const facts = { slice, lane, kind, values, bytes: body.length, series: series.length, trial: isTrial || undefined };
    this.#debug('uplink.taken', batch, facts, 'batch read from the buffer');
  }

  posted(batch: Named, slice: Batch, post: { post: number; startedMs: number }, verdict: Verdict | undefined): void {
    const meaning = verdict?.meaning ?? 'aborted';
    const tookMs = Math.round(this.#clock.monotonicMs() - post.startedMs);
    const facts = { slice: slice.id, post: post.post, values: slice.values, meaning, code: verdict?.code, tookMs };
    this.#debug('uplink.posted', batch, facts, 'batch posted');
    this.hooks.posted?.(meaning);
    if (!verdict || meaning === 'delivered') return;
    this.lastRefusal = { atMs: this.#clock.wallMs(), code: verdict.code, reason: verdict.reason };
  }

  /** `acceptedMs` is the monotonic acceptance time of the oldest live value of the batch. */
  settled(batch: Named, { id: slice, values }: Batch, post: number, acceptedMs: number | undefined): void {
    this.#debug('uplink.settled', batch, { slice, post, values }, 'values delivered');
    this.deliveredValues += values;
    this.lastDeliveredAtMs = this.#clock.wallMs();
    this.hooks.delivered?.(values, acceptedMs === undefined ? undefined : this.#clock.monotonicMs() - acceptedMs);
  }

  divided(batch: Named, { id: slice }: Batch, parts: readonly Batch[]): void {
    const into = parts.map(({ id }) => id);
    this.#debug('uplink.divided', batch, { slice, into }, 'rejected batch split into smaller ones');
  }

  returned(batch: Named, values: number): void {
    this.#debug('uplink.later', batch, { values }, 'values returned to the buffer');
  }

  /** Only the first rejection of a batch is counted. */
  refused(batch: Named, { id: slice, values }: Batch, { status, reason }: Verdict, isFirst: boolean): void {
    const facts = { slice, status, reason, values };
    const message = 'post rejected, splitting it';
    if (isFirst) this.#repeated('uplink.refused', 'warn', `refused:${batch.asset}`, batch, facts, message);
    else this.#debug('uplink.refused', batch, facts, message);
  }

  /** Counts per asset and status, because a wrong unit or asset affects many series. */
  quarantined(batch: Named, { id: slice, series, values }: Batch, { status, message: reason }: Refusal): void {
    this.quarantinedValues += values;
    this.hooks.quarantined?.(String(status), values);
    const facts = { slice, series: series[0], status, reason, hint: QUARANTINE_HINT };
    const key = `quarantined:${batch.asset}:${status}`;
    this.#repeated('uplink.quarantined', 'warn', key, batch, facts, 'rejected value moved to quarantine');
  }

  sizeReduced(batch: Named, maxBytes: number): void {
    this.#repeated('uplink.size_learned', 'warn', 'size', batch, { maxBytes }, 'post too large, post size reduced');
  }

  assetPaused(batch: Named, { code, reason }: Pick<Verdict, 'code' | 'reason'>, pauseMs: number): void {
    const facts = { code, reason, pauseMs: Math.round(pauseMs) };
    const key = `asset:${batch.asset}:${code}`;
    this.#repeated('uplink.asset_pauses', 'warn', key, batch, facts, 'post failed, asset paused');
  }

  /** Resets the failure count of an asset. */
  assetRestored(asset: number): void {
    this.#repeats.end(`asset:${asset}:`);
  }

  rateLimited(batch: Named, waitMs: number): void {
    const facts = { waitMs: Math.round(waitMs) };
    this.#repeated('uplink.rest', 'warn', 'rest', batch, facts, 'rate limited by the platform, all posts paused');
  }

  unavailable(batch: Named, { cause, code, reason, attempts, nextTryAtMs }: Outage): void {
    const nextTryMs = Math.max(0, Math.round(nextTryAtMs - this.#clock.monotonicMs()));
    const facts = { code, reason, attempts, nextTryMs, ...(cause === 'quota' ? { hint: callErrorOf(402).hint } : {}) };
    const { event, message } = OUTAGES[cause];
    const level = cause === 'quota' ? 'error' : 'warn';
    this.#repeated(event, level, `unavailable:${code}`, batch, facts, message);
  }

  restored({ code, attempts, sinceMs }: Outage): void {
    this.#repeats.end('unavailable:');
    const durationMs = Math.round(this.#clock.monotonicMs() - sinceMs);
    this.#log.info({ event: 'uplink.back', code, attempts, durationMs }, 'platform connection restored');
    this.hooks.restored?.();
  }

  failed(what: keyof typeof FAILURES, error: unknown): void {
    const { event, message } = FAILURES[what];
    const text = messageOf(error);
    const count = this.#repeats.note(`${event}:${text}`, this.#clock.monotonicMs());
    if (count !== undefined) this.#log.error({ event, error: text, count }, message);
  }

  intervalChanged(isLengthened: boolean, facts: { intervalMs: number; configuredMs: number }, cause: string): void {
    const fields = { event: isLengthened ? 'uplink.interval_lengthened' : 'uplink.interval_normal', ...facts };
    if (isLengthened) this.#log.warn(fields, `post interval increased: ${cause}`);
    else this.#log.info(fields, 'post interval restored');
  }

  #debug(event: string, { name, asset }: Named, facts: Record<string, unknown>, message: string): void {
    this.#log.debug({ event, batch: name, asset, ...facts }, message);
  }

  #repeated(
    event: string,
    level: 'warn' | 'error',
    key: string,
    { name, asset }: Named,
    facts: Record<string, unknown>,
    message: string,
  ): void {
    const count = this.#repeats.note(key, this.#clock.monotonicMs());
    const fields = { event, batch: name, asset, ...facts, count };
    this.#log[count === undefined ? 'debug' : level](fields, message);
  }
}
