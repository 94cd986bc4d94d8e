/**
 * Posts buffered values to the platform. Three loops post live values, the backlog, and probes of held objects. Each
 * waits until a post is due, acquires a permit, chooses the most urgent post at that time, takes its values and delivers
 * them. During an outage, only the first loop posts: one trial at a time. The state is in memory only and is rebuilt
 * after a restart.
 */
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';
import type { OutgoingBuffer, TakenBatch } from '../buffer/client/lanes.ts';
import { Assets } from './assets.ts';
import { BackfillRate } from './backfill-rate.ts';
import { type Choice, chooseBacklog, chooseLive, chooseProbe, chooseTrial, type PostOptions } from './choose.ts';
import { type DeliverParts, deliver, type ValuesClient } from './deliver.ts';
import { Health, type Outage } from './health.ts';
import type { Holds } from './holds.ts';
import { type Permit, Permits, type PostBudget, type PostKind } from './permits.ts';
import type { PostAddresses } from './post-address.ts';
import { PostLag } from './post-lag.ts';
import { type UplinkHooks, UplinkLog } from './uplink-log.ts';

export interface UplinkOptions extends PostOptions {
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
  holds: Holds;
  addresses: Pick<PostAddresses, 'of' | 'version' | 'byInstrumentation'>;
  clock: Clock;
  log: Logger;
  hooks?: UplinkHooks;
}

type Post = Exclude<Choice, { untilMs: number }>;

/** Maximum sleep of a loop, and interval of the regular checks. */
const TICK_MS = 5_000;
const MAX_LISTED = 50;
/** An uplink without a regular check for this long is considered hung. */
const ALIVE_MS = 120_000;
/** Pause of an asset after a failed store call, or if its lanes and the buffer disagree. */
const RETRY_MS = 1_000;

export class Uplink {
  readonly #parts: UplinkParts;
  /** Settings shared with all parts, so that a reload changes them in one place. */
  readonly #options: UplinkOptions;
  readonly #assets: Assets;
  readonly #health: Health;
  readonly #permits: Permits;
  readonly #log: UplinkLog;
  readonly #backfill: BackfillRate;
  readonly #lag: PostLag;
  readonly #deliverParts: DeliverParts;
  /** Ends the loops. */
  readonly #stopping = new AbortController();
  /** Aborts posts in progress. */
  readonly #abortPosts = new AbortController();
  readonly #delivering = new Set<Promise<void>>();
  readonly #sleepers = new Set<() => void>();
  /** Distinguishes the batches of this run in logs. */
  readonly #run: string;
  #batches = 0;
  #wakes = 0;
  #tickedMs: number;
  #held: readonly number[] = [];
  #unsubscribe: (() => void)[] = [];
  #loops: Promise<unknown> = Promise.resolve();
  #stopped: Promise<void> | undefined;

