/**
 * The delivery of one batch, from its first post until each value is settled, quarantined or waiting again. The status of
 * a response determines its meaning (`RESPONSES`):
 *
 * - `delivered` (204): the values are settled.
 * - `refused` (400, 413, 422): the batch is split by series, then in half. A value that is rejected alone is set aside,
 *   and posted again after the platform has accepted a later post. After a second rejection, the value is quarantined
 *   with the platform's message. If no post is accepted, the platform may reject everything, and no value is
 *   quarantined.
 * - `rest` (429): the delivery of a split batch continues with the next permit, after the pause. Otherwise, the values
 *   return to the buffer.
 * - `no-access` (403, 404): the asset or instrumentation is held, and the remaining values return to the buffer.
 * - Any other response, or none: the remaining values return to the buffer. The asset pauses, or an outage begins. If a
 *   proxy may have rejected a large body (for example with 504), later posts are smaller.
 *
 * At shutdown, no permit is granted, so the function rejects and the remaining values return. A post in progress is
 * completed unless `aborting` fires. A post that is aborted may have been accepted and is repeated.
 *
 * One part is posted at a time, and the parts of a series in order of acceptance, except for values that were set aside
 * and during a search. Parts after the first one have the priority of the backlog. After a crash, unfinished batches are
 * posted again.
 */
import type { Clock } from '../base/clock.ts';
import { announce } from '../base/crash-points.ts';
import { retryAfterMs } from '../base/retry.ts';
import type { Batch, TakenBatch } from '../buffer/client/lanes.ts';
import type { PlatformCall } from '../platform/client.ts';
import {
  type Meaning,
  mayBeTooLarge,
  type ValuesAnswer,
  type Verdict,
  verdictOfAnswer,
  verdictOfError,
} from '../platform/response-meanings.ts';
import type { Assets } from './assets.ts';
import type { Health, OutageCause, Posted } from './health.ts';
import type { Holds, Probe } from './holds.ts';
import type { Permit, Permits } from './permits.ts';
import type { PostAddress, PostAddresses } from './post-address.ts';
import type { PostLag } from './post-lag.ts';
import type { UplinkLog } from './uplink-log.ts';

/** Part of the platform client that posts require. */
export interface ValuesClient {
  /** Returns a response with any status; throws `PlatformError` if there is none. After a 429, the budget is paused. */
  request(call: PlatformCall & { body: Uint8Array }): Promise<ValuesAnswer>;
}

export interface DeliverParts {
  client: ValuesClient;
  addresses: Pick<PostAddresses, 'of' | 'version'>;
  assets: Assets;
  health: Health;
  holds: Holds;
  lag: PostLag;
  log: UplinkLog;
  permits: Permits;
  clock: Clock;
  options: { readonly success: readonly number[] };
  /** Aborted at shutdown. No more posts may start. */
  stopping: AbortSignal;
  /** Aborted later in a shutdown. Posts in progress must end. */
  aborting: AbortSignal;
}

export interface Delivery {
  /** Name used in log lines. */
  name: string;
  asset: number;
  batch: TakenBatch;
  /** Monotonic acceptance time of the oldest live value of its asset, for batches with live values. */
  acceptedMs: number | undefined;
  /** Set for probes of held objects. */
  probe: Probe | undefined;
  /** Whether this is the trial post of an outage. */
  isTrial: boolean;
  /** Whether to look for an accepted value first, because values of the asset or of all assets are rejected. */
  isSearch: boolean;
}

interface Answered extends Posted {
  verdict: Verdict;
  /** Set if the URL contains it. */
  instrumentation: number | undefined;
}

/** Value that was rejected alone. `since` is the number of the next post at that time. */
interface SetAside {
  part: Batch;
  answered: Answered;
  since: number;
}

/**
 * Delivers a batch. `permit` is for its first post. Rejects if the store fails or the agent stops. Always ends the
 * batch.
 */
