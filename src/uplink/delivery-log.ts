/**
 * What the uplink says in the log. Each step of a batch is told at debug: a busy uplink takes hundreds of them in a second. Trouble
 * is told once, then whenever it has doubled; what is not worth a line for the night shift is still there, at debug, for
 * whoever follows a batch.
 */
import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import type { Batch, Refusal } from '../buffer/client/lanes.ts';
import type { Outage } from './platform-availability.ts';
import type { Verdict } from './verdict.ts';

/** What every line about a batch carries. */
interface Named {
  readonly name: string;
  readonly asset: number;
}

/** Why nothing is posted. Only where nobody answers for the platform, or it fails itself, is it said to be away. */
const UNAVAILABLE = {
  unavailable: { event: 'uplink.away', message: 'the platform is away: values stay in the buffer' },
  foreign: { event: 'uplink.away', message: "something answers in the platform's place: values stay in the buffer" },
  'signed-out': {
    event: 'uplink.signed_out',
    message: 'there is no session that the platform takes: values stay in the buffer',
  },
  'no-access': {
    event: 'uplink.none_visible',
    message: 'the platform shows this user no asset of those posted: values stay in the buffer',
  },
  refused: {
    event: 'uplink.all_refused',
    message: 'the platform refuses whatever is posted: values stay in the buffer',
  },
  quota: { event: 'uplink.quota', message: 'the quota of API calls is spent: all posts pause' },
};
export type UnavailableWhy = keyof typeof UNAVAILABLE;

/** Why a series waits, how loudly and with what advice. */
const WAITS = {
  refused: {
    event: 'uplink.series_waits',
    message: 'the platform refuses one value of a series after the other: it waits',
    hint: 'See `tagferry buffer quarantine`; mend unit, key or asset in tags.yaml, then `tagferry buffer requeue`.',
  },
  'no-address': {
    event: 'uplink.no_address',
    message: 'a series has no address: it waits',
    hint: 'Name the instrumentation of the tag that lists it in tags.yaml, or mend VALUES_PATH; then reload the service.',
  },
};
export type WaitsWhy = keyof typeof WAITS;

const QUOTA_HINT =
  'Raise the quota of the connect subscription, or wait for its next period; REQUESTS_PER_DAY keeps below it.';

