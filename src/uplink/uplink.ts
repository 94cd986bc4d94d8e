/**
 * Posts buffered values to the platform: a loop that plans posts, starts them and sleeps until something changes. Its
 * state is in memory only and is rebuilt after a restart.
 */
import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import type { OutgoingBuffer } from '../buffer/client/lanes.ts';
import { AssetSchedule } from './asset-schedule.ts';
import { BackfillRate } from './backfill-rate.ts';
import { BatchResults } from './batch-results.ts';
import { DeliveryLog } from './delivery-log.ts';
import { FaultAttribution } from './fault-attribution.ts';
import { creditAfter, type PlanInput, type PlanOptions, type PostDecision, plan } from './planner.ts';
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
  /** 0 means no limit. */
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

/** State for `status`. Times are wall-clock times; durations are in milliseconds. */
export interface UplinkSnapshot {
  state: 'online' | 'away';
  /** Set while the platform is unavailable. */
  outage:
    | { forMs: number; code: string; reason: string; isForeign: boolean; attempts: number; nextTryInMs: number }
    | undefined;
  /** Remaining pause after a 429. */
  restsForMs: number | undefined;
  lastPostAtMs: number | undefined;
  lastDeliveredAtMs: number | undefined;
  /** Latest post that was not accepted. */
  lastRefusal: { atMs: number; code: string; reason: string } | undefined;
  deliveredValues: number;
  quarantinedValues: number;
  postsInProgress: number;
  /** POST_INTERVAL, or longer if the budget is too small. */
  intervalMs: number;
  maxBytes: number;
  /** Ids of all paused series. */
  waitingIds: readonly number[];
  waitingSeries: { series: number; asset: number; status: number; reason: string; nextTryInMs: number }[];
  pausedAssets: { asset: number; failures: number; forMs: number }[];
}

