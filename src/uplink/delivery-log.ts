/**
 * Writes the uplink's log lines. Each step of a batch is logged at debug. Failures are logged at warn or error once and
 * then whenever their count has doubled; repetitions are logged at debug.
 */
import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import type { Batch, Refusal } from '../buffer/client/lanes.ts';
import type { Outage } from './platform-availability.ts';
import type { Verdict } from './verdict.ts';

/** Fields common to all log lines about a batch. */
interface Named {
  readonly name: string;
  readonly asset: number;
}

/** Reasons for an outage. Only failures of the platform itself use the event `uplink.away`. */
const UNAVAILABLE = {
  unavailable: { event: 'uplink.away', message: 'platform unavailable, values stay in the buffer' },
  foreign: { event: 'uplink.away', message: 'response does not come from the platform, values stay in the buffer' },
  'signed-out': {
    event: 'uplink.signed_out',
    message: 'no valid session, values stay in the buffer',
  },
  'no-access': {
    event: 'uplink.none_visible',
    message: 'access to every posted asset denied, values stay in the buffer',
  },
  refused: {
    event: 'uplink.all_refused',
    message: 'every post rejected, values stay in the buffer',
  },
  quota: { event: 'uplink.quota', message: 'API call quota used up, all posts paused' },
};
export type UnavailableWhy = keyof typeof UNAVAILABLE;

/** Reasons why a series is paused. */
const WAITS = {
  refused: {
    event: 'uplink.series_waits',
    message: 'values of a series rejected repeatedly, series paused',
    hint: 'Run `tagferry buffer quarantine`, correct the unit, key or asset in tags.yaml, then run `tagferry buffer requeue`.',
  },
  'no-address': {
    event: 'uplink.no_address',
    message: 'series has no instrumentation, series paused',
    hint: 'Set the instrumentation of the tag in tags.yaml, or correct VALUES_PATH, then reload the service.',
  },
};
export type WaitsWhy = keyof typeof WAITS;

const QUOTA_HINT =
  'Increase the quota of the connect subscription, or wait for its next period. To stay below the quota, set REQUESTS_PER_DAY.';

export class DeliveryLog {
  readonly #clock: Clock;
  readonly #log: Logger;
  /** Failed posts, per asset and overall. */
  readonly #failures = new Repeats();
  /** Rejected values. */
  readonly #refusals = new Repeats();
  readonly #store = new Repeats();

  constructor(clock: Clock, log: Logger) {
    this.#clock = clock;
    this.#log = log;
  }