export class DeliveryLog {
  readonly #clock: Clock;
  readonly #log: Logger;
  /** Of posts that were not taken, by asset and for all. */
  readonly #failures = new Repeats();
  /** Of values that are refused. */
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
      'a batch is to be posted',
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
    this.#log.debug(
      { event: 'uplink.posted', batch, asset, ...facts, tookMs: Math.round(tookMs) },
      'a slice of a batch was posted',
    );
  }

  settled({ name: batch, asset }: Named, slice: Batch, post: number): void {
    const facts = { batch, asset, slice: slice.id, post, values: slice.values };
    this.#log.debug({ event: 'uplink.settled', ...facts }, 'values are delivered');
  }

  later({ name: batch, asset }: Named, slice: Batch): void {
    const facts = { batch, asset, slice: slice.id, values: slice.values };
    this.#log.debug({ event: 'uplink.later', ...facts }, 'values wait in the buffer again');
  }

  divided({ name: batch, asset }: Named, slice: Batch, slices: readonly Batch[]): void {
    const facts = { batch, asset, slice: slice.id, into: slices.map(({ id }) => id) };
    this.#log.debug({ event: 'uplink.divided', ...facts }, 'a refused slice was divided');
  }

  /** The slices of a divided batch are the same happening, which what goes to quarantine ends. */
  refused({ name: batch, asset }: Named, slice: Batch, verdict: Verdict, isFirst: boolean): void {
    const count = isFirst ? this.#refusals.note(`refused:${asset}`, this.#clock.monotonicMs()) : undefined;
    const { status, words } = verdict;
    const facts = { batch, asset, slice: slice.id, status, words, values: slice.values, count };
    this.#log[levelOf(count)]({ event: 'uplink.refused', ...facts }, 'the platform refused a post: it is divided');
  }

  /** One wrong unit or asset has many series. */
  quarantined({ name: batch, asset }: Named, slice: Batch, refusal: Refusal): void {
    const { status, message: words } = refusal;
    const count = this.#refusals.note(`quarantined:${asset}:${status}`, this.#clock.monotonicMs());
    const series = slice.series[0]!;
    const facts = { batch, asset, slice: slice.id, series, status, words, count, hint: WAITS.refused.hint };
    const message = 'a value that the platform refuses is in quarantine';
    this.#log[levelOf(count)]({ event: 'uplink.quarantined', ...facts }, message);
  }

  /** One cause, and perhaps thousands of series that share it. */
  seriesWaits({ name: batch, asset }: Named, series: number, refusal: Refusal, why: WaitsWhy): void {
    const { event, message, hint } = WAITS[why];
    const key = why === 'refused' ? `waits:${asset}:${refusal.status}` : 'no_address';
    const count = this.#refusals.note(key, this.#clock.monotonicMs());
    const status = why === 'refused' ? { status: refusal.status } : {};
    const facts = { batch, asset, series, ...status, words: refusal.message, count, hint };
    this.#log[levelOf(count, 'error')]({ event, ...facts }, message);
  }

  seriesBack({ name: batch, asset }: Named, series: readonly number[]): void {
    this.#log.info({ event: 'uplink.series_back', batch, asset, series }, 'a series is taken again');
  }

  sizeLearned({ name: batch }: Named, maxBytes: number): void {
    const count = this.#refusals.note('size', this.#clock.monotonicMs());
    const message = 'a post was too large: posts become smaller';
    this.#log[levelOf(count)]({ event: 'uplink.size_learned', batch, maxBytes, count }, message);
  }

  sizeGrown(maxBytes: number): void {
    this.#log.debug({ event: 'uplink.size_grown', maxBytes }, 'posts become larger again');
  }

  assetPauses({ name: batch, asset }: Named, verdict: Verdict, pauseMs: number): void {
    const { code, words } = verdict;
    const count = this.#failures.note(`asset:${asset}:${code}`, this.#clock.monotonicMs());
    const message = 'a post failed: the asset pauses, the others go on';
    this.#log[levelOf(count)]({ event: 'uplink.asset_pauses', batch, asset, code, words, pauseMs, count }, message);
  }

  /** Its next failure is a first one again. */
  assetBack(asset: number): void {
    this.#failures.end(`asset:${asset}:`);
  }

  rest({ name: batch, asset }: Named, waitMs: number): void {
    const count = this.#failures.note('rest', this.#clock.monotonicMs());
    const message = 'the platform had too many requests: all posts wait';
    this.#log[levelOf(count)]({ event: 'uplink.rest', batch, asset, waitMs, count }, message);
  }

  /** `batch` is what met it, where one did alone. */
  unavailable(outage: Outage, why: UnavailableWhy, batch: string | undefined): void {
    const { code, words, attempts } = outage;
    const nowMs = this.#clock.monotonicMs();
    const count = this.#failures.note(`unavailable:${code}`, nowMs);
    const nextTryMs = Math.max(0, Math.round(outage.nextTryAtMs - nowMs));
    const facts = { batch, code, words, attempts, nextTryMs, count };
    const { event, message } = UNAVAILABLE[why];
    if (why === 'quota') this.#log[levelOf(count, 'error')]({ event, ...facts, hint: QUOTA_HINT }, message);
    else this.#log[levelOf(count)]({ event, ...facts }, message);
  }

  available(ended: Outage): void {
    this.#failures.end('unavailable:');
    const forMs = Math.round(this.#clock.monotonicMs() - ended.sinceMs);
    const { code, attempts } = ended;
    this.#log.info({ event: 'uplink.back', code, attempts, forMs }, 'the platform takes values again');
  }

  storeFailed(error: unknown): void {
    const text = messageOf(error);
    const count = this.#store.note(`store:${text}`, this.#clock.monotonicMs());
    if (count === undefined) return;
    this.#log.error({ event: 'uplink.store_failed', error: text, count }, 'the store did not answer as it should');
  }
}

function levelOf(count: number | undefined, loud: 'warn' | 'error' = 'warn'): 'debug' | 'warn' | 'error' {
  return count === undefined ? 'debug' : loud;
}