const ACTIVE_MS = 120_000;
/** Maximum sleep of the loop. */
const PLAN_MS = 5_000;
const MAX_LISTED = 50;
/** A loop that has not planned for this long is considered hung. */
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
  readonly #results: BatchResults;
  readonly #sender: Sender;
  /** Aborts posts in progress. */
  readonly #abortPosts = new AbortController();
  readonly #performing = new Set<Promise<void>>();
  readonly #repeats = new Repeats();
  readonly #startedMs: number;
  #credit = 0;
  #isStopping = false;
  #awake = false;
  #wakeUp: (() => void) | undefined;
  #unsubscribe: (() => void)[] = [];
  #running: Promise<void> | undefined;
  #stopped: Promise<void> | undefined;
  #plannedMs = Number.NEGATIVE_INFINITY;

  constructor(parts: UplinkParts, options: UplinkOptions) {
    const { clock } = parts;
    this.#parts = parts;
    this.#options = { ...options };
    this.#startedMs = clock.monotonicMs();
    this.#availability = new PlatformAvailability(clock);
    this.#faults = new FaultAttribution(activeMsOf(options.postIntervalMs));
    this.#schedule = new AssetSchedule(clock);
    this.#probes = new Probes({ ...parts, schedule: this.#schedule, waits: this.#waits });
    this.#size = new PostSize(options.postMaxBytes);
    this.#lag = new PostLag(options.postIntervalMs);
    const { backfillValuesPerSecond, postIntervalMs, postMaxValues } = options;
    this.#backfill = new BackfillRate(backfillValuesPerSecond, postIntervalMs, postMaxValues, clock.monotonicMs());
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
      signal: this.#abortPosts.signal,
      wake: () => this.wake(),
    };
    this.#results = new BatchResults(shared);
    this.#sender = new Sender({
      ...shared,
      backfill: this.#backfill,
      results: this.#results,
      options: this.#options,
    });
  }

  /**
   * Starts posting. Resolves once the held series are registered with the buffer. The signal stops the uplink in the
   * same way as `stop(0)`.
   */
  async start(signal?: AbortSignal): Promise<void> {
    const { buffer, access } = this.#parts;
    signal?.addEventListener('abort', () => void this.stop(0), { once: true });
    await this.#probes.updateHeldSeries();
    this.#unsubscribe = [
      buffer.onChange(() => this.wake()),
      access.onChange(() => {
        void this.#probes.updateHeldSeries().catch(() => {});
        this.wake();
      }),
    ];
    this.#running = this.#run();
  }

  /**
   * Stops new posts. Posts in progress may finish within the budget (the shortest budget if called several times); the
   * other batches are returned to the buffer.
   */
  async stop(budgetMs: number): Promise<void> {
    const cancel = this.#parts.clock.after(budgetMs, () => this.#abort());
    this.#stopped ??= this.#stop();
    await this.#stopped.finally(cancel);
  }

  async #stop(): Promise<void> {
    for (const unsubscribe of this.#unsubscribe) unsubscribe();
    this.#isStopping = true;
    this.#results.recallAll(true);
    this.wake();
    await this.#running;
    while (this.#performing.size > 0) await Promise.all(this.#performing);
    this.#abort();
    await this.#results.settled();
  }

  #abort(): void {
    this.#abortPosts.abort(new Error('the uplink is stopping'));
  }

  /** Calls the listener after each outage with its duration. Returns a function that removes the listener. */
  onRestored(listener: (unavailableMs: number) => void): () => void {
    return this.#availability.onRestored(listener);
  }

  /**
   * During an outage, retries immediately after a session was obtained. Pauses after a 429 or an exhausted quota remain
   * in effect.
   */
  tryNow(): void {
    this.#availability.tryNow();
    this.wake();
  }

  /**
   * Sends a post immediately at an operator's request (reload, `session renew`), even during a pause after a 429 or an
   * exhausted quota.
   */
  tryNowOnRequest(): void {
    this.#parts.budget.endRest();
    this.#availability.tryNow('person');
    this.wake();
  }

  /** Checks paused series after an operator removed values, because a series may have no values left. */
  withdrawn(series: Iterable<number>): void {
    const nowMs = this.#parts.clock.monotonicMs();
    for (const id of series) this.#waits.makeDue(id, nowMs);
    this.wake();
  }

  /** Applies settings after a reload and sends a post immediately. */
  setPace(pace: UplinkOptions): void {
    Object.assign(this.#options, pace);
    const { postIntervalMs, postMaxValues, postMaxBytes, backfillValuesPerSecond } = pace;
    this.#faults.setActiveMs(activeMsOf(postIntervalMs));
    this.#size.setLimit(postMaxBytes);
    this.#lag.setInterval(postIntervalMs);
    this.#backfill.setRate(backfillValuesPerSecond, postIntervalMs, postMaxValues);
    this.#waits.makeAllDue(this.#parts.clock.monotonicMs());
    this.tryNowOnRequest();
  }

  /** Returns batches to the buffer after a reload changed VALUES_PATH, so that they are created again. */
  addressesChanged(): void {
    this.#results.recallAll();
    this.wake();
  }

  /** Whether the loop is running. */
  isAlive(nowMs: number): boolean {
    return nowMs - Math.max(this.#plannedMs, this.#startedMs) < ALIVE_MS;
  }

  /** Wakes the loop. */
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
        // A planning error must not stop the uplink.
        const nowMs = this.#parts.clock.monotonicMs();
        const count = this.#repeats.note('plan', nowMs);
        const fields = { event: 'uplink.plan_failed', error: messageOf(error), count };
        if (count !== undefined) this.#parts.log.error(fields, 'failed to select the next post');
        untilMs = nowMs + PLAN_MS;
      }
      await this.#sleep(untilMs);
    }
  }

  /** Starts all posts that may start now. Returns the time of the next planning run. */
  #planAll(): number {
    const { clock, buffer, access, budget } = this.#parts;
    const nowMs = clock.monotonicMs();
    const nextProbeMs = access.nextProbeAtMs() ?? nowMs;
    const planMs = nextProbeMs > nowMs ? Math.min(nextProbeMs, nowMs + PLAN_MS) : nowMs + PLAN_MS;
    // Waiting during a pause does not mean that the budget is too small.
    if (budget.restingUntilMs !== undefined) this.#schedule.clearDueTimes();
    else if (this.#availability.outage === undefined) {
      this.#schedule.noteDueTimes(buffer.lanes(), nowMs, this.#options, (asset) => access.isHeld(asset));
    }
    if (nowMs - this.#plannedMs >= PLAN_MS) {
      this.#plannedMs = nowMs;
      this.#results.reconsiderParked();
      this.#logInterval(nowMs);
    }
    if (!buffer.isReady()) return planMs;
    for (const probe of this.#probes.unused(nowMs, buffer.lanes())) void access.foundNothing(probe);
    for (;;) {
      const decision = plan(this.#input(nowMs));
      if (decision.do === 'wait') return Math.min(decision.untilMs, planMs);
      this.#perform(decision, nowMs);
    }
  }

  #perform(decision: PostDecision, nowMs: number): void {
    this.#credit = creditAfter(this.#credit, decision);
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
        // Happens only if the buffer fails during shutdown. The batches are posted after the next startup.
        this.#parts.log.error({ event: 'uplink.post_failed', error: messageOf(error) }, 'POST request failed');
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
      inProgress: schedule.inProgress(),
      unpaid: schedule.isPaying && budget.isLimited,
      freeAtMs: budget.nextAtMs('live'),
      probeFreeAtMs: budget.nextAtMs('probe'),
      requestIntervalMs: budget.intervalMs,
      backfill: {
        available: this.#backfill.available(nowMs),
        limited: this.#backfill.isLimited,
        atMs: (values) => this.#backfill.availableAtMs(values, nowMs),
      },
      outage: outage && { nextTryAtMs: outage.nextTryAtMs, trialInProgress: schedule.hasTrial },
      backlogCredit: this.#credit,
    };
  }

  async #sleep(untilMs: number): Promise<void> {
    const { clock } = this.#parts;
    // Combines lane changes within one event loop turn.
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
      this.#parts.log.warn({ event: 'uplink.interval_lengthened', ...facts }, `post interval lengthened: ${cause}`);
    else this.#parts.log.info({ event: 'uplink.interval_normal', ...facts }, 'post interval restored');
  }

  get deliveredValues(): number {
    return this.#results.deliveredValues;
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
        reason: outage.reason,
        isForeign: outage.isForeign,
        attempts: outage.attempts,
        nextTryInMs: Math.max(0, outage.nextTryAtMs - nowMs),
      },
      restsForMs: restingUntilMs === undefined ? undefined : restingUntilMs - nowMs,
      lastPostAtMs: this.#sender.lastPostMs,
      lastDeliveredAtMs: this.#results.lastDeliveredMs,
      lastRefusal: this.#results.lastRefusal,
      deliveredValues: this.#results.deliveredValues,
      quarantinedValues: this.#results.quarantinedValues,
      postsInProgress: this.#schedule.inProgress().all,
      intervalMs: this.#lag.intervalMs(nowMs),
      maxBytes: this.#size.maxBytes(nowMs),
      waitingIds: this.#waits.ids(),
      waitingSeries: this.#waits.describe(nowMs, MAX_LISTED),
      pausedAssets: this.#schedule
        .paused(nowMs)
        .slice(0, MAX_LISTED)
        .map(({ asset, failures, untilMs }) => ({ asset, failures, forMs: untilMs - nowMs })),
    };
  }
}

/** Time for which an asset counts as active after an accepted post. */
const activeMsOf = (postIntervalMs: number) => Math.max(ACTIVE_MS, 3 * postIntervalMs);
