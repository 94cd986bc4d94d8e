/**
 * Probes: single posts for held assets and tags, for paused series, and for assets that were rejected with 403 or 404
 * while all assets were rejected.
 *
 * A probe is due until its post is sent. If the response is unrelated to access (outage, rate limit), the probe is due
 * again immediately.
 */
import type { Clock } from '../base/clock.ts';
import type { OutgoingBuffer } from '../buffer/client/lanes.ts';
import type { AssetSchedule } from './asset-schedule.ts';
import type { AccessPort, DueProbe, Probe } from './ports.ts';
import type { SeriesWaits } from './series-waits.ts';

export interface ProbesParts {
  buffer: Pick<OutgoingBuffer, 'holdSeries'>;
  access: AccessPort;
  clock: Clock;
  schedule: AssetSchedule;
  waits: SeriesWaits;
}

/** Maximum number of values in a probe. */
const PROBE_VALUES = 50;
/** Delay after a probe that found no values. */
const EMPTY_PROBE_MS = 30_000;

export class Probes {
  readonly #parts: ProbesParts;
  /**
   * Assets that were rejected with 403 or 404 while all assets were rejected. They are probed once any post is
   * accepted.
   */
  readonly retrySoon = new Set<number>();
  readonly #emptyUntil = new Map<string, number>();
  #update: Promise<void> = Promise.resolve();

  constructor(parts: ProbesParts) {
    this.#parts = parts;
  }

  /** Returns probes of holds that are due but have no buffered values. */
  unused(nowMs: number, lanes: ReadonlyMap<number, unknown>): Probe[] {
    const { access, schedule } = this.#parts;
    const unused = access.dueProbes(nowMs).filter(({ asset, onlySeries }) => !onlySeries && !lanes.has(asset));
    if (unused.length === 0) return [];
    const busy = new Set([...schedule.deliveries].map((delivery) => delivery.asset));
    return unused.filter(({ asset }) => !busy.has(asset));
  }

  /** Due probes, longest due first. */
  due(nowMs: number): DueProbe[] {
    const { access, schedule, waits } = this.#parts;
    const held = access.dueProbes(nowMs);
    const refused = waits.due(nowMs);
    if (held.length + refused.length + this.retrySoon.size === 0) return [];
    const inProgress = new Set([...schedule.deliveries].map((delivery) => delivery.probe?.hold));
    const probes: DueProbe[] = [];
    for (const probe of held) {
      const isInProgress = probe.hold !== undefined && inProgress.has(probe.hold);
      if (!isInProgress) probes.push({ ...probe, maxValues: PROBE_VALUES });
    }
    for (const { asset, series, nextTryAtMs } of refused) {
      probes.push({ asset, onlySeries: [series], dueSinceMs: nextTryAtMs, maxValues: 1 });
    }
    // The sort is stable, so the assets of an instrumentation keep their order.
    probes.sort((one, other) => (one.dueSinceMs ?? nowMs) - (other.dueSinceMs ?? nowMs));
    return [...this.#soon(), ...probes].filter((probe) => !this.#isEmpty(probe, nowMs));
  }

  #soon(): DueProbe[] {
    for (const asset of this.retrySoon) if (!this.#parts.access.isHeld(asset)) this.retrySoon.delete(asset);
    return [...this.retrySoon].map((asset) => ({ asset, maxValues: PROBE_VALUES }));
  }

  /**
   * Sends the complete set of held series to the buffer, one call at a time: those held by access, and paused series.
   */
  updateHeldSeries(): Promise<void> {
    const { access, buffer, waits } = this.#parts;
    this.#update = this.#update
      .catch(() => {})
      .then(() => buffer.holdSeries([...new Set([...access.heldSeries(), ...waits.ids()])]));
    return this.#update;
  }

  /** Records that the post of a probe is being sent. */
  sent(probe: DueProbe): void {
    const { access, waits, clock } = this.#parts;
    this.retrySoon.delete(probe.asset);
    access.probed(probe);
    if (!probe.hold) for (const series of probe.onlySeries ?? []) waits.postpone(series, clock.monotonicMs());
  }

  /** Makes a probe due again after a response that is unrelated to access. */
  makeDue(probe: DueProbe): void {
    const { access, waits, clock } = this.#parts;
    access.unanswered(probe);
    if (!probe.hold) for (const series of probe.onlySeries ?? []) waits.makeDue(series, clock.monotonicMs());
  }

  /** Records that a probe found no values. Returns whether a series pause ended. */
  foundNothing(probe: DueProbe, nowMs: number): boolean {
    const dropped = probe.hold ? [] : (probe.onlySeries ?? []).filter((series) => this.#parts.waits.remove(series));
    if (dropped.length === 0) this.#emptyUntil.set(nameOf(probe), nowMs + EMPTY_PROBE_MS);
    return dropped.length > 0;
  }

  #isEmpty(probe: DueProbe, nowMs: number): boolean {
    const name = nameOf(probe);
    const untilMs = this.#emptyUntil.get(name);
    if (untilMs === undefined) return false;
    if (untilMs > nowMs) return true;
    this.#emptyUntil.delete(name);
    return false;
  }
}

const nameOf = ({ asset, hold, onlySeries }: DueProbe) => `${asset} ${hold ?? onlySeries?.join() ?? ''}`;
