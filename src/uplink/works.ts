/** What the uplink knows of each asset beside its lanes: what is under way, whose turn it is, who pauses. */
import type { AssetLanes } from '../buffer/lanes.ts';
import type { Clock } from '../clock.ts';
import { fullJitterMs } from '../retry.ts';
import type { Course } from './course.ts';
import { type AssetWork, liveDueAtMs, type PlanOptions } from './planner.ts';

export interface Work extends AssetWork {
  live: Course | undefined;
  backlog: Course | undefined;
}

const PAUSE = { baseMs: 2_000, capMs: 60_000 };
const LEAST_PAUSE_MS = 500;

export class Works {
  readonly map = new Map<number, Work>();
  readonly courses = new Set<Course>();
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  of(asset: number): Work {
    let work = this.map.get(asset);
    if (!work) {
      work = {
        live: undefined,
        backlog: undefined,
        dueSinceMs: undefined,
        pausedUntilMs: Number.NEGATIVE_INFINITY,
        failures: 0,
        lastPostAtMs: Number.NEGATIVE_INFINITY,
        lastBacklogAtMs: Number.NEGATIVE_INFINITY,
      };
      this.map.set(asset, work);
    }
    return work;
  }

  begin(course: Course): void {
    const work = this.of(course.asset);
    this.courses.add(course);
    work[course.lane] = course;
  }

  /** A live batch that has values of the backlog beside it, or a probe: it has both lanes. */
  occupyBoth(course: Course): void {
    const work = this.of(course.asset);
    work.live ??= course;
    work.backlog ??= course;
  }

  end(course: Course): void {
    const work = this.of(course.asset);
    this.courses.delete(course);
    if (work.live === course) work.live = undefined;
    if (work.backlog === course) work.backlog = undefined;
  }

  /** Notes whose turn has come, in the order in which it came. Folding must not cost an asset its place. */
  noteTurns(
    lanes: ReadonlyMap<number, AssetLanes>,
    nowMs: number,
    options: PlanOptions,
    isHeld: (asset: number) => boolean,
  ): void {
    for (const [asset, work] of this.map) {
      // Nothing waits, or what waited went by the backlog's lane: who comes again later begins anew.
      const lane = lanes.get(asset);
      const isOver =
        !lane || (lane.live === 0 && (lane.backlog === 0 || work.lastPostAtMs > (work.dueSinceMs ?? nowMs)));
      if (isOver) work.dueSinceMs = undefined;
    }
    for (const lane of lanes.values()) {
      if (liveDueAtMs(lane, options) > nowMs) continue;
      const work = this.of(lane.asset);
      const waitsForItself =
        work.live !== undefined ||
        work.pausedUntilMs > nowMs ||
        isHeld(lane.asset) ||
        (options.drainOrder === 'oldest-first' && (lane.backlog > 0 || work.backlog !== undefined));
      if (waitsForItself) work.dueSinceMs = undefined;
      else work.dueSinceMs ??= nowMs;
    }
  }

  /** Everybody waits for the same thing: nobody's wait counts. */
  forgetTurns(): void {
    for (const work of this.map.values()) work.dueSinceMs = undefined;
  }

  /** The asset failed, not the platform as a whole. Gives how long it pauses. */
  pause(asset: number, leastMs = 0): number {
    const work = this.of(asset);
    const wait = fullJitterMs(work.failures++, PAUSE, () => this.#clock.random(), LEAST_PAUSE_MS);
    const pauseMs = Math.max(wait, Math.min(leastMs, PAUSE.capMs));
    work.pausedUntilMs = this.#clock.monotonicMs() + pauseMs;
    return pauseMs;
  }

  /** A post was taken. Says whether the asset was in trouble before. */
  succeed(asset: number): boolean {
    const work = this.of(asset);
    const wasInTrouble = work.failures > 0;
    work.failures = 0;
    work.pausedUntilMs = Number.NEGATIVE_INFINITY;
    return wasInTrouble;
  }

  /** It was the platform: no asset is to blame, and nobody has waited longer than anyone else. */
  forgive(): void {
    for (const work of this.map.values()) {
      work.failures = 0;
      work.pausedUntilMs = Number.NEGATIVE_INFINITY;
      work.dueSinceMs = undefined;
    }
  }

  /** Courses with posts under way: all, in the backlog lane, of assets in trouble. */
  underWay(): { all: number; backlog: number; troubled: number } {
    const counts = { all: 0, backlog: 0, troubled: 0 };
    for (const course of this.courses) {
      if (!course.isBusy) continue;
      counts.all++;
      if (course.lane === 'backlog') counts.backlog++;
      if (this.of(course.asset).failures > 0) counts.troubled++;
    }
    return counts;
  }

  paused(nowMs: number): { asset: number; failures: number; untilMs: number }[] {
    return [...this.map]
      .filter(([, work]) => work.pausedUntilMs > nowMs)
      .map(([asset, work]) => ({ asset, failures: work.failures, untilMs: work.pausedUntilMs }));
  }
}
