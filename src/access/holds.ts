import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';
import type { Tag } from '../config/tags.ts';
import { type ArrivedAccessEvent, readAccessEvent } from './access-event.ts';
import {
  AccessState,
  type Hold,
  type HoldCause,
  type HoldChange,
  type HoldDifference,
  type HoldKey,
  keyOf,
  type SeriesOfAssets,
} from './access-state.ts';
import { HoldLog, type ReleaseCause } from './hold-log.ts';
import type { LoadedHolds } from './hold-table.ts';

/**
 * Assets and tags whose values are held because this technical user has no access to them (docs/interface.md, "Held
 * assets"). `AccessState` describes when a hold begins and ends.
 *
 * Invariants: an event takes effect after it is on disk (`apply`). A response takes effect immediately and is saved
 * once the disk accepts writes. The order of events does not matter. A hold caused by an event ends only with the
 * response to a probe, because earlier posts do not reflect the current access. The state in memory mirrors the table.
 * A crash loses the latest rejections and releases, which the next responses restore.
 */
export interface HoldStore {
  load(): Promise<LoadedHolds>;
  save(change: HoldChange): Promise<void>;
}

export interface HoldsOptions {
  store: HoldStore;
  tags: Iterable<Tag>;
  series: SeriesOfAssets;
  clock: Clock;
  logger: Logger;
}

export interface AssetProbe {
  asset: number;
  /** Series to probe with; other series of the asset are not held. */
  onlySeries?: readonly number[];
  hold?: HoldKey;
  /** Monotonic time at which the probe became due, in milliseconds. The earliest probe is sent first. */
  dueSinceMs?: number;
}

/** Hold as reported by `status`. Times are wall-clock times in ISO 8601 format. */
export interface HoldLine {
  kind: 'asset' | 'instrumentation';
  id: number;
  cause: HoldCause;
  since: string;
  /** Time of the latest probe; `null` if no probe returned a response about access. */
  last_probe: string | null;
  next_probe_in_seconds: number | null;
  tags: string[];
}

const REFUSED_EVERY_MS = 2 * 60_000;
const GONE_EVERY_MS = 15 * 60_000;
/** Delay of the first probes after startup, randomized so that the gateways of a site do not probe at the same time. */
const REFUSED_FIRST_MS = { from: 5_000, to: 60_000 };
const GONE_FIRST_MS = { from: 2 * 60_000, to: 5 * 60_000 };
/**
 * Time after an asset appears during which its first rejection is ignored, because the post may have been sent earlier.
 */
const APPEARED_GRACE_MS = 10_000;

/** Probe schedule of a hold. Times are monotonic, in milliseconds. */
interface HoldProbes {
  /** Time at which the hold is due. It stays due until its probe is sent. */
  nextAtMs: number;
  intervalMs: number;
  lastAtMs: number | undefined;
  /** Value of `lastAtMs` before the post in progress. */
  beforeMs: number | undefined;
  /** Asset of the post in progress. */
  postedTo: number | undefined;
  /** Number of probes sent. The assets of an instrumentation are probed in turn. */
  sent: number;
}

export class Holds {
  readonly #options: HoldsOptions;
  readonly #state: AccessState;
  /** Schedules by hold key; every hold has one. */
  readonly #probes = new Map<HoldKey, HoldProbes>();
  readonly #listeners = new Set<() => void>();
  /** Monotonic end of the grace period of an asset that appeared, in milliseconds. */
  readonly #grace = new Map<number, number>();
  readonly #log: HoldLog;
  #saving: Promise<unknown> = Promise.resolve();
  #cursor = 0;

  constructor(options: HoldsOptions) {
    this.#options = options;
    this.#log = new HoldLog(options.clock, options.logger);
    this.#state = new AccessState(options.tags, options.series);
  }