export async function deliver(delivery: Delivery, permit: Permit, parts: DeliverParts): Promise<void> {
  const { asset, batch, isTrial, probe } = delivery;
  const { addresses, assets, clock, health, holds, log, permits } = parts;
  const { version } = addresses;
  let waiting: Batch[] = [batch.whole];
  let setAside: SetAside[] = [];
  const postedAgain = new Set<Batch>();
  let unsettled = batch.whole.values;
  let { isSearch } = delivery;
  /** Position of the next part; 0 except during a search. */
  let at = 0;
  let next: Permit | undefined = permit;
  try {
    for (;;) {
      let proven = setAside.filter(({ since }) => health.acceptedSince(since));
      if (waiting.length === 0 && setAside.length > 0 && proven.length === 0) {
        // No post was accepted since then. On a gateway with one active asset, an earlier part of the batch suffices.
        const isSufficient = unsettled < batch.whole.values && health.isAlone(asset);
        if (!isSufficient && !(await isAcceptedElsewhere(setAside.at(-1)!, delivery, parts))) return;
        proven = setAside;
      }
      setAside = setAside.filter((one) => !proven.includes(one));
      for (const { part } of proven) postedAgain.add(part);
      waiting.unshift(...proven.map(({ part }) => part));
      const [part] = waiting.splice(at, 1);
      if (!part) return;
      if (part.values > 1 && part.body.length > assets.maxBytes(asset)) {
        waiting.splice(at, 0, ...(await batch.divide(part)));
        continue;
      }
      next ??= await permits.acquire('backlog');
      const address = addresses.of(part);
      const isRecalled = addresses.version !== version || (health.outage !== undefined && !isTrial);
      if (!address) holds.unaddressed(asset, part.series[0]!);
      if (!address || isRecalled) {
        if (probe) holds.untried(probe);
        return;
      }
      const used = next;
      next = undefined;
      const answered = await post(part, address, delivery, parts);
      used.release();
      if (!answered) return;
      const { verdict } = answered;

      if (verdict.meaning === 'delivered') {
        unsettled -= part.values;
        noteAccepted(part, answered, delivery, parts);
        await batch.settle(part);
        log.settled(delivery, part, answered.post, delivery.acceptedMs);
        isSearch = false;
        at = 0;
      } else if (verdict.meaning === 'refused') {
        log.refused(delivery, part, verdict, part === batch.whole);
        if (isTrial && !isSearch) noteResponded(0, parts);
        if (verdict.status === 413 && part.values > 1) reduceSize(part, delivery, parts);
        if (probe && !isSearch) holds.notDenied(probe);
        const halves = await batch.divide(part);
        if (halves.length > 0) {
          log.divided(delivery, part, halves);
          waiting.splice(at, 0, ...halves);
          // A search prefers the newest values, which are the most likely to be accepted, but tries all of them in time.
          if (isSearch && clock.random() < 0.75) at++;
          continue;
        }
        if (isSearch) {
          if (isTrial) notePostponed(answered, delivery, parts);
          return;
        }
        const series = part.series[0]!;
        const isOther = (one: Batch) => one.series.length > 1 || one.series[0] !== series;
        const refusal = { status: verdict.status, message: verdict.reason };
        if (!postedAgain.has(part)) {
          setAside.push({ part, answered, since: health.nextPost });
          // If too many values are rejected, the rest of the series or asset is not tried.
          const tooMany = holds.countRejection(asset, series);
          if (tooMany) waiting = tooMany === 'asset' ? [] : waiting.filter(isOther);
          continue;
        }
        const held = holds.rejected(asset, series, refusal);
        if (held === 'asset') return;
        if (held === 'series') {
          waiting = waiting.filter(isOther);
          setAside = setAside.filter((one) => isOther(one.part));
        } else {
          unsettled -= 1;
          await batch.quarantine(part, refusal);
          log.quarantined(delivery, part, refusal);
        }
      } else {
        // Do not split the values, because the platform or the link may be at fault rather than the size.
        if (mayBeTooLarge(verdict) && part.values > 1) reduceSize(part, delivery, parts);
        notePostponed(answered, delivery, parts);
        // A whole batch returns, because its asset may have newer values. Probes and trials have their own schedule.
        const isContinued = verdict.meaning === 'rest' && part !== batch.whole && !probe && !isTrial;
        if (!isContinued) return;
        waiting.splice(at, 0, part);
      }
    }
  } finally {
    next?.refund();
    if (unsettled > 0) log.returned(delivery, unsettled);
    await batch.end();
  }
}

/** Waits until a later post of another asset is accepted. Returns false if the platform may reject everything. */
async function isAcceptedElsewhere(
  { answered, since }: SetAside,
  delivery: Delivery,
  parts: DeliverParts,
): Promise<boolean> {
  const { asset } = delivery;
  const { health, stopping } = parts;
  const mayBeAccepted = !health.isAlone(asset) && !health.recordFault(asset, 'rejected');
  if (mayBeAccepted && (await health.isAcceptedSoon(since, stopping))) return true;
  if (!stopping.aborted) notePostponed(answered, delivery, parts);
  return false;
}

