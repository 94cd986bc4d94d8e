/**
 * What follows from a post that was not taken: the asset pauses, everybody rests, the asset is held, or the platform is
 * away and everything that waits in divided batches goes back to its place.
 */
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import { restAfterMs } from '../platform/platform-clock.ts';
import type { AssetSchedule } from './asset-schedule.ts';
import type { BatchDelivery } from './batch-delivery.ts';
import type { FaultAttribution } from './fault-attribution.ts';
import type { Failure, PlatformAvailability } from './platform-availability.ts';
import type { AccessPort, PostBudget } from './ports.ts';
import { askedWaitMs } from './post.ts';
import type { Probes } from './probes.ts';
import type { Verdict } from './verdict.ts';

export interface FailuresParts {
  budget: PostBudget;
  access: AccessPort;
  clock: Clock;
  log: Logger;
  availability: PlatformAvailability;
  faults: FaultAttribution;
  schedule: AssetSchedule;
  probes: Probes;
  /** An outage ended. */
  back(): void;
  /** The platform went away. */
  abandonAll(): void;
  logStore(error: unknown): void;
}

/** Why nothing is posted. Only where nobody answers for the platform, or it fails itself, is it said to be away. */
const SAID = {
  away: 'the platform is away: values stay in the buffer',
  foreign: "something answers in the platform's place: values stay in the buffer",
  'signed-out': 'there is no session that the platform takes: values stay in the buffer',
  'no-access': 'the platform shows this user no asset of those posted: values stay in the buffer',
  refused: 'the platform refuses whatever is posted: values stay in the buffer',
};
const QUOTA_HINT =
  'Raise the quota of the connect subscription, or wait for its next period; REQUESTS_PER_DAY keeps below it.';

/** A post as it went out. */
export interface Posted {
  /** Its number. */
  post: number;
  startedMs: number;
  /** Where it went to the address of one. */
  instrumentation?: number | undefined;
}

export class Failures {
  readonly #parts: FailuresParts;
  readonly #repeats = new Repeats();
  /** When the outage began, in the order of posts. */
  #outageAt = -1;

  constructor(parts: FailuresParts) {
    this.#parts = parts;
  }

  async met(delivery: BatchDelivery, verdict: Verdict, posted: Posted): Promise<void> {
    const { post, startedMs } = posted;
    const { budget, clock, availability, faults } = this.#parts;
    switch (verdict.meaning) {
      case 'unreachable':
        budget.giveBack();
        return this.#away(verdict, post, startedMs, { batch: delivery.name, why: whyUnreachable(verdict) });
      case 'session':
        return this.#away(verdict, post, startedMs, { batch: delivery.name, why: 'signed-out' });
      case 'quota':
        return this.#away(verdict, post, startedMs, { batch: delivery.name, quota: true });
      case 'rest':
        if (delivery.trial) this.online();
        return this.#rest(delivery, verdict);
      case 'no-access':
        return this.#noAccess(delivery, verdict, posted);
      default: {
        faults.met('later', delivery.asset);
        const minMs = askedWaitMs(verdict, clock);
        const isPlatform = availability.outage !== undefined || faults.isPlatform('later', clock.monotonicMs());
        const isForeign = verdict.meaning === 'not-understood';
        const why = isForeign ? 'foreign' : 'away';
        if (isPlatform) this.#away({ ...verdict, isForeign }, post, startedMs, { batch: delivery.name, minMs, why });
        else this.#pause(delivery, verdict, minMs);
      }
    }
  }

