/**
 * The uplink as a part of the agent: looks at what waits, lets the planner decide, lets the sender do it, sleeps until
 * something changes. It holds no values: whatever it knows is in memory and is found out anew after a restart.
 */
import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import type { OutgoingBuffer } from '../buffer/client/lanes.ts';
import { AnswerTime } from './answer-time.ts';
import { AssetSchedule } from './asset-schedule.ts';
import { BackfillRate } from './backfill-rate.ts';
import { DeliveryLog } from './delivery-log.ts';
import { Effects } from './effects.ts';
import { FaultAttribution } from './fault-attribution.ts';
import { HeldSeries } from './held-series.ts';
import { creditAfter, type PlanInput, type PlanOptions, POSTS_A_PROBE, type PostDecision, plan } from './planner.ts';
import { type Outage, PlatformAvailability } from './platform-availability.ts';
import type { AccessPort, AddressPort, PostBudget, UplinkHooks, ValuesClient } from './ports.ts';
import { PostLag } from './post-lag.ts';
import { PostSize } from './post-size.ts';
import { Probes } from './probes.ts';
import { Sender } from './sender.ts';
import { SeriesWaits } from './series-waits.ts';

export interface UplinkOptions extends PlanOptions {
  postMaxBytes: number;
  /** POST_SUCCESS. */
  success: readonly number[];
  /** 0 is no limit. */
  backfillValuesPerSecond: number;
}

export interface UplinkParts {
  buffer: OutgoingBuffer;
  client: ValuesClient;
  budget: PostBudget;
  access: AccessPort;
  clock: Clock;
  log: Logger;
  addresses: AddressPort;
  hooks?: UplinkHooks;
}

/** What `status` shows of the uplink. Times are wall clock, for people; durations in milliseconds. */
export interface UplinkSnapshot {
  state: 'online' | 'away';
  /** While the platform is unavailable. */
  outage:
    | { forMs: number; code: string; words: string; isForeign: boolean; attempts: number; nextTryInMs: number }
    | undefined;
  /** How long all posts still wait after a 429. */
  restsForMs: number | undefined;
  lastPostAtMs: number | undefined;
  lastDeliveredAtMs: number | undefined;
  /** The last post that was not taken, and the platform's words. */
  lastRefusal: { atMs: number; code: string; words: string } | undefined;
  deliveredValues: number;
  quarantinedValues: number;
  postsUnderWay: number;
  /** POST_INTERVAL, longer where the budget does not reach. */
  intervalMs: number;
  maxBytes: number;
  /** Every series that waits, by its id; of the first of them more is told. */
  waitingIds: readonly number[];
  waitingSeries: { series: number; asset: number; status: number; words: string; nextTryInMs: number }[];
  pausedAssets: { asset: number; failures: number; forMs: number }[];
}

const LATELY_MS = 120_000;
/** How often dueness of probes, parked deliveries and the like is looked at when nothing else happens. */
const LOOK_MS = 5_000;
const MAX_LISTED = 50;
/** A loop that has not looked for so long hangs. */
const ALIVE_MS = 120_000;

export class Uplink {
  readonly #parts: UplinkParts;
  readonly #options: UplinkOptions;
  readonly #availability: PlatformAvailability;
  readonly #faults: FaultAttribution;
  readonly #schedule: AssetSchedule;
  readonly #waits = new SeriesWaits();
  readonly #probes: Probes;
  readonly #size: PostSize;
  readonly #lag: PostLag;
  readonly #backfill: BackfillRate;
  readonly #heldSeries: HeldSeries;
  readonly #effects: Effects;
  readonly #sender: Sender;
  /** Posts under way are broken off when it fires. */
  readonly #breakOff = new AbortController();
  readonly #performing = new Set<Promise<void>>();
  readonly #repeats = new Repeats();
  readonly #startedMs: number;
  #credit = 0;
  #postsSinceProbe = POSTS_A_PROBE;
  #isStopping = false;
  #awake = false;
  #wakeUp: (() => void) | undefined;
  #unsubscribe: (() => void)[] = [];
  #running: Promise<void> | undefined;
  #stopped: Promise<void> | undefined;
  #lookedMs = Number.NEGATIVE_INFINITY;

