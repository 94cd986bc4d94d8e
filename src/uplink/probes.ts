/**
 * What is tried with one post now and then: held assets and tags, series that wait because their values are refused, and
 * assets that were answered 404 while everything was.
 *
 * A probe is due until its post goes out; where there is no room for it, it keeps its place in the turn. What the answer
 * says nothing about (the platform was unavailable, too many requests) is due again at once. In memory only: holds have their own
 * schedule, the others are found out anew.
 */
import type { Clock } from '../base/clock.ts';
import type { AssetSchedule } from './asset-schedule.ts';
import type { ProbeView } from './planner.ts';
import type { AccessPort, Probe } from './ports.ts';
import type { SeriesWaits } from './series-waits.ts';

export interface ProbesParts {
  access: AccessPort;
  clock: Clock;
  schedule: AssetSchedule;
  waits: SeriesWaits;
}

/** Enough to go on with where it is taken, and little where it is not. */
const PROBE_VALUES = 50;
/** A probe that found nothing to post is not repeated at once. */
const EMPTY_PROBE_MS = 30_000;

export class Probes {
  readonly #parts: ProbesParts;
  /** Assets that were answered 403 or 404 while everything was: tried as soon as something is taken. */
  readonly retrySoon = new Set<number>();
  readonly #emptyUntil = new Map<string, number>();

  constructor(parts: ProbesParts) {
    this.#parts = parts;
  }

  /** Holds that are due although nothing waits for them. */
  unused(nowMs: number, lanes: ReadonlyMap<number, unknown>): Probe[] {
    const { access, schedule } = this.#parts;
    const unused = access.dueProbes(nowMs).filter(({ asset, onlySeries }) => !onlySeries && !lanes.has(asset));
    if (unused.length === 0) return [];
    const busy = new Set([...schedule.deliveries].map((delivery) => delivery.asset));
    return unused.filter(({ asset }) => !busy.has(asset));
  }

  /** What could be tried now, longest due first. */
  due(nowMs: number): ProbeView[] {
    const { access, schedule, waits } = this.#parts;
    const held = access.dueProbes(nowMs);
    const refused = waits.due(nowMs);
    // As nearly always.
    if (held.length + refused.length + this.retrySoon.size === 0) return [];
    const underWay = new Set([...schedule.deliveries].map((delivery) => delivery.probe?.hold));
    const probes: ProbeView[] = [];
    for (const probe of held) {
      const isUnderWay = probe.hold !== undefined && underWay.has(probe.hold);
      if (!isUnderWay) probes.push({ ...probe, maxValues: PROBE_VALUES });
    }
    for (const { asset, series, nextTryAtMs } of refused) {
      probes.push({ asset, onlySeries: [series], dueSinceMs: nextTryAtMs, maxValues: 1 });
    }
    // The sort is stable: an instrumentation's assets stay in their turn.
    probes.sort((one, other) => (one.dueSinceMs ?? nowMs) - (other.dueSinceMs ?? nowMs));
    return [...this.#soon(), ...probes].filter((probe) => !this.#isEmpty(probe, nowMs));
  }

  #soon(): ProbeView[] {
    for (const asset of this.retrySoon) if (!this.#parts.access.isHeld(asset)) this.retrySoon.delete(asset);
    return [...this.retrySoon].map((asset) => ({ asset, maxValues: PROBE_VALUES }));
  }

  /** From now on it counts as tried. */
  goesOut(probe: ProbeView): void {
    const { access, waits, clock } = this.#parts;
    this.retrySoon.delete(probe.asset);
    access.probed(probe);
    if (!probe.hold) for (const series of probe.onlySeries ?? []) waits.putOff(series, clock.monotonicMs());
  }

  /** The answer says nothing about what was tried: its turn is not over. */
  dueAgain(probe: ProbeView): void {
    const { access, waits, clock } = this.#parts;
    access.unanswered(probe);
    if (!probe.hold) for (const series of probe.onlySeries ?? []) waits.putBack(series, clock.monotonicMs());
  }

  /** There was nothing to try it with. Returns whether series ceased to wait by it. */
  foundNothing(probe: ProbeView, nowMs: number): boolean {
    const dropped = probe.hold ? [] : (probe.onlySeries ?? []).filter((series) => this.#parts.waits.drop(series));
    if (dropped.length === 0) this.#emptyUntil.set(nameOf(probe), nowMs + EMPTY_PROBE_MS);
    return dropped.length > 0;
  }

  #isEmpty(probe: ProbeView, nowMs: number): boolean {
    const name = nameOf(probe);
    const untilMs = this.#emptyUntil.get(name);
    if (untilMs === undefined) return false;
    if (untilMs > nowMs) return true;
    this.#emptyUntil.delete(name);
    return false;
  }
}

const nameOf = ({ asset, hold, onlySeries }: ProbeView) => `${asset} ${hold ?? onlySeries?.join() ?? ''}`;