  /** A post of the asset was taken. */
  over(asset: number, post: number): void {
    this.#parts.probes.retrySoon.delete(asset);
    if (this.#parts.schedule.succeed(asset)) this.#repeats.end(`asset:${asset}:`);
    if (post > this.#outageAt) this.online();
  }

  /** Whatever is posted is refused. */
  refusedByAll(failure: Failure): void {
    this.#away(failure, this.#outageAt + 1, this.#parts.clock.monotonicMs(), { why: 'refused' });
  }

  #pause({ name: batch, asset }: BatchDelivery, verdict: Verdict, minMs: number): void {
    const { schedule, clock, log } = this.#parts;
    const pauseMs = Math.round(schedule.pause(asset, minMs));
    const count = this.#repeats.note(`asset:${asset}:${verdict.code}`, clock.monotonicMs());
    const facts = { batch, asset, code: verdict.code, words: verdict.words, pauseMs, count };
    log[levelOf(count)](
      { event: 'uplink.asset_pauses', ...facts },
      'a post failed: the asset pauses, the others go on',
    );
  }

  #rest({ name: batch, asset }: BatchDelivery, verdict: Verdict): void {
    const { budget, clock, log } = this.#parts;
    const waitMs = Math.round(restAfterMs(verdict.answer!, clock));
    budget.restUntil(clock.monotonicMs() + waitMs);
    const count = this.#repeats.note('rest', clock.monotonicMs());
    log[levelOf(count)](
      { event: 'uplink.rest', batch, asset, waitMs, count },
      'the platform had too many requests: all posts wait',
    );
  }

  async #noAccess(delivery: BatchDelivery, verdict: Verdict, posted: Posted): Promise<void> {
    const { access, faults, clock, logStore } = this.#parts;
    const { asset } = delivery;
    this.#parts.probes.retrySoon.delete(asset);
    faults.met('no-access', asset);
    const held = new Set(access.heldSeries());
    // A probe of one held series says something about it; a probe of a series that only waits, about the asset.
    const series = delivery.probe?.onlySeries?.every((one) => held.has(one)) ? delivery.probe.onlySeries : undefined;
    const status = verdict.status === 403 ? 403 : 404;
    await access.refused(asset, status, series, posted.instrumentation).catch(logStore);
    if (faults.isPlatform('no-access', clock.monotonicMs())) {
      for (const other of faults.inTrouble('no-access')) this.#parts.probes.retrySoon.add(other);
      this.#away(verdict, posted.post, posted.startedMs, { batch: delivery.name, why: 'no-access' });
    } else if (delivery.trial) this.online();
  }

  /** Nothing is posted for now but one try after the other. A post that started before the outage does not lengthen it. */
  #away(
    failure: Failure,
    post: number,
    startedMs: number,
    how: { batch?: string; minMs?: number; quota?: boolean; why?: keyof typeof SAID },
  ): void {
    const { availability, schedule, faults, log, clock } = this.#parts;
    const isNew = availability.outage === undefined;
    if (!isNew && post <= this.#outageAt) return;
    const { code, words } = failure;
    const outage = how.quota ? availability.failQuota(failure) : availability.fail(failure, startedMs, how.minMs ?? 0);
    if (isNew) {
      this.#outageAt = faults.number();
      schedule.resetFailures();
      this.#parts.abandonAll();
    }
    const count = this.#repeats.note(`away:${code}`, clock.monotonicMs());
    const nextTryMs = Math.max(0, Math.round(outage.nextTryAtMs - clock.monotonicMs()));
    const facts = { batch: how.batch, code, words, attempts: outage.attempts, nextTryMs, count };
    const said = 'the quota of API calls is spent: all posts pause';
    if (how.quota)
      log[count === undefined ? 'debug' : 'error']({ event: 'uplink.quota', ...facts, hint: QUOTA_HINT }, said);
    else log[levelOf(count)]({ event: 'uplink.away', ...facts }, SAID[how.why ?? 'away']);
  }

  /** The platform answers as it should. */
  online(): void {
    const { availability, log, clock } = this.#parts;
    const ended = availability.succeed();
    if (!ended) return;
    this.#repeats.end('away:');
    const forMs = Math.round(clock.monotonicMs() - ended.sinceMs);
    log.info(
      { event: 'uplink.back', code: ended.code, attempts: ended.attempts, forMs },
      'the platform takes values again',
    );
    this.#parts.back();
  }
}

function whyUnreachable({ code }: Verdict): keyof typeof SAID {
  return code === 'platform.no_session' ? 'signed-out' : 'away';
}

/** What is not worth a line for the night shift is still there for whoever follows a batch. */
const levelOf = (count: number | undefined) => (count === undefined ? 'debug' : 'warn');