  constructor(parts: UplinkParts, options: UplinkOptions) {
    const { clock } = parts;
    this.#parts = parts;
    this.#options = { ...options };
    this.#startedMs = clock.monotonicMs();
    this.#availability = new PlatformAvailability(clock);
    this.#faults = new FaultAttribution(latelyOf(options.postIntervalMs));
    this.#schedule = new AssetSchedule(clock);
    const { access } = parts;
    this.#probes = new Probes({ access, clock, schedule: this.#schedule, waits: this.#waits });
    this.#size = new PostSize(options.postMaxBytes);
    this.#lag = new PostLag(options.postIntervalMs);
    const { backfillValuesPerSecond, postIntervalMs, postMaxValues } = options;
    this.#backfill = new BackfillRate(backfillValuesPerSecond, postIntervalMs, postMaxValues, clock.monotonicMs());
    this.#heldSeries = new HeldSeries(parts.buffer, access, this.#waits);
    const shared = {
      ...parts,
      hooks: parts.hooks ?? {},
      deliveryLog: new DeliveryLog(clock, parts.log),
      availability: this.#availability,
      faults: this.#faults,
      schedule: this.#schedule,
      waits: this.#waits,
      probes: this.#probes,
      size: this.#size,
      signal: this.#breakOff.signal,
      wake: () => this.wake(),
    };
    this.#effects = new Effects({ ...shared, heldSeries: this.#heldSeries });
    this.#sender = new Sender({
      ...shared,
      answers: new AnswerTime(),
      backfill: this.#backfill,
      effects: this.#effects,
      options: this.#options,
    });
  }

  /** Begins to post; returns once the buffer knows which series are held. The signal ends it as `stop(0)` does. */
  async start(signal?: AbortSignal): Promise<void> {
    const { buffer, access } = this.#parts;
    signal?.addEventListener('abort', () => void this.stop(0), { once: true });
    await this.#heldSeries.tell();
    this.#unsubscribe = [
      buffer.onChange(() => this.wake()),
      access.onChange(() => {
        void this.#heldSeries.tell().catch(() => {});
        this.wake();
      }),
    ];
    this.#running = this.#run();
  }

  /** No new posts; those under way may end within the budget (of several calls the shortest), or their values wait again. */
  async stop(budgetMs: number): Promise<void> {
    const cancel = this.#parts.clock.after(budgetMs, () => this.#abort());
    this.#stopped ??= this.#stop();
    await this.#stopped.finally(cancel);
  }

  async #stop(): Promise<void> {
    for (const unsubscribe of this.#unsubscribe) unsubscribe();
    this.#isStopping = true;
    this.#effects.beginStop();
    this.wake();
    await this.#running;
    while (this.#performing.size > 0) await Promise.all(this.#performing);
    this.#abort();
    await this.#effects.settled();
  }

  #abort(): void {
    this.#breakOff.abort(new Error('the uplink stops'));
  }

  /** Called when an outage has ended, with how long it was. The function it returns takes the listener away. */
  onBack(listener: (unavailableMs: number) => void): () => void {
    return this.#availability.onBack(listener);
  }

  /** A session was obtained: during an outage the next try goes at once. A spent quota and a rest after 429 go on. */
  tryNow(): void {
    this.#availability.tryNow();
    this.wake();
  }

  /** A person says so (a reload, `session renew`): whatever posts wait for, one is tried at once. */
  tryNowOnRequest(): void {
    this.#parts.budget.endRest();
    this.#availability.tryNow('person');
    this.wake();
  }

  /** Checks the waiting series of which an operator withdrew values: nothing may be left of them. */
  withdrawn(series: Iterable<number>): void {
    const nowMs = this.#parts.clock.monotonicMs();
    for (const id of series) this.#waits.putBack(id, nowMs);
    this.wake();
  }

  /** After a reload. Whatever posts wait for, one is tried at once: somebody is there and waits for it. */
  setPace(pace: UplinkOptions): void {
    Object.assign(this.#options, pace);
    const { postIntervalMs, postMaxValues, postMaxBytes, backfillValuesPerSecond } = pace;
    this.#faults.setLately(latelyOf(postIntervalMs));
    this.#size.setLimit(postMaxBytes);
    this.#lag.setInterval(postIntervalMs);
    this.#backfill.setRate(backfillValuesPerSecond, postIntervalMs, postMaxValues);
    this.#waits.tryAll(this.#parts.clock.monotonicMs());
    this.tryNowOnRequest();
  }

  /** After a reload with another VALUES_PATH: what was taken and not posted goes back, and is put together anew. */
  addressesChanged(): void {
    this.#effects.recallAll();
    this.wake();
  }

  /** Whether the loop still turns: it looks at what waits every few seconds, whatever happens. */
  isAlive(nowMs: number): boolean {
    return nowMs - Math.max(this.#lookedMs, this.#startedMs) < ALIVE_MS;
  }

  /** Looks again at what waits. */
  wake(): void {
    this.#awake = true;
    this.#wakeUp?.();
  }

  async #run(): Promise<void> {
    while (!this.#isStopping) {
      this.#awake = false;
      let untilMs: number;
      try {
        untilMs = this.#planAll();
      } catch (error) {
        // A mistake in planning must not end the uplink: said, and tried again with the next change.
        const nowMs = this.#parts.clock.monotonicMs();
        const count = this.#repeats.note('plan', nowMs);
        const fields = { event: 'uplink.plan_failed', error: messageOf(error), count };
        if (count !== undefined) this.#parts.log.error(fields, 'planning failed');
        untilMs = nowMs + LOOK_MS;
      }
      await this.#sleep(untilMs);
    }
  }

  /** Starts everything that may start now; gives the time at which to look again. */
  #planAll(): number {
    const { clock, buffer, access, budget } = this.#parts;
    const nowMs = clock.monotonicMs();
    const nextProbeMs = access.nextProbeAtMs() ?? nowMs;
    const lookMs = nextProbeMs > nowMs ? Math.min(nextProbeMs, nowMs + LOOK_MS) : nowMs + LOOK_MS;
    // What waits for a rest to end does not show that the budget is too small.
    if (budget.restingUntilMs !== undefined) this.#schedule.clearDueTimes();
    else if (this.#availability.outage === undefined) {
      this.#schedule.noteDueTimes(buffer.lanes(), nowMs, this.#options, (asset) => access.isHeld(asset));
    }
    if (nowMs - this.#lookedMs >= LOOK_MS) {
      this.#lookedMs = nowMs;
      this.#effects.lookAtParked();
      this.#logInterval(nowMs);
    }
    if (!buffer.isReady()) return lookMs;
    for (const probe of this.#probes.unused(nowMs, buffer.lanes())) void access.foundNothing(probe);
    for (;;) {
      const decision = plan(this.#input(nowMs));
      if (decision.do === 'wait') return Math.min(decision.untilMs, lookMs);
      this.#perform(decision, nowMs);
    }
  }

  #perform(decision: PostDecision, nowMs: number): void {
    this.#credit = creditAfter(this.#credit, decision);
    const isProbe = decision.do === 'post' && decision.kind === 'probe';
    this.#postsSinceProbe = isProbe ? 0 : this.#postsSinceProbe + 1;
    if (decision.do === 'post') {
      const entry = this.#schedule.of(decision.take.asset);
      if (decision.kind === 'live') {
        if (entry.dueSinceMs !== undefined) this.#lag.note(nowMs - entry.dueSinceMs, nowMs);
        entry.dueSinceMs = undefined;
      }
    }
    const done: Promise<void> = this.#sender
      .perform(decision)
      .catch((error) => {
        // Only a store that is gone while the agent stops ends here: its batches wait again after the start.
        this.#parts.log.error({ event: 'uplink.post_failed', error: messageOf(error) }, 'a post could not be ended');
      })
      .finally(() => {
        this.#performing.delete(done);
        this.wake();
      });
    this.#performing.add(done);
  }

  #input(nowMs: number): PlanInput {
    const { buffer, budget, access } = this.#parts;
    const schedule = this.#schedule;
    const { outage } = this.#availability;
    return {
      nowMs,
      options: this.#options,
      lanes: buffer.lanes(),
      schedule: schedule.map,
      ready: schedule.ready(),
      isHeld: (asset) => access.isHeld(asset),
      probes: this.#probes.due(nowMs),
      underWay: schedule.underWay(),
      unpaid: schedule.isPaying && budget.isLimited,
      freeAtMs: budget.nextAtMs('live'),
      probeFreeAtMs: budget.nextAtMs('probe'),
      requestIntervalMs: budget.intervalMs,
      backfill: {
        available: this.#backfill.available(nowMs),
        limited: this.#backfill.isLimited,
        atMs: (values) => this.#backfill.availableAtMs(values, nowMs),
      },
      outage: outage && { nextTryAtMs: outage.nextTryAtMs, trialUnderWay: schedule.hasTrial },
      backlogCredit: this.#credit,
      postsSinceProbe: this.#postsSinceProbe,
    };
  }

  async #sleep(untilMs: number): Promise<void> {
    const { clock } = this.#parts;
    // Lanes change many times in a row: one turn of the event loop gathers them.
    if (!this.#awake) {
      await new Promise<void>((resolve) => {
        const cancel = clock.after(Math.max(1, untilMs - clock.monotonicMs()), resolve);
        this.#wakeUp = () => {
          cancel();
          resolve();
        };
      });
      this.#wakeUp = undefined;
    }
    await new Promise((resolve) => setImmediate(resolve));
  }

  #logInterval(nowMs: number): void {
    const change = this.#lag.change(nowMs);
    if (!change) return;
    const facts = { intervalMs: change.intervalMs, configuredMs: this.#options.postIntervalMs };
    const cause = this.#parts.budget.isLimited ? 'the request budget is too small' : 'posts take too long';
    if (change.isLengthened)
      this.#parts.log.warn({ event: 'uplink.interval_lengthened', ...facts }, `post interval is longer: ${cause}`);
    else this.#parts.log.info({ event: 'uplink.interval_normal', ...facts }, 'post interval is as configured again');
  }

  get deliveredValues(): number {
    return this.#effects.deliveredValues;
  }

  get outage(): Readonly<Outage> | undefined {
    return this.#availability.outage;
  }

  snapshot(): UplinkSnapshot {
    const nowMs = this.#parts.clock.monotonicMs();
    const { outage } = this.#availability;
    const { restingUntilMs } = this.#parts.budget;
    return {
      state: outage ? 'away' : 'online',
      outage: outage && {
        forMs: nowMs - outage.sinceMs,
        code: outage.code,
        words: outage.words,
        isForeign: outage.isForeign,
        attempts: outage.attempts,
        nextTryInMs: Math.max(0, outage.nextTryAtMs - nowMs),
      },
      restsForMs: restingUntilMs === undefined ? undefined : restingUntilMs - nowMs,
      lastPostAtMs: this.#sender.lastPostMs,
      lastDeliveredAtMs: this.#effects.lastDeliveredMs,
      lastRefusal: this.#effects.lastRefusal,
      deliveredValues: this.#effects.deliveredValues,
      quarantinedValues: this.#effects.quarantinedValues,
      postsUnderWay: this.#schedule.underWay().all,
      intervalMs: this.#lag.intervalMs(nowMs),
      maxBytes: this.#size.maxBytes,
      waitingIds: this.#waits.ids(),
      waitingSeries: this.#waits.describe(nowMs, MAX_LISTED),
      pausedAssets: this.#schedule
        .paused(nowMs)
        .slice(0, MAX_LISTED)
        .map(({ asset, failures, untilMs }) => ({ asset, failures, forMs: untilMs - nowMs })),
    };
  }
}

/** How long ago an asset may have posted to count among those that would show an outage. */
const latelyOf = (postIntervalMs: number) => Math.max(LATELY_MS, 3 * postIntervalMs);