  /** Loads the table. Before that, nothing is held. Throws `StoreError`. */
  async start(): Promise<void> {
    const { clock, logger, store } = this.#options;
    const loaded = await store.load();
    if (loaded.damaged > 0) {
      logger.warn({ event: 'access.damaged', rows: loaded.damaged }, 'holds with an invalid checksum removed');
    }
    this.#cursor = loaded.cursor;
    const { refusals, objects } = loaded;
    this.#apply(this.#state.commit({ refusals, objects }), 'proved', (intervalMs) => {
      const { from, to } = intervalMs === REFUSED_EVERY_MS ? REFUSED_FIRST_MS : GONE_FIRST_MS;
      return from + clock.random() * (to - from);
    });
  }

  /** Inbox ID up to which all events are on disk. */
  get cursor(): number {
    return this.#cursor;
  }

  /** Schedules a probe of every hold as soon as the request budget allows. */
  tryNow(): void {
    for (const key of this.#probes.keys()) this.#makeDue(key);
    for (const listener of this.#listeners) listener();
  }

  /** Schedules probes of assets whose values an operator withdrew, because their holds may be unused. */
  withdrawn(assets: Iterable<number>): void {
    for (const asset of assets) this.#makeDue(asset);
  }

  /** Waits until pending changes have been saved or rejected by the disk. */
  async stop(): Promise<void> {
    await this.#saving;
  }

  /**
   * Applies an inbox event; events of other types have no effect. Resolves when the change is on disk and in effect. If
   * it throws `StoreError`, nothing has changed. Events can arrive in any order and more than once.
   */
  async apply(event: ArrivedAccessEvent): Promise<void> {
    const read = readAccessEvent(event);
    if (!read) return;
    // The asset inherits the permissions of the instrumentation. One probe checks its access.
    if (read.kind === 'associated') return this.#makeDue(read.asset);
    const { clock, logger } = this.#options;
    await this.#oneAtATime(async () => {
      const outcome = this.#state.decide(read, clock.wallMs());
      if (!outcome) return;
      await this.#options.store.save({ ...outcome.change, cursor: event.id });
      if (!read.gone) this.#beginGrace(outcome.assets);
      this.#apply(this.#state.commit(outcome.change));
      if (read.object !== 'node') return;
      if (read.gone) return logger.info({ event: 'access.node_lost', node: read.id }, 'node disappeared');
      logger.info({ event: 'access.node_found', node: read.id }, 'node appeared, retrying held assets');
      for (const key of this.#probes.keys()) this.#makeDue(key);
    });
  }

  isHeld(asset: number): boolean {
    return this.#state.holds.has(asset);
  }

  heldSeries(): readonly number[] {
    return this.#state.heldSeries();
  }

  /** Number of held assets, for `tagferry_assets_held`. */
  heldCount(): number {
    return [...this.#state.holds.keys()].filter((key) => key > 0).length;
  }

  /**
   * Returns the due probes, longest due first, each to be sent as one post of kind `probe`. Changes nothing: a hold
   * stays due until `probed` is called. An instrumentation hold has one entry per asset; sending one of them is
   * sufficient.
   */
  dueProbes(nowMonotonicMs: number): AssetProbe[] {
    const due = [...this.#probes].filter(([, { nextAtMs }]) => nextAtMs <= nowMonotonicMs);
    due.sort(([, one], [, other]) => one.nextAtMs - other.nextAtMs);
    return due.flatMap(([hold, { nextAtMs: dueSinceMs, sent }]): AssetProbe[] => {
      const { kind, id } = this.#state.holds.get(hold)!;
      if (kind === 'asset') return [{ asset: id, hold, dueSinceMs }];
      const choices = this.#state.seriesOfInstrumentation(id);
      return choices.map((_, at) => {
        const { asset, series } = choices[(sent + at) % choices.length]!;
        return { asset, onlySeries: series, hold, dueSinceMs };
      });
    });
  }

  /** Records that the post of a probe is being sent. */
  probed({ asset, onlySeries, hold }: AssetProbe): void {
    const probes = this.#probesOf(asset, onlySeries, hold);
    if (!probes) return;
    probes.beforeMs = probes.lastAtMs;
    probes.lastAtMs = this.#options.clock.monotonicMs();
    probes.nextAtMs = probes.lastAtMs + probes.intervalMs;
    probes.postedTo = asset;
    probes.sent++;
  }

  /**
   * Makes a probe due again after its post received no response, or a response unrelated to access. Holds that were
   * already due keep their precedence.
   */
  unanswered({ asset, onlySeries, hold }: AssetProbe): void {
    const probes = this.#probesOf(asset, onlySeries, hold);
    if (!probes) return;
    probes.postedTo = undefined;
    probes.lastAtMs = probes.beforeMs;
    probes.nextAtMs = Math.min(probes.nextAtMs, this.#options.clock.monotonicMs());
  }

  /** Monotonic time of the next due probe; `undefined` while nothing is held. */
  nextProbeAtMs(): number | undefined {
    if (this.#probes.size === 0) return undefined;
    return Math.min(...[...this.#probes.values()].map(({ nextAtMs }) => nextAtMs));
  }

  /**
   * Records a 403 or 404 response to a post. Takes effect immediately; never throws. If the post URL contains an
   * instrumentation, the response concerns only that instrumentation.
   */
  async refused(asset: number, status: 403 | 404, series?: readonly number[], instrumentation?: number): Promise<void> {
    const { clock } = this.#options;
    this.#endPosts(asset);
    const graceUntil = this.#grace.get(asset);
    this.#grace.delete(asset);
    if (graceUntil !== undefined && clock.monotonicMs() < graceUntil) return;
    if (this.isHeld(asset)) return;
    // If the probe of a tag is rejected, its hold remains. Other posts of the asset show whether the whole asset is
    // rejected.
    const tagHeld = new Set(this.heldSeries());
    if (series?.length && series.every((id) => tagHeld.has(id))) return;
    const object =
      instrumentation === undefined
        ? ({ kind: 'asset', id: asset } as const)
        : ({ kind: 'instrumentation', id: instrumentation } as const);
    this.#apply(this.#state.commit({ refusals: [{ ...object, status, sinceMs: clock.wallMs() }] }));
    await this.#saveLater(() => {
      const refusal = this.#state.refusal(keyOf(object));
      return refusal && { refusals: [refusal] };
    });
  }

  /**
   * Records a 2xx response to a post. Releases the holds that the post probed, and the asset if it is held only because
   * of responses. Never throws.
   */
  async delivered(asset: number, series: readonly number[]): Promise<void> {
    const keys = this.#endPosts(asset);
    // Any 2xx response ends a hold caused by a response. The uplink also probes on its own after an outage.
    if (keys.length > 0 || isAnswered(this.#state.holds.get(asset))) keys.push(asset);
    const change = keys.length === 0 ? undefined : this.#state.proved(keys, asset, series);
    if (change) await this.#release(change, 'proved');
  }

  /**
   * Records that a hold has no value to probe with. If no tag references its object either, the hold ends and later
   * values are posted. Never throws.
   */
  async foundNothing({ asset, hold }: AssetProbe): Promise<void> {
    const held = hold === undefined ? undefined : this.#state.holds.get(hold);
    if (!held) return;
    // Another asset of the instrumentation may have values.
    const isOnly =
      held.kind === 'asset' || this.#state.seriesOfInstrumentation(held.id).every((one) => one.asset === asset);
    const change = isOnly ? this.#state.unused(keyOf(held)) : undefined;
    if (change) await this.#release(change, 'unused');
  }

  async #release({ objects = [], released = [] }: HoldChange, why: ReleaseCause): Promise<void> {
    this.#apply(this.#state.commit({ objects, released }), why);
    await this.#saveLater(() => ({
      // Reads the state when the write starts, because an event may have changed it.
      objects: objects.map(({ kind, id }) => this.#state.object(kind, id)).filter((one) => one !== undefined),
      released: released.filter((one) => !this.#state.refusal(keyOf(one))),
    }));
  }

  /** Applies the tags of a reload and probes every hold, because a reload often follows a fix. */
  setTags(tags: Iterable<Tag>): void {
    this.#apply(this.#state.setTags(tags));
    this.tryNow();
  }

  /** Calls the listener after each change, until the returned function is called. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Returns the holds for `status`, oldest first. */
  list(): HoldLine[] {
    const { clock } = this.#options;
    const nowMs = clock.monotonicMs();
    const holds = [...this.#state.holds.values()].sort((one, other) => one.sinceMs - other.sinceMs);
    return holds.map((hold) => {
      const { kind, id, cause, sinceMs } = hold;
      const { lastAtMs, nextAtMs } = this.#probes.get(keyOf(hold))!;
      return {
        kind,
        id,
        cause,
        since: isoOf(sinceMs),
        last_probe: lastAtMs === undefined ? null : isoOf(clock.wallMs() - (nowMs - lastAtMs)),
        next_probe_in_seconds: Math.max(0, Math.round((nextAtMs - nowMs) / 1000)),
        tags: this.#state.tagsOf(hold),
      };
    });
  }

  /**
   * Returns the nodes that disappeared, for `status`; their assets have their own events. Times are wall-clock times in
   * ISO 8601 format.
   */
  lostNodes(): { node: number; since: string }[] {
    return this.#state.lostNodes().map(({ id, sinceMs }) => ({ node: id, since: isoOf(sinceMs) }));
  }

  /** Makes a hold due now, because its probe is likely to succeed. */
  #makeDue(key: HoldKey): void {
    const probes = this.#probes.get(key);
    if (probes) probes.nextAtMs = Math.min(probes.nextAtMs, this.#options.clock.monotonicMs());
  }

  /** Returns the schedule to which a probe belongs. A probe of a paused series belongs to no hold. */
  #probesOf(asset: number, onlySeries: readonly number[] | undefined, hold = onlySeries ? undefined : asset) {
    return hold === undefined ? undefined : this.#probes.get(hold);
  }

  /** Clears the posts in progress for an asset and returns the holds that they probed. */
  #endPosts(asset: number): HoldKey[] {
    const posted = [...this.#probes].filter(([, { postedTo }]) => postedTo === asset);
    for (const [, probes] of posted) probes.postedTo = undefined;
    return posted.map(([key]) => key);
  }

  #beginGrace(assets: readonly number[]): void {
    const nowMs = this.#options.clock.monotonicMs();
    for (const asset of assets) this.#grace.set(asset, nowMs + APPEARED_GRACE_MS);
    if (this.#grace.size < 1_000) return;
    for (const [asset, endMs] of this.#grace) if (endMs <= nowMs) this.#grace.delete(asset);
  }

  /** Updates the schedules, logs the change and notifies the listeners. */
  #apply(
    difference: HoldDifference,
    why: ReleaseCause = 'proved',
    firstInMs: (intervalMs: number) => number = (intervalMs) => intervalMs,
  ): void {
    const nowMs = this.#options.clock.monotonicMs();
    for (const hold of difference.released) this.#probes.delete(keyOf(hold));
    for (const [key, hold] of this.#state.holds) {
      const intervalMs = isAnswered(hold) ? REFUSED_EVERY_MS : GONE_EVERY_MS;
      const known = this.#probes.get(key) ?? { lastAtMs: undefined, beforeMs: undefined, postedTo: undefined, sent: 0 };
      if ('intervalMs' in known && known.intervalMs === intervalMs) continue;
      this.#probes.set(key, { ...known, intervalMs, nextAtMs: nowMs + firstInMs(intervalMs) });
    }
    if (difference.held.length + difference.released.length === 0) return;
    this.#log.changed(difference, why);
    for (const listener of this.#listeners) listener();
  }

  /**
   * Queues a write. A disk error is only logged, because the state remains in memory and the next response triggers
   * another write.
   */
  async #saveLater(change: () => HoldChange | undefined): Promise<void> {
    await this.#oneAtATime(async () => {
      const now = change();
      if (now) await this.#options.store.save(now);
    }).catch((error) => this.#log.unsaved(error));
  }

  #oneAtATime(work: () => Promise<void>): Promise<void> {
    const done = this.#saving.then(work);
    this.#saving = done.catch(() => {});
    return done;
  }
}

/** Whether only a response caused the hold. */
function isAnswered(hold: Hold | undefined): boolean {
  return hold?.cause === 'answered_403' || hold?.cause === 'answered_404';
}

function isoOf(ms: number): string {
  return new Date(Math.min(8.64e15, Math.max(-8.64e15, ms))).toISOString();
}