/** Posts a part. Returns `undefined` if the agent aborted the post. */
async function post(
  part: Batch,
  { path, instrumentation }: PostAddress,
  delivery: Delivery,
  { client, clock, health, log, options, aborting }: DeliverParts,
): Promise<Answered | undefined> {
  const posted = { post: health.begin(), startedMs: clock.monotonicMs() };
  log.lastPostAtMs = clock.wallMs();
  const { body } = part;
  const deadlineMs = deadlineMsOf(body.length);
  const call = { method: 'POST', path, body, deadlineMs, signal: aborting } as const;
  let verdict: Verdict | undefined;
  try {
    // The request has been acquired from the budget.
    verdict = verdictOfAnswer(await client.request({ ...call, kind: 'paid', statusSuffices: true }), options.success);
    if (verdict.meaning === 'delivered') announce('post.unsettled');
  } catch (error) {
    if (!aborting.aborted) verdict = verdictOfError(error);
  }
  log.posted(delivery, part, posted, verdict);
  return verdict && { ...posted, instrumentation, verdict };
}

/** Returns the response timeout of a post, in milliseconds: 20 s, plus the transmission time at 8 kB/s, up to 90 s. */
function deadlineMsOf(bytes: number): number {
  return Math.min(90_000, 20_000 + bytes / 8);
}

function noteAccepted(
  part: Batch,
  { post, startedMs, instrumentation }: Answered,
  delivery: Delivery,
  parts: DeliverParts,
): void {
  const { assets, health, holds, log } = parts;
  const { asset } = delivery;
  const bytes = part.body.length;
  log.hooks.accepted?.(asset, instrumentation);
  if (assets.accepted(asset, bytes)) log.assetRestored(asset);
  holds.accepted(asset, part.series, startedMs);
  if (health.accepted(asset, post)) noteResponded(bytes, parts);
}

/** Ends the outage. `bytes` is the size of the accepted trial, or 0. */
function noteResponded(bytes: number, { assets, clock, health, holds, lag, log }: DeliverParts): void {
  const ended = health.responded();
  if (!ended) return;
  lag.excuse(clock.monotonicMs());
  assets.restart(bytes);
  // The outage may have caused the holds.
  if (ended.cause === 'denied') holds.tryNow();
  log.restored(ended);
}

/** Responses that cause an outage immediately, without a second asset. */
const AT_ONCE: ReadonlySet<Meaning> = new Set(['quota', 'session', 'unreachable']);
const CAUSES: Partial<Record<Meaning, OutageCause>> = {
  quota: 'quota',
  session: 'signed-out',
  refused: 'rejected',
  'not-understood': 'foreign',
};

/** Records a response that does not settle the values, and pauses or holds the affected asset, series or posts. */
function notePostponed({ verdict, ...posted }: Answered, delivery: Delivery, parts: DeliverParts): void {
  const { assets, clock, health, holds, lag, log, permits } = parts;
  const { asset, isTrial, probe } = delivery;
  const { code, meaning, status } = verdict;
  const askedMs = retryAfterMs(verdict.answer?.header('retry-after'), clock.wallMs()) ?? 0;
  const platformFails = (cause: OutageCause) => {
    const isNew = health.unavailable(cause, { ...posted, ...verdict, askedMs });
    if (isNew) assets.resetFailures();
    if (isNew !== undefined && health.outage) log.unavailable(delivery, health.outage);
  };
  if (probe && meaning !== 'no-access' && meaning !== 'refused') holds.untried(probe);
  if (meaning === 'rest') {
    if (isTrial) noteResponded(0, parts);
    const nowMs = clock.monotonicMs();
    const restMs = permits.restMs(nowMs);
    lag.excuse(nowMs + restMs);
    log.rateLimited(delivery, restMs);
  } else if (meaning === 'no-access') {
    // A denied probe does not indicate an outage, because its object is already held.
    const isPlatformFault = !probe && health.recordFault(asset, 'denied');
    holds.denied(asset, status === 403 ? 403 : 404, { ...posted, probe });
    if (isPlatformFault) platformFails('denied');
    else if (isTrial) noteResponded(0, parts);
  } else {
    const isOutage =
      AT_ONCE.has(meaning) ||
      health.recordFault(asset, meaning === 'refused' ? 'rejected' : 'failed') ||
      health.outage !== undefined;
    if (isOutage) platformFails(code === 'platform.no_session' ? 'signed-out' : (CAUSES[meaning] ?? 'unavailable'));
    else log.assetPaused(delivery, verdict, assets.pause(asset, askedMs));
  }
}

function reduceSize(part: Batch, delivery: Delivery, { assets, clock, log }: DeliverParts): void {
  const { asset } = delivery;
  assets.of(asset).size.tooLarge(part.body.length, clock.monotonicMs());
  log.sizeReduced(delivery, assets.maxBytes(asset));
}
