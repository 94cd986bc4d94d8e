/** Delivery state of each asset: deliveries in progress, due times and pauses. */

import type { Clock } from '../base/clock.ts';
import { fullJitterMs } from '../base/retry.ts';
import type { AssetLanes } from '../buffer/client/lanes.ts';
import type { BatchDelivery } from './delivery.ts';
import { liveDueAtMs, type PlanOptions, type ScheduledAsset } from './planner.ts';

const PAUSE = { baseMs: 2_000, capMs: 60_000 };
const MIN_PAUSE_MS = 500;

export class AssetSchedule {
  readonly map = new Map<number, ScheduledAsset>();
  readonly deliveries = new Set<BatchDelivery>();
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  of(asset: number): ScheduledAsset {
    let entry = this.map.get(asset);
    if (!entry) {
      entry = {
        live: undefined,
        backlog: undefined,
        dueSinceMs: undefined,
        pausedUntilMs: Number.NEGATIVE_INFINITY,
        failures: 0,
        lastPostAtMs: Number.NEGATIVE_INFINITY,
        lastBacklogAtMs: Number.NEGATIVE_INFINITY,
        isDraining: false,
      };
      this.map.set(asset, entry);
    }
    return entry;
  }

  begin(delivery: BatchDelivery): void {
    const entry = this.of(delivery.asset);
    this.deliveries.add(delivery);
    entry[delivery.lane] = delivery;
  }

  /** Reserves both lanes of the asset, for a probe or for a live batch that includes backlog values. */
  occupyBoth(delivery: BatchDelivery): void {
    const entry = this.of(delivery.asset);
    entry.live ??= delivery;
    entry.backlog ??= delivery;
  }

  end(delivery: BatchDelivery): void {
    const entry = this.of(delivery.asset);
    this.deliveries.delete(delivery);
    if (entry.live === delivery) entry.live = undefined;
    if (entry.backlog === delivery) entry.backlog = undefined;
  }

  /** Records when assets became due. A flush does not change an asset's position in the order. */
  noteDueTimes(
    lanes: ReadonlyMap<number, AssetLanes>,
    nowMs: number,
    options: PlanOptions,
    isHeld: (asset: number) => boolean,
  ): void {
    // forEach allocates no iterator results, and this loop visits every asset in every turn.
    this.map.forEach((entry, asset) => {
      if (entry.dueSinceMs === undefined) return;
      // No live values are waiting, or a post from the backlog lane included them.
      const lane = lanes.get(asset);
      const isOver = !lane || (lane.live === 0 && (lane.backlog === 0 || entry.lastPostAtMs > entry.dueSinceMs));
      if (isOver) entry.dueSinceMs = undefined;
    });
    lanes.forEach((lane) => {
      if (liveDueAtMs(lane, options) > nowMs) return;
      const entry = this.of(lane.asset);
      const waitsForItself =
        entry.live !== undefined ||
        entry.pausedUntilMs > nowMs ||
        isHeld(lane.asset) ||
        (options.drainOrder === 'oldest-first' && (lane.backlog > 0 || entry.backlog !== undefined));
      if (waitsForItself) entry.dueSinceMs = undefined;
      else entry.dueSinceMs ??= nowMs;
    });
  }

  /** Clears all due times while all assets are waiting for the same reason. */
  clearDueTimes(): void {
    for (const entry of this.map.values()) entry.dueSinceMs = undefined;
  }

  /** Pauses a failing asset. Returns the duration of the pause, in milliseconds. */
  pause(asset: number, minMs = 0): number {
    const entry = this.of(asset);
    const wait = fullJitterMs(entry.failures++, PAUSE, () => this.#clock.random(), MIN_PAUSE_MS);
    const pauseMs = Math.max(wait, Math.min(minMs, PAUSE.capMs));
    entry.pausedUntilMs = this.#clock.monotonicMs() + pauseMs;
    return pauseMs;
  }

  /** Records an accepted post. Returns whether the asset was failing. */
  succeed(asset: number): boolean {
    const entry = this.of(asset);
    const wasFailing = entry.failures > 0;
    entry.failures = 0;
    entry.pausedUntilMs = Number.NEGATIVE_INFINITY;
    return wasFailing;
  }

  /** Clears failures, pauses and due times, because the whole platform failed. */
  resetFailures(): void {
    for (const entry of this.map.values()) {
      entry.failures = 0;
      entry.pausedUntilMs = Number.NEGATIVE_INFINITY;
      entry.dueSinceMs = undefined;
    }
  }

  /** Returns the deliveries that are waiting for their turn. */
  ready(): BatchDelivery[] {
    return [...this.deliveries].filter(({ phase }) => phase === 'ready');
  }

  /** Whether a trial post is in progress during an outage. */
  get hasTrial(): boolean {
    for (const { trial } of this.deliveries) if (trial) return true;
    return false;
  }

  /** Whether a batch is waiting for a request from the budget. */
  get isPaying(): boolean {
    for (const { phase } of this.deliveries) if (phase === 'reading' || phase === 'paying') return true;
    return false;
  }

  /** Counts deliveries that use a socket: in total, in the backlog lane, for failing assets, and for probes. */
  inProgress(): { all: number; backlog: number; failing: number; probes: number } {
    const counts = { all: 0, backlog: 0, failing: 0, probes: 0 };
    for (const delivery of this.deliveries) {
      if (delivery.phase === 'ready' || delivery.phase === 'parked') continue;
      counts.all++;
      if (delivery.lane === 'backlog') counts.backlog++;
      if (delivery.kind === 'probe') counts.probes++;
      if (this.of(delivery.asset).failures > 0) counts.failing++;
    }
    return counts;
  }

  paused(nowMs: number): { asset: number; failures: number; untilMs: number }[] {
    return [...this.map]
      .filter(([, entry]) => entry.pausedUntilMs > nowMs)
      .map(([asset, entry]) => ({ asset, failures: entry.failures, untilMs: entry.pausedUntilMs }));
  }
}
