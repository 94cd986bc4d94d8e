/**
 * Assets, instrumentations and series whose values are held. Held values stay in the buffer; a hold is probed with
 * single posts at the interval of its cause.
 *
 *   free ── 403 or 404 ───────────► answered_… ──────── 2xx, appeared, unused ──► free
 *   free ── disappeared ──────────► …_disappeared ───── 2xx, appeared, unused ──► free
 *   free ── rejected repeatedly ──► rejected ────────── 2xx ────────────────────► free
 *   free ── no instrumentation ───► no_address ──────── 2xx ────────────────────► free
 *
 * Holds because of access are stored on disk. A hold takes effect immediately, even if it cannot be stored; a crash
 * loses only the latest ones, which the next responses restore.
 */

import type { AccessCause, HeldObject, HoldChange, LoadedHolds, StoredHold } from '../access/access-table.ts';
import type { EventHolds } from '../access/follower.ts';
import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf } from '../base/errors.ts';
import { GatheredLines, MAX_NAMED } from '../base/gathered-lines.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import type { Refusal } from '../buffer/client/lanes.ts';
import type { SeriesCatalogue } from '../buffer/series.ts';
import type { Tag } from '../config/tags.ts';
import { QUARANTINE_HINT } from './uplink-log.ts';

export type HoldCause = AccessCause | 'rejected' | 'no_address';
type HoldKind = HeldObject['kind'] | 'series';

const MINUTE_MS = 60_000;
/**
 * Interval between probes by cause, and range of the delay of the first probe after startup, which is random so that
 * the gateways of a site do not probe at the same time. In milliseconds.
 */
const INTERVALS: Record<HoldCause, { everyMs: number; firstMs: readonly [number, number] }> = {
  answered_403: { everyMs: 2 * MINUTE_MS, firstMs: [5_000, MINUTE_MS] },
  answered_404: { everyMs: 2 * MINUTE_MS, firstMs: [5_000, MINUTE_MS] },
  asset_disappeared: { everyMs: 15 * MINUTE_MS, firstMs: [2 * MINUTE_MS, 5 * MINUTE_MS] },
  instrumentation_disappeared: { everyMs: 15 * MINUTE_MS, firstMs: [2 * MINUTE_MS, 5 * MINUTE_MS] },
  rejected: { everyMs: 15 * MINUTE_MS, firstMs: [0, 0] },
  no_address: { everyMs: 15 * MINUTE_MS, firstMs: [0, 0] },
};

/** Number of individual rejections without an accepted value after which an asset or a series is held. */
const MAX_REJECTIONS = { asset: 32, series: 8 };

interface HeldLine {
  level: 'warn' | 'error';
  event: string;
  message: string;
  hint: string;
}

const ACCESS_LINE: HeldLine = {
  level: 'warn',
  event: 'access.held',
  message: 'access lost, values held',
  hint: 'Grant can_read and can_update to the technical user. Until then, the agent retries periodically.',
};
const LINES: Partial<Record<HoldCause, HeldLine>> = {
  no_address: {
    level: 'error',
    event: 'uplink.no_address',
    message: 'series has no instrumentation, values held',
    hint: 'Set the instrumentation of the tag in tags.yaml, or correct VALUES_PATH, then reload the service.',
  },
  rejected: {
    level: 'error',
    event: 'uplink.series_waits',
    message: 'values rejected repeatedly, values held',
    hint: QUARANTINE_HINT,
  },
};
const RELEASED = {
  unused: { event: 'access.unused', message: 'unused hold removed' },
  rejected: { event: 'uplink.series_back', message: 'values accepted again' },
  access: { event: 'access.released', message: 'access restored' },
};
const NO_ADDRESS: Refusal = {
  status: 0,
  message: 'VALUES_PATH requires an instrumentation, but tags.yaml has none for this series',
};

export interface HoldsOptions {
  store: { hold(hold: StoredHold): Promise<void>; release(object: HeldObject): Promise<void> };
  tags: Iterable<Tag>;
  series: Pick<SeriesCatalogue, 'get' | 'ofAsset' | 'ofInstrumentation'>;
  /** Assets with waiting values, without those of held series. */
  lanes(): ReadonlyMap<number, unknown>;
  clock: Clock;
  logger: Logger;
}

