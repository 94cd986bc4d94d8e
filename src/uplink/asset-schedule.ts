/** What the uplink knows of each asset beside its lanes: what is under way, whose turn it is, who pauses. */

import type { Clock } from '../base/clock.ts';
import { fullJitterMs } from '../base/retry.ts';
import type { AssetLanes } from '../buffer/client/lanes.ts';
import { type BatchDelivery, isBusy } from './batch-delivery.ts';
import { liveDueAtMs, type PlanOptions, type ReadyDelivery, type ScheduledAssetView } from './planner.ts';

export interface ScheduledAsset extends ScheduledAssetView {
  live: BatchDelivery | undefined;
  backlog: BatchDelivery | undefined;
}

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

  /** A live batch that has values of the backlog beside it, or a probe: it has both lanes. */
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

  /** Notes whose turn has come, in the order in which it came. A flush must not cost an asset its place. */
  noteDueTimes(
    lanes: ReadonlyMap<number, AssetLanes>,
    nowMs: number,
    options: PlanOptions,
    isHeld: (asset: number) => boolean,
  ): void {
    // By forEach: an iterator makes an object a step, of every asset with every turn of the uplink.
    this.map.forEach((entry, asset) => {
      if (entry.dueSinceMs === undefined) return;
      // Nothing waits, or what waited went by the backlog's lane: who comes again later begins anew.
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

  /** Everybody waits for the same thing: nobody's wait counts. */
  clearDueTimes(): void {
    for (const entry of this.map.values()) entry.dueSinceMs = undefined;
  }

  /** The asset failed, not the platform as a whole. Gives how long it pauses. */
  pause(asset: number, minMs = 0): number {
    const entry = this.of(asset);
    const wait = fullJitterMs(entry.failures++, PAUSE, () => this.#clock.random(), MIN_PAUSE_MS);
    const pauseMs = Math.max(wait, Math.min(minMs, PAUSE.capMs));
    entry.pausedUntilMs = this.#clock.monotonicMs() + pauseMs;
    return pauseMs;
  }

  /** A post was taken. Says whether the asset failed before. */
  succeed(asset: number): boolean {
    const entry = this.of(asset);
    const wasFailing = entry.failures > 0;
    entry.failures = 0;
    entry.pausedUntilMs = Number.NEGATIVE_INFINITY;
    return wasFailing;
  }

  /** It was the platform: no asset is to blame, and nobody has waited longer than anyone else. */
  resetFailures(): void {
    for (const entry of this.map.values()) {
      entry.failures = 0;
      entry.pausedUntilMs = Number.NEGATIVE_INFINITY;
      entry.dueSinceMs = undefined;
    }
  }

  /** Deliveries that wait for their turn. */
  ready(): ReadyDelivery[] {
    const ready: ReadyDelivery[] = [];
    for (const { name, asset, lane, trial, state } of this.deliveries) {
      if (state.kind === 'ready') ready.push({ name, asset, lane, trial, sinceMs: state.sinceMs });
    }
    return ready;
  }

  /** The delivery of that name, which is under way. */
  named(name: string): BatchDelivery | undefined {
    for (const delivery of this.deliveries) if (delivery.name === name) return delivery;
    return undefined;
  }

  /** Whether one of them is tried while the platform is unavailable. */
  get hasTrial(): boolean {
    for (const { trial } of this.deliveries) if (trial) return true;
    return false;
  }

  /** Whether a batch waits for its request. */
  get isPaying(): boolean {
    for (const { state } of this.deliveries) if (state.kind === 'taking' || state.kind === 'paying') return true;
    return false;
  }

  /** Deliveries that have a socket: all, in the backlog lane, of assets that fail. */
  underWay(): { all: number; backlog: number; failing: number } {
    const counts = { all: 0, backlog: 0, failing: 0 };
    for (const delivery of this.deliveries) {
      if (!isBusy(delivery.state)) continue;
      counts.all++;
      if (delivery.lane === 'backlog') counts.backlog++;
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