  constructor(parts: UplinkParts, options: UplinkOptions) {
    const { clock, holds, addresses, client } = parts;
    this.#parts = parts;
    this.#options = { ...options };
    this.#run = Math.floor(clock.wallMs() / 1000).toString(36);
    this.#tickedMs = clock.monotonicMs();
    this.#assets = new Assets(clock, this.#options);
    this.#health = new Health(clock, this.#options);
    this.#permits = new Permits(parts.budget, this.#options, this.#stopping.signal);
    this.#log = new UplinkLog(clock, parts.log, parts.hooks ?? {});
    this.#backfill = new BackfillRate(this.#options, clock.monotonicMs());
    this.#lag = new PostLag(this.#options);
    this.#deliverParts = {
      client,
      addresses,
      holds,
      clock,
      assets: this.#assets,
      health: this.#health,
      permits: this.#permits,
      lag: this.#lag,
      log: this.#log,
      options: this.#options,
      stopping: this.#stopping.signal,
      aborting: this.#abortPosts.signal,
    };
  }

  /** Starts posting. Resolves once the held series are registered with the buffer. */
  async start(): Promise<void> {
    const { buffer, holds } = this.#parts;
    await this.#registerHeld();
    this.#unsubscribe = [
      buffer.onChange(() => this.wake()),
      holds.onChange(() => {
        void this.#registerHeld();
        this.#lag.excuse(this.#parts.clock.monotonicMs());
        this.wake();
      }),
    ];
    this.#loops = Promise.all([this.#loop('live'), this.#loop('backlog'), this.#loop('probe'), this.#tick()]);
  }

  /**
   * Stops new posts. Posts in progress may finish within the budget (the shortest budget if called several times); the
   * other values return to the buffer.
   */
  async stop(budgetMs: number): Promise<void> {
    const cancel = this.#parts.clock.after(budgetMs, () => this.#abort());
    this.#stopped ??= this.#stop();
    await this.#stopped.finally(cancel);
  }

  async #stop(): Promise<void> {
    for (const unsubscribe of this.#unsubscribe) unsubscribe();
    this.#stopping.abort(new Error('the uplink is stopping'));
    this.wake();
    await this.#loops;
    await Promise.all(this.#delivering);
    this.#abort();
  }

  #abort(): void {
    this.#abortPosts.abort(new Error('the uplink is stopping'));
  }

  /**
   * During an outage, retries immediately after a session was obtained. Pauses after a 429 or an exhausted quota remain
   * in effect.
   */
  tryNow(): void {
    this.#health.tryNow('session');
    this.wake();
  }

  /** Sends a post at an operator's request (reload, `session renew`), even after a 429 or with an exhausted quota. */
  tryNowOnRequest(): void {
    this.#parts.budget.endRest();
    this.#health.tryNow('operator');
    this.wake();
  }

  /** Applies settings after a reload and sends a post immediately. */
  setPace(pace: UplinkOptions): void {
    Object.assign(this.#options, pace);
    this.#assets.forgetLimits();
    this.tryNowOnRequest();
  }

  /** Whether the uplink is running. */
  isAlive(nowMs: number): boolean {
    return nowMs - this.#tickedMs < ALIVE_MS;
  }

  /** Wakes the loops. */
  wake(): void {
    this.#wakes++;
    for (const wakeUp of this.#sleepers) wakeUp();
  }

  get #isStopping(): boolean {
    return this.#stopping.signal.aborted;
  }

  async #loop(kind: PostKind): Promise<void> {
    while (!this.#isStopping) {
      const wakes = this.#wakes;
      let untilMs: number;
      try {
        untilMs = await this.#step(kind);
      } catch (error) {
        // An unexpected error must not stop the loop.
        if (!this.#isStopping) this.#log.failed('plan', error);
        untilMs = this.#parts.clock.monotonicMs() + TICK_MS;
      }
      await this.#sleep(untilMs, wakes);
    }
  }

  /** Starts a post if one is due. Returns the time of the next step. */
  async #step(kind: PostKind): Promise<number> {
    const { clock } = this.#parts;
    const due = this.#choose(kind);
    if ('untilMs' in due) return due.untilMs;
    const permit = await this.#permits.acquire(kind);
    // The choice follows the permit, so that it is the most urgent post at this time.
    const choice = this.#choose(kind);
    if ('untilMs' in choice) {
      permit.refund();
      return choice.untilMs;
    }
    const isTrial = this.#health.outage !== undefined;
    const delivery = this.#deliver(choice, kind, permit, isTrial).finally(() => {
      this.#delivering.delete(delivery);
      this.wake();
    });
    this.#delivering.add(delivery);
    if (isTrial || kind === 'probe') await delivery;
    return clock.monotonicMs();
  }

  #choose(kind: PostKind): Choice {
    const { buffer, clock, holds } = this.#parts;
    const nowMs = clock.monotonicMs();
    if (!buffer.isReady()) {
      this.#lag.excuse(nowMs);
      return { untilMs: nowMs + TICK_MS };
    }
    const state = {
      nowMs,
      options: this.#options,
      lanes: buffer.lanes(),
      assets: this.#assets.states,
      isHeld: (asset: number) => holds.isHeld(asset),
      backfill: this.#backfill,
      failing: () => this.#assets.failing(),
    };
    const { outage } = this.#health;
    if (outage) {
      if (kind !== 'live') return { untilMs: Number.POSITIVE_INFINITY };
      if (outage.nextTryAtMs > nowMs) return { untilMs: outage.nextTryAtMs };
      return chooseTrial(state, outage.cause === 'rejected');
    }
    if (kind === 'live') return chooseLive(state);
    if (kind === 'backlog') return chooseBacklog(state);
    const nextTryAtMs = holds.nextTryAtMs();
    if (nextTryAtMs > nowMs) return { untilMs: nextTryAtMs };
    for (const probe of holds.due(nowMs)) {
      const asset = this.#assets.states.get(probe.asset);
      const isEmpty = !probe.onlySeries && !state.lanes.has(probe.asset) && !asset?.live && !asset?.backlog;
      if (isEmpty) holds.foundNothing(probe);
    }
    return chooseProbe(state, holds.due(nowMs));
  }

  async #deliver({ take, probe }: Post, kind: PostKind, permit: Permit, isTrial: boolean): Promise<void> {
    const { buffer, clock, holds } = this.#parts;
    const { asset, lane } = take;
    const state = this.#assets.of(asset);
    const own: readonly ('live' | 'backlog')[] = probe || take.alongValues ? ['live', 'backlog'] : [lane];
    for (const one of own) state[one] = true;
    const waiting = buffer.lanes().get(asset);
    const acceptedMs = lane === 'live' ? waiting?.oldestLiveAtMs : undefined;
    const startedMs = clock.monotonicMs();
    if (acceptedMs !== undefined) {
      // Older live values may have become backlog since the previous batch.
      const hasOlder = waiting!.backlog > 0 && Number.isFinite(state.endedAtMs);
      const sinceMs = hasOlder ? Math.min(acceptedMs, state.endedAtMs) : acceptedMs;
      if (kind === 'live' && !isTrial)
        this.#lag.note(sinceMs, Math.max(state.endedAtMs, state.pausedUntilMs), startedMs);
      state.lastLiveAtMs = startedMs;
    }
    let used: Permit | undefined = permit;
    try {
      const batch = await this.#take(take, probe !== undefined);
      if (!batch) {
        if (probe) holds.foundNothing(probe);
        else state.pausedUntilMs = Math.max(state.pausedUntilMs, startedMs + RETRY_MS);
        return;
      }
      const { backlogValues } = batch.whole;
      // Compared with the lanes before values were taken, because lanes exclude partly taken segments.
      state.isDraining = backlogValues > 0 && (waiting?.backlog ?? 0) > backlogValues;
      if (backlogValues > 0) state.lastBacklogAtMs = startedMs;
      const name = `${this.#run}-${++this.#batches}`;
      this.#log.taken({ name, asset }, batch.whole, { lane, kind: probe ? 'probe' : kind, isTrial });
      if (probe) holds.tried(probe);
      used = undefined;
      const isSearch = probe?.hold.cause === 'rejected' || (isTrial && this.#health.outage?.cause === 'rejected');
      await deliver({ name, asset, batch, acceptedMs, probe, isTrial, isSearch }, permit, this.#deliverParts);
    } catch (error) {
      if (error === this.#stopping.signal.reason) return;
      this.#log.failed(this.#isStopping ? 'post' : 'store', error);
      state.pausedUntilMs = clock.monotonicMs() + RETRY_MS;
    } finally {
      used?.refund();
      for (const one of own) state[one] = false;
      state.endedAtMs = clock.monotonicMs();
    }
  }

  async #take(take: Post['take'], isProbe: boolean): Promise<TakenBatch | undefined> {
    const { addresses, buffer } = this.#parts;
    // Reserved first, because the next post may be chosen in the meantime.
    const reserved = take.lane === 'backlog' ? take.maxValues : (take.alongValues ?? 0);
    this.#backfill.spend(reserved);
    let batch: TakenBatch | undefined;
    try {
      const maxBytes = this.#assets.maxBytes(take.asset);
      const request = { ...take, maxBytes, oneInstrumentation: addresses.byInstrumentation };
      batch = await buffer.take(request);
      if (!batch && isProbe) batch = await buffer.take({ ...request, lane: 'live' });
      return batch;
    } finally {
      this.#backfill.spend((batch?.whole.backlogValues ?? 0) - reserved);
    }
  }

  /** Registers the held series with the buffer. */
  async #registerHeld(): Promise<void> {
    const held = this.#parts.holds.heldSeries();
    if (held.length === this.#held.length && held.every((id, at) => id === this.#held[at])) return;
    const before = this.#held;
    this.#held = held;
    try {
      await this.#parts.buffer.holdSeries(held);
    } catch (error) {
      // Repeated by the next regular check.
      this.#held = before;
      this.#log.failed('store', error);
    }
  }

  async #tick(): Promise<void> {
    const { budget, clock } = this.#parts;
    while (!this.#isStopping) {
      const nowMs = clock.monotonicMs();
      this.#tickedMs = nowMs;
      void this.#registerHeld();
      if (budget.restingUntilMs !== undefined) this.#lag.excuse(budget.restingUntilMs);
      const change = this.#lag.change(nowMs);
      if (change) {
        const facts = { intervalMs: change.intervalMs, configuredMs: this.#options.postIntervalMs };
        const cause = budget.isLimited ? 'the request budget is too small' : 'posts take too long';
        this.#log.intervalChanged(change.isLengthened, facts, cause);
      }
      await clock.sleep(TICK_MS, this.#stopping.signal).catch(() => {});
    }
  }

  /** Sleeps until the time or the next wake-up. `wakes` is the number of wake-ups before the decision to sleep. */
  async #sleep(untilMs: number, wakes: number): Promise<void> {
    const { clock } = this.#parts;
    const nowMs = clock.monotonicMs();
    if (untilMs > nowMs && wakes === this.#wakes && !this.#isStopping) {
      await new Promise<void>((resolve) => {
        const wakeUp = () => {
          cancel();
          this.#sleepers.delete(wakeUp);
          resolve();
        };
        const cancel = clock.after(Math.min(untilMs - nowMs, TICK_MS), wakeUp);
        this.#sleepers.add(wakeUp);
      });
    }
    // Combines the wake-ups within one turn of the event loop.
    await new Promise((resolve) => setImmediate(resolve));
  }

  get deliveredValues(): number {
    return this.#log.deliveredValues;
  }

  get outage(): Readonly<Outage> | undefined {
    return this.#health.outage;
  }

  /** State for `status`. Times ending in `AtMs` are wall-clock times; durations are in milliseconds. */
  snapshot() {
    const { clock, budget, holds } = this.#parts;
    const nowMs = clock.monotonicMs();
    const { outage } = this.#health;
    const { restingUntilMs } = budget;
    const { deliveredValues, lastDeliveredAtMs, lastPostAtMs, lastRefusal, quarantinedValues } = this.#log;
    const waiting = holds.waitingSeries();
    return {
      state: outage ? ('away' as const) : ('online' as const),
      outage: outage && {
        forMs: nowMs - outage.sinceMs,
        code: outage.code,
        reason: outage.reason,
        isForeign: outage.cause === 'foreign',
        attempts: outage.attempts,
        nextTryInMs: Math.max(0, outage.nextTryAtMs - nowMs),
      },
      // Remaining pause after a 429.
      restsForMs: restingUntilMs === undefined ? undefined : restingUntilMs - nowMs,
      lastPostAtMs,
      lastDeliveredAtMs,
      lastRefusal,
      deliveredValues,
      quarantinedValues,
      postsInProgress: this.#permits.used,
      // POST_INTERVAL, or longer if the budget is too small.
      intervalMs: this.#lag.intervalMs(nowMs),
      maxBytes: this.#assets.maxBytes(),
      // Held series.
      waitingIds: waiting.map(({ series }) => series),
      waitingSeries: waiting.slice(0, MAX_LISTED),
      pausedAssets: this.#assets.paused().slice(0, MAX_LISTED),
    };
  }
}
