/**
 * What follows from a post that was not taken: the asset pauses, everybody rests, the asset is held, or the platform is
 * away and everything that waits in divided batches goes back to its place.
 */
import type { Clock } from '../clock.ts';
import type { Logger } from '../logger.ts';
import { Repeats } from '../repeats.ts';
import type { Course } from './course.ts';
import type { Link } from './link.ts';
import type { AccessPort, PostBudget } from './ports.ts';
import { askedWaitMs, restMs } from './post.ts';
import type { Probes } from './probes.ts';
import type { Reach } from './reach.ts';
import type { Verdict } from './verdict.ts';
import type { Works } from './works.ts';

export interface TroublesParts {
  budget: PostBudget;
  access: AccessPort;
  clock: Clock;
  log: Logger;
  link: Link;
  reach: Reach;
  works: Works;
  probes: Probes;
  /** An outage ended. */
  back(): void;
  /** The platform went away. */
  abandonAll(): void;
  logStore(error: unknown): void;
}

const QUOTA_HINT =
  'Raise the quota of the connect subscription, or wait for its next period; REQUESTS_PER_DAY keeps below it.';

interface Failure {
  code: string;
  words: string;
}

export class Troubles {
  readonly #parts: TroublesParts;
  readonly #repeats = new Repeats();
  /** When the outage began, in the order of posts. */
  #outageAt = -1;

  constructor(parts: TroublesParts) {
    this.#parts = parts;
  }

  async met(course: Course, verdict: Verdict, post: number, startedMs: number): Promise<void> {
    const { budget, clock, link, reach } = this.#parts;
    switch (verdict.meaning) {
      case 'unreachable':
        budget.giveBack();
        return this.#away(verdict, post, startedMs, { batch: course.name });
      case 'session':
        return this.#away(verdict, post, startedMs, { batch: course.name });
      case 'quota':
        return this.#away(verdict, post, startedMs, { batch: course.name, quota: true });
      case 'rest':
        if (course.trial) this.online();
        return this.#rest(course, verdict);
      case 'no-access':
        return this.#noAccess(course, verdict, post, startedMs);
      default: {
        reach.met('later', course.asset);
        const leastMs = askedWaitMs(verdict, clock);
        const isPlatform = link.outage !== undefined || reach.isPlatform('later', clock.monotonicMs());
        if (isPlatform) this.#away(verdict, post, startedMs, { batch: course.name, leastMs });
        else this.#pause(course, verdict, leastMs);
      }
    }
  }

  /** A post of the asset was taken. */
  over(asset: number, post: number): void {
    this.#parts.probes.retrySoon.delete(asset);
    if (this.#parts.works.succeed(asset)) this.#repeats.end(`asset:${asset}:`);
    if (post > this.#outageAt) this.online();
  }

  /** Whatever is posted is refused. */
  refusedByAll(failure: Failure): void {
    this.#away(failure, this.#outageAt + 1, this.#parts.clock.monotonicMs());
  }

  #pause({ name: batch, asset }: Course, verdict: Verdict, leastMs: number): void {
    const { works, clock, log } = this.#parts;
    const pauseMs = Math.round(works.pause(asset, leastMs));
    const count = this.#repeats.note(`asset:${asset}:${verdict.code}`, clock.monotonicMs());
    const facts = { batch, asset, code: verdict.code, words: verdict.words, pauseMs, count };
    log[levelOf(count)](
      { event: 'uplink.asset_pauses', ...facts },
      'a post failed: the asset pauses, the others go on',
    );
  }

  #rest({ name: batch, asset }: Course, verdict: Verdict): void {
    const { budget, clock, log } = this.#parts;
    const waitMs = Math.round(restMs(verdict.answer!, clock));
    budget.restUntil(clock.monotonicMs() + waitMs);
    const count = this.#repeats.note('rest', clock.monotonicMs());
    log[levelOf(count)](
      { event: 'uplink.rest', batch, asset, waitMs, count },
      'the platform had too many requests: all posts wait',
    );
  }

  async #noAccess(course: Course, verdict: Verdict, post: number, startedMs: number): Promise<void> {
    const { access, reach, clock, logStore } = this.#parts;
    const { asset } = course;
    this.#parts.probes.retrySoon.delete(asset);
    reach.met('no-access', asset);
    const held = new Set(access.heldSeries());
    // A probe of one held series says something about it; a probe of a series that only waits, about the asset.
    const series = course.probe?.onlySeries?.every((one) => held.has(one)) ? course.probe.onlySeries : undefined;
    await access.refused(asset, verdict.status === 403 ? 403 : 404, series).catch(logStore);
    if (reach.isPlatform('no-access', clock.monotonicMs())) {
      for (const other of reach.inTrouble('no-access')) this.#parts.probes.retrySoon.add(other);
      this.#away(verdict, post, startedMs, { batch: course.name });
    } else if (course.trial) this.online();
  }

  /** The platform is away. A post that started before the outage does not lengthen it. */
  #away(
    failure: Failure,
    post: number,
    startedMs: number,
    how: { batch?: string; leastMs?: number; quota?: boolean } = {},
  ): void {
    const { link, works, reach, log, clock } = this.#parts;
    const isNew = link.outage === undefined;
    if (!isNew && post <= this.#outageAt) return;
    const { code, words } = failure;
    const outage = how.quota
      ? link.failQuota({ code, words })
      : link.fail({ code, words }, startedMs, how.leastMs ?? 0);
    if (isNew) {
      this.#outageAt = reach.number();
      works.forgive();
      this.#parts.abandonAll();
    }
    const count = this.#repeats.note(`away:${code}`, clock.monotonicMs());
    const nextTryMs = Math.max(0, Math.round(outage.nextTryAtMs - clock.monotonicMs()));
    const facts = { batch: how.batch, code, words, attempts: outage.attempts, nextTryMs, count };
    const said = 'the quota of API calls is spent: all posts pause';
    if (how.quota)
      log[count === undefined ? 'debug' : 'error']({ event: 'uplink.quota', ...facts, hint: QUOTA_HINT }, said);
    else log[levelOf(count)]({ event: 'uplink.away', ...facts }, 'the platform is away: values stay in the buffer');
  }

  /** The platform answers as it should. */
  online(): void {
    const { link, log, clock } = this.#parts;
    const ended = link.succeed();
    if (!ended) return;
    this.#repeats.end('away:');
    const forMs = Math.round(clock.monotonicMs() - ended.sinceMs);
    log.info({ event: 'uplink.back', code: ended.code, attempts: ended.attempts, forMs }, 'the platform is back');
    this.#parts.back();
  }
}

/** What is not worth a line for the night shift is still there for whoever follows a batch. */
const levelOf = (count: number | undefined) => (count === undefined ? 'debug' : 'warn');