export interface Hold {
  readonly kind: HoldKind;
  readonly id: number;
  readonly cause: HoldCause;
  /** Asset of a series. */
  readonly asset: number | undefined;
  /** The platform's response, for `rejected` and `no_address`. */
  readonly refusal: Refusal | undefined;
  /** Wall-clock time, for display. */
  readonly sinceMs: number;
  /** Monotonic times, in milliseconds. */
  readonly heldAtMs: number;
  nextTryAtMs: number;
  lastTryAtMs: number | undefined;
  /** Number of probes. The assets of an instrumentation are probed in turn. */
  tries: number;
  /** Whether the latest probe found no values. */
  isEmpty: boolean;
}

interface SetOptions {
  asset?: number;
  refusal?: Refusal;
  sinceMs?: number;
  firstInMs?: number;
}

/** Values with which a hold is probed. */
export interface Probe {
  hold: Hold;
  asset: number;
  onlySeries: readonly number[] | undefined;
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
  /** Whether the buffer contains values for the object. */
  values_wait: boolean;
}

export class Holds implements EventHolds {
  readonly #options: HoldsOptions;
  readonly #holds: Record<HoldKind, Map<number, Hold>> = {
    asset: new Map(),
    instrumentation: new Map(),
    series: new Map(),
  };
  readonly #rejections: Record<'asset' | 'series', Map<number, number>> = { asset: new Map(), series: new Map() };
  /** Monotonic time at which an asset last appeared, in milliseconds. */
  readonly #appearedAtMs = new Map<number, number>();
  readonly #listeners = new Set<() => void>();
  readonly #gathered: GatheredLines<number>;
  readonly #repeats = new Repeats();
  #saving: Promise<void> = Promise.resolve();
  /** By the ID of their asset and of their instrumentation. */
  #tags: Record<HeldObject['kind'], ReadonlyMap<number | undefined, Tag[]>>;

  constructor(options: HoldsOptions) {
    this.#options = options;
    this.#tags = byObject(options.tags);
    this.#gathered = new GatheredLines(options.clock);
  }

  /** Applies the holds that were stored. Nothing is held before this call. */
  start({ holds, damaged }: Pick<LoadedHolds, 'holds' | 'damaged'>): void {
    const { clock, logger } = this.#options;
    if (damaged > 0) logger.warn({ event: 'access.damaged', rows: damaged }, 'holds with an invalid checksum removed');
    for (const { kind, id, cause, sinceMs } of holds) {
      const [fromMs, toMs] = INTERVALS[cause].firstMs;
      this.#set(kind, id, cause, { sinceMs, firstInMs: fromMs + clock.random() * (toMs - fromMs) });
    }
  }

  /** Waits until pending changes have been saved or rejected by the disk. */
  async stop(): Promise<void> {
    await this.#saving;
  }

  isHeld(asset: number): boolean {
    return this.#holds.asset.has(asset);
  }

  /** Returns the held series, and the series of held instrumentations. */
  heldSeries(): readonly number[] {
    const ids = new Set(this.#holds.series.keys());
    for (const instrumentation of this.#holds.instrumentation.keys()) {
      for (const series of this.#seriesOfInstrumentation(instrumentation).values()) {
        for (const id of series) ids.add(id);
      }
    }
    return [...ids];
  }

  applied({ held, released }: HoldChange): void {
    const nowMs = this.#options.clock.monotonicMs();
    for (const { kind, id, cause, sinceMs } of held) this.#set(kind, id, cause, { sinceMs });
    for (const { kind, id } of released) {
      if (kind === 'asset' && this.#options.series.ofAsset(id).length > 0) this.#appearedAtMs.set(id, nowMs);
      const hold = this.#holds[kind].get(id);
      if (hold && hold.cause !== 'rejected') this.#release(hold, 'proved');
    }
    this.#changed();
  }

  probe({ kind, id }: HeldObject): void {
    const hold = this.#holds[kind].get(id);
    if (hold) this.#makeDue(hold);
    this.#changed();
  }

  tryNow(): void {
    for (const hold of this.#all()) this.#makeDue(hold);
    this.#changed();
  }

  /** Applies the tags of a reload and probes every hold, because a reload often follows a fix. */
  setTags(tags: Iterable<Tag>): void {
    this.#tags = byObject(tags);
    this.tryNow();
  }

  /**
   * Records an accepted post. A hold because of a response ends; one because of an event ends only if the post started
   * after it, because earlier posts do not reflect the current access.
   */
  accepted(asset: number, series: readonly number[], startedMs: number): void {
    this.#rejections.asset.delete(asset);
    if (this.#rejections.series.size > 0) for (const id of series) this.#rejections.series.delete(id);
    const ended = [this.#holds.asset.get(asset), ...series.map((id) => this.#holds.series.get(id))];
    for (const id of this.#instrumentationsOf(asset, series)) {
      const hold = this.#holds.instrumentation.get(id);
      const own = hold && this.#seriesOfInstrumentation(id).get(asset);
      if (own && series.some((one) => own.includes(one))) ended.push(hold);
    }
    let isChanged = false;
    for (const hold of ended) {
      if (!hold || (isByEvent(hold) && startedMs < hold.heldAtMs)) continue;
      this.#release(hold, 'proved');
      isChanged = true;
    }
    if (isChanged) this.#changed();
  }

  /**
   * Records a 403 or 404 response to a post. If the URL contains an instrumentation, the response concerns only that
   * instrumentation.
   */
  denied(
    asset: number,
    status: 403 | 404,
    post: { startedMs: number; instrumentation?: number | undefined; probe?: Probe | undefined },
  ): void {
    const { startedMs, instrumentation, probe } = post;
    if (probe) probe.hold.lastTryAtMs = startedMs;
    if (startedMs < (this.#appearedAtMs.get(asset) ?? Number.NEGATIVE_INFINITY)) return;
    // If the probe of an instrumentation is rejected, its hold remains. Other posts show whether the asset is rejected.
    if (probe?.hold.kind === 'instrumentation') return;
    const kind = instrumentation === undefined ? 'asset' : 'instrumentation';
    const id = instrumentation ?? asset;
    if (this.#holds[kind].has(id)) return;
    const hold = this.#set(kind, id, `answered_${status}`);
    this.#save(() => this.#options.store.hold({ kind, id, cause: `answered_${status}`, sinceMs: hold.sinceMs }));
    this.#changed();
  }

  /** Ends a hold because of access, because the platform rejected the values of its probe rather than the user. */
  notDenied({ hold }: Probe): void {
    if (hold.cause === 'rejected' || this.#holds[hold.kind].get(hold.id) !== hold) return;
    this.#release(hold, 'proved');
    this.#changed();
  }

  /** Counts a value that was rejected alone. Returns the kind of object to hold if too many values were rejected. */
  countRejection(asset: number, series: number): 'asset' | 'series' | undefined {
    for (const [kind, id] of [
      ['asset', asset],
      ['series', series],
    ] as const) {
      this.#rejections[kind].set(id, (this.#rejections[kind].get(id) ?? 0) + 1);
    }
    return this.#tooMany(asset, series);
  }

  /**
   * Holds an asset or a series if too many of its values were rejected since the latest accepted one. Returns the kind
   * of the held object.
   */
  rejected(asset: number, series: number, refusal: Refusal): 'asset' | 'series' | undefined {
    const kind = this.#tooMany(asset, series);
    if (kind) {
      this.#set(kind, kind === 'asset' ? asset : series, 'rejected', { asset, refusal });
      this.#changed();
    }
    if (this.isHeld(asset)) return 'asset';
    return this.#holds.series.has(series) ? 'series' : undefined;
  }

  #tooMany(asset: number, series: number): 'asset' | 'series' | undefined {
    const { asset: ofAsset, series: ofSeries } = this.#rejections;
    if ((ofAsset.get(asset) ?? 0) >= MAX_REJECTIONS.asset) return 'asset';
    return (ofSeries.get(series) ?? 0) >= MAX_REJECTIONS.series ? 'series' : undefined;
  }

  /** Holds a series until a reload, because VALUES_PATH requires an instrumentation and the series has none. */
  unaddressed(asset: number, series: number): void {
    this.#set('series', series, 'no_address', { asset, refusal: NO_ADDRESS });
    this.#changed();
  }

  /** Monotonic time of the next due probe, in milliseconds; Infinity if nothing is held. */
  nextTryAtMs(): number {
    let atMs = Number.POSITIVE_INFINITY;
    for (const hold of this.#all()) atMs = Math.min(atMs, hold.nextTryAtMs);
    return atMs;
  }

  /** Returns the due probes, longest due first. An instrumentation can be probed through each of its assets. */
  due(nowMs: number): Probe[] {
    const due = [...this.#all()].filter(({ nextTryAtMs }) => nextTryAtMs <= nowMs);
    return due.sort((one, other) => one.nextTryAtMs - other.nextTryAtMs).flatMap((hold) => this.#probesOf(hold));
  }

  /** Records that a probe is being posted. */
  tried({ hold }: Probe): void {
    hold.tries++;
    hold.isEmpty = false;
    hold.nextTryAtMs = this.#options.clock.monotonicMs() + INTERVALS[hold.cause].everyMs;
  }

  /** Makes a probe due again after a response unrelated to access. */
  untried({ hold }: Probe): void {
    this.#makeDue(hold);
  }

  /** Records that a hold has no values to probe with. A hold that no tag references ends. */
  foundNothing({ hold, asset }: Probe): void {
    const { kind, id } = hold;
    hold.isEmpty = true;
    hold.nextTryAtMs = this.#options.clock.monotonicMs() + INTERVALS[hold.cause].everyMs;
    const others = kind === 'instrumentation' ? [...this.#seriesOfInstrumentation(id).keys()] : [];
    if (others.some((other) => other !== asset) || (kind !== 'series' && this.#tagsOf(hold).length > 0)) return;
    this.#release(hold, 'unused');
    this.#changed();
  }

  /** Number of held assets. */
  heldCount(): number {
    return this.#holds.asset.size;
  }

  /** Returns the held assets and instrumentations for `status`, oldest first. */
  list(): HoldLine[] {
    const { clock, lanes } = this.#options;
    const toWallMs = clock.wallMs() - clock.monotonicMs();
    const holds = [...this.#all()].filter(({ kind }) => kind !== 'series');
    return holds
      .sort((one, other) => one.sinceMs - other.sinceMs)
      .map((hold) => ({
        kind: hold.kind as HeldObject['kind'],
        id: hold.id,
        cause: hold.cause,
        since: new Date(hold.sinceMs).toISOString(),
        last_probe: hold.lastTryAtMs === undefined ? null : new Date(toWallMs + hold.lastTryAtMs).toISOString(),
        next_probe_in_seconds: Math.max(0, Math.round((hold.nextTryAtMs - clock.monotonicMs()) / 1000)),
        tags: this.#tagsOf(hold).map(({ name }) => name),
        values_wait:
          hold.kind === 'asset'
            ? lanes().has(hold.id)
            : !hold.isEmpty && this.#seriesOfInstrumentation(hold.id).size > 0,
      }));
  }

  /** Returns the held series, for `status`. */
  waitingSeries(): { series: number; asset: number; status: number; reason: string; nextTryInMs: number }[] {
    const nowMs = this.#options.clock.monotonicMs();
    return [...this.#holds.series.values()].map(({ id, asset, refusal, nextTryAtMs }) => ({
      series: id,
      asset: asset!,
      status: refusal?.status ?? 0,
      reason: refusal?.message ?? '',
      nextTryInMs: Math.max(0, nextTryAtMs - nowMs),
    }));
  }

  /** Calls the listener after each change, until the returned function is called. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #all(): Hold[] {
    return Object.values(this.#holds).flatMap((holds) => [...holds.values()]);
  }

  #probesOf(hold: Hold): Probe[] {
    const { kind, id, tries } = hold;
    if (kind === 'asset') return [{ hold, asset: id, onlySeries: undefined }];
    if (kind === 'series') return [{ hold, asset: hold.asset!, onlySeries: [id] }];
    const choices = [...this.#seriesOfInstrumentation(id)];
    return choices.map((_, at) => {
      const [asset, onlySeries] = choices[(tries + at) % choices.length]!;
      return { hold, asset, onlySeries };
    });
  }

  /**
   * Returns the series of an instrumentation by asset: the series of tags that reference it, and the series bound to
   * it. Units are ignored, because a reload that changes the unit of a value creates another series.
   */
  #seriesOfInstrumentation(instrumentation: number): ReadonlyMap<number, number[]> {
    const { series } = this.#options;
    const found = new Set(series.ofInstrumentation(instrumentation));
    for (const tag of this.#tags.instrumentation.get(instrumentation) ?? []) {
      const wanted = new Set([...tag.values.values()].map(({ key, group }) => `${key}|${group ?? ''}`));
      for (const one of series.ofAsset(tag.asset)) {
        if (one.instrumentation === undefined && wanted.has(`${one.key}|${one.group ?? ''}`)) found.add(one);
      }
    }
    const byAsset = new Map<number, number[]>();
    for (const { asset, id } of found) byAsset.set(asset, [...(byAsset.get(asset) ?? []), id]);
    return byAsset;
  }

  /** Returns the instrumentations to which series of an asset may belong; none if no instrumentation is held. */
  #instrumentationsOf(asset: number, series: readonly number[]): ReadonlySet<number> {
    if (this.#holds.instrumentation.size === 0) return new Set();
    const known = series.map((id) => this.#options.series.get(id));
    const all = [...known, ...(this.#tags.asset.get(asset) ?? [])].map((one) => one?.instrumentation);
    return new Set(all.filter((id) => id !== undefined));
  }

  #tagsOf({ kind, id }: Hold): readonly Tag[] {
    return kind === 'series' ? [] : (this.#tags[kind].get(id) ?? []);
  }

  /** Sets a hold and its next probe, unless it exists with the same cause. */
  #set(kind: HoldKind, id: number, cause: HoldCause, more: SetOptions = {}): Hold {
    const before = this.#holds[kind].get(id);
    if (before?.cause === cause) return before;
    const { clock } = this.#options;
    const { asset, refusal, sinceMs = clock.wallMs(), firstInMs = INTERVALS[cause].everyMs } = more;
    const heldAtMs = clock.monotonicMs();
    const times = { sinceMs, heldAtMs, nextTryAtMs: heldAtMs + firstInMs, lastTryAtMs: before?.lastTryAtMs };
    const hold: Hold = { kind, id, cause, asset, refusal, ...times, tries: 0, isEmpty: false };
    this.#holds[kind].set(id, hold);
    this.#logHeld(hold);
    return hold;
  }

  #release(hold: Hold, why: 'proved' | 'unused'): void {
    const { kind, id, cause } = hold;
    this.#holds[kind].delete(id);
    if (kind !== 'instrumentation') this.#rejections[kind].delete(id);
    this.#logReleased(hold, why);
    if (kind === 'series' || cause === 'rejected') return;
    this.#save(async () => {
      if (!this.#holds[kind].has(id)) await this.#options.store.release({ kind, id });
    });
  }

  #makeDue(hold: Hold): void {
    hold.nextTryAtMs = Math.min(hold.nextTryAtMs, this.#options.clock.monotonicMs());
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
  }

  /** Queues a write. A disk error is only logged, because the hold remains in memory. */
  #save(write: () => Promise<void>): void {
    this.#saving = this.#saving.then(write).catch((error) => {
      const count = this.#repeats.note('unsaved', this.#options.clock.monotonicMs());
      const fields = { event: 'access.unsaved', code: codeOf(error), error: messageOf(error), count };
      this.#options.logger[count === undefined ? 'debug' : 'warn'](fields, 'failed to store a hold');
    });
  }

  /** Logs a hold. Holds with the same cause within a few seconds are combined into one line. */
  #logHeld({ kind, id, cause, asset, refusal }: Hold): void {
    const { status, message: reason } = refusal ?? {};
    const { level, event, message, hint } = LINES[cause] ?? ACCESS_LINE;
    const why = refusal ? { asset, reason, status } : { cause };
    this.#gathered.note(`held ${kind} ${cause} ${asset} ${status}`, id, (ids) => {
      this.#options.logger[level]({ event, ...why, ...named(kind, ids), hint }, message);
    });
  }

  #logReleased({ kind, id, cause }: Hold, why: 'proved' | 'unused'): void {
    const restored = LINES[cause] ? RELEASED.rejected : RELEASED.access;
    const { event, message } = why === 'unused' ? RELEASED.unused : restored;
    this.#gathered.note(`released ${kind} ${event}`, id, (ids) => {
      this.#options.logger.info({ event, ...named(kind, ids) }, message);
    });
  }
}

function byObject(tags: Iterable<Tag>) {
  const all = [...tags];
  return {
    asset: Map.groupBy(all, ({ asset }): number | undefined => asset),
    instrumentation: Map.groupBy(all, ({ instrumentation }) => instrumentation),
  };
}

/** Whether an event caused the hold. */
function isByEvent({ cause }: Hold): boolean {
  return cause === 'asset_disappeared' || cause === 'instrumentation_disappeared';
}

/** Log fields: the ID of one object, or the first IDs and the total number of several objects. */
function named(kind: HoldKind, ids: readonly number[]): Record<string, unknown> {
  if (ids.length === 1) return { [kind]: ids[0] };
  const many = kind === 'series' ? kind : `${kind}s`;
  return { [many]: ids.slice(0, MAX_NAMED), objects: ids.length };
}