  taken({ name: batch, asset }: Named, slice: Batch, as: { lane: string; kind: string; trial: boolean }): void {
    const { values, body, series } = slice;
    const facts = { slice: slice.id, lane: as.lane, kind: as.kind, values, bytes: body.length, series: series.length };
    this.#log.debug(
      { event: 'uplink.taken', batch, asset, ...facts, trial: as.trial || undefined },
      'batch read from the buffer',
    );
  }

  posted(
    { name: batch, asset }: Named,
    slice: Batch,
    post: number,
    verdict: Verdict | undefined,
    tookMs: number,
  ): void {
    const { values } = slice;
    const facts = { slice: slice.id, post, values, meaning: verdict?.meaning ?? 'aborted', code: verdict?.code };
    this.#log.debug({ event: 'uplink.posted', batch, asset, ...facts, tookMs: Math.round(tookMs) }, 'batch posted');
  }

  settled({ name: batch, asset }: Named, slice: Batch, post: number): void {
    const facts = { batch, asset, slice: slice.id, post, values: slice.values };
    this.#log.debug({ event: 'uplink.settled', ...facts }, 'values delivered');
  }

  later({ name: batch, asset }: Named, slice: Batch): void {
    const facts = { batch, asset, slice: slice.id, values: slice.values };
    this.#log.debug({ event: 'uplink.later', ...facts }, 'values returned to the buffer');
  }

  divided({ name: batch, asset }: Named, slice: Batch, slices: readonly Batch[]): void {
    const facts = { batch, asset, slice: slice.id, into: slices.map(({ id }) => id) };
    this.#log.debug({ event: 'uplink.divided', ...facts }, 'rejected batch split into smaller ones');
  }

  /** Only the first rejection of a divided batch is counted. */
  refused({ name: batch, asset }: Named, slice: Batch, verdict: Verdict, isFirst: boolean): void {
    const count = isFirst ? this.#refusals.note(`refused:${asset}`, this.#clock.monotonicMs()) : undefined;
    const { status, reason } = verdict;
    const facts = { batch, asset, slice: slice.id, status, reason, values: slice.values, count };
    this.#log[levelOf(count)]({ event: 'uplink.refused', ...facts }, 'post rejected, splitting it');
  }

  /** Counts per asset and status, because a wrong unit or asset affects many series. */
  quarantined({ name: batch, asset }: Named, slice: Batch, refusal: Refusal): void {
    const { status, message: reason } = refusal;
    const count = this.#refusals.note(`quarantined:${asset}:${status}`, this.#clock.monotonicMs());
    const series = slice.series[0]!;
    const facts = { batch, asset, slice: slice.id, series, status, reason, count, hint: WAITS.refused.hint };
    const message = 'rejected value moved to quarantine';
    this.#log[levelOf(count)]({ event: 'uplink.quarantined', ...facts }, message);
  }

  /** Counts per cause, because one cause may affect thousands of series. */
  seriesWaits({ name: batch, asset }: Named, series: number, refusal: Refusal, why: WaitsWhy): void {
    const { event, message, hint } = WAITS[why];
    const key = why === 'refused' ? `waits:${asset}:${refusal.status}` : 'no_address';
    const count = this.#refusals.note(key, this.#clock.monotonicMs());
    const status = why === 'refused' ? { status: refusal.status } : {};
    const facts = { batch, asset, series, ...status, reason: refusal.message, count, hint };
    this.#log[levelOf(count, 'error')]({ event, ...facts }, message);
  }

  seriesRestored({ name: batch, asset }: Named, series: readonly number[]): void {
    this.#log.info({ event: 'uplink.series_back', batch, asset, series }, 'series accepted again');
  }

  sizeLearned({ name: batch }: Named, maxBytes: number): void {
    const count = this.#refusals.note('size', this.#clock.monotonicMs());
    const message = 'post too large, post size reduced';
    this.#log[levelOf(count)]({ event: 'uplink.size_learned', batch, maxBytes, count }, message);
  }

  assetPauses({ name: batch, asset }: Named, verdict: Verdict, pauseMs: number): void {
    const { code, reason } = verdict;
    const count = this.#failures.note(`asset:${asset}:${code}`, this.#clock.monotonicMs());
    const message = 'post failed, asset paused';
    this.#log[levelOf(count)]({ event: 'uplink.asset_pauses', batch, asset, code, reason, pauseMs, count }, message);
  }

  /** Resets the failure count of an asset. */
  assetRestored(asset: number): void {
    this.#failures.end(`asset:${asset}:`);
  }

  rest({ name: batch, asset }: Named, waitMs: number): void {
    const count = this.#failures.note('rest', this.#clock.monotonicMs());
    const message = 'rate limited by the platform, all posts paused';
    this.#log[levelOf(count)]({ event: 'uplink.rest', batch, asset, waitMs, count }, message);
  }

  /** `batch` is the batch that detected the outage, if a single batch did. */
  unavailable(outage: Outage, why: UnavailableWhy, batch: string | undefined): void {
    const { code, reason, attempts } = outage;
    const nowMs = this.#clock.monotonicMs();
    const count = this.#failures.note(`unavailable:${code}`, nowMs);
    const nextTryMs = Math.max(0, Math.round(outage.nextTryAtMs - nowMs));
    const facts = { batch, code, reason, attempts, nextTryMs, count };
    const { event, message } = UNAVAILABLE[why];
    if (why === 'quota') this.#log[levelOf(count, 'error')]({ event, ...facts, hint: QUOTA_HINT }, message);
    else this.#log[levelOf(count)]({ event, ...facts }, message);
  }

  available(ended: Outage): void {
    this.#failures.end('unavailable:');
    const durationMs = Math.round(this.#clock.monotonicMs() - ended.sinceMs);
    const { code, attempts } = ended;
    this.#log.info({ event: 'uplink.back', code, attempts, durationMs }, 'platform connection restored');
  }

  storeFailed(error: unknown): void {
    const text = messageOf(error);
    const count = this.#store.note(`store:${text}`, this.#clock.monotonicMs());
    if (count === undefined) return;
    this.#log.error({ event: 'uplink.store_failed', error: text, count }, 'buffer operation failed');
  }
}

function levelOf(count: number | undefined, loud: 'warn' | 'error' = 'warn'): 'debug' | 'warn' | 'error' {
  return count === undefined ? 'debug' : loud;
}
