import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf } from '../base/errors.ts';
import { GatheredLines, MAX_NAMED } from '../base/gathered-lines.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import type { Tag } from '../config/tags.ts';
import { type ArrivedAccessEvent, readAccessEvent } from './access-event.ts';
import { AccessState, type HoldCause, type HoldDifference, type SeriesOfAssets } from './access-state.ts';
import type { HoldChange, LoadedHolds } from './hold-table.ts';
import { ProbeSchedule } from './probe-schedule.ts';
import type { Refusal } from './visibility.ts';

/**
 * Which assets and tags wait because this technical user may not see them now (docs/interface.md, "Held assets").
 *
 * An asset is held after a 403 or 404, or after it disappeared; the series of a tag after its instrumentation disappeared. A hold
 * ends with the object's `…_appeared`, that of an instrumentation of the asset, a 2xx for a probe, or when nothing uses it.
 *
 * Invariants: an event acts only after it is on disk (`apply`); a response acts at once and is saved as soon as the disk allows.
 * The order of events does not matter. A hold by an event ends only with the response to a probe, because an earlier post says
 * nothing about now. Memory mirrors the table; a crash loses the latest refusals and releases, which the next responses repeat.
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
  /** A tenth of the request budget, in probes a minute; `Infinity` where there is no budget. */
  probesPerMinute: () => number;
}

export interface AssetProbe {
  asset: number;
  /** Only these: the asset's other series are not held. */
  onlySeries?: readonly number[];
  /** Key of the hold that it tries. */
  hold?: string;
  /** Monotonic: who has been due longest goes first. */
  dueSinceMs?: number;
}

/** One line of `status`. Times are ISO 8601 by the wall clock. */
export interface HoldLine {
  kind: 'asset' | 'instrumentation';
  id: number;
  cause: HoldCause;
  since: string;
  /** When the last post went out that tried it; `null` where none was answered with anything about it. */
  last_probe: string | null;
  next_probe_in_seconds: number | null;
  tags: string[];
}

/** The platform accepts values again, or nothing is held any more. */
type ReleaseCause = 'proved' | 'unused';

const HELD_HINT = 'Give the technical user can_read and can_update on it; until then it is tried again now and then.';
const REFUSED_EVERY_MS = 2 * 60_000;
const GONE_EVERY_MS = 15 * 60_000;
/** After a start: soon, but not all gateways of a site in the same second. */
const REFUSED_FIRST_MS = { from: 5_000, to: 60_000 };
const GONE_FIRST_MS = { from: 2 * 60_000, to: 5 * 60_000 };
/** A post that was under way when the asset appeared may still be refused; so long the first refusal is not believed. */
const APPEARED_GRACE_MS = 10_000;

export class Holds {
  readonly #options: HoldsOptions;
  readonly #state: AccessState;
  readonly #schedule = new ProbeSchedule();
  readonly #listeners = new Set<(change: HoldDifference) => void>();
  /** Probes whose posts are under way: asset to hold keys. */
  readonly #outstanding = new Map<number, Set<string>>();
  /** Until when (monotonic) one refusal of an asset that has just appeared is not believed. */
  readonly #grace = new Map<number, number>();
  /** Where an instrumentation's probe goes next: its tags in turn. */
  readonly #nextChoice = new Map<string, number>();
  readonly #repeats = new Repeats();
  readonly #gathered: GatheredLines<number>;
  #saving: Promise<unknown> = Promise.resolve();
  #cursor = 0;

  constructor(options: HoldsOptions) {
    this.#options = options;
    this.#gathered = new GatheredLines(options.clock);
    this.#state = new AccessState(options.tags, options.series);
  }

  /** Reads the table; nothing is held before. Throws `StoreError`. */
  async start(): Promise<void> {
    const { clock, logger, store } = this.#options;
    const loaded = await store.load();
    if (loaded.damaged > 0) {
      logger.warn(
        { event: 'access.damaged', rows: loaded.damaged },
        'holds that did not fit their checksum were dropped',
      );
    }
    this.#cursor = loaded.cursor;
    const difference = this.#state.load(loaded);
    const nowMs = clock.monotonicMs();
    for (const key of difference.held) {
      const everyMs = this.#everyMs(key);
      const { from, to } = everyMs === REFUSED_EVERY_MS ? REFUSED_FIRST_MS : GONE_FIRST_MS;
      this.#schedule.set(key, everyMs, from + clock.random() * (to - from), nowMs);
    }
    this.#announce(difference);
  }

  /** The event of the inbox up to which everything is on disk. */
  get cursor(): number {
    return this.#cursor;
  }

  /** Whatever is held is tried as soon as the request budget allows. */
  tryNow(): void {
    for (const key of this.#schedule.keys()) this.#hasten(key);
    for (const listener of this.#listeners) listener({ held: [], released: [] });
  }

  /** Checks the holds of assets of which an operator withdrew values: nothing may be left of them. */
  withdrawn(assets: Iterable<number>): void {
    for (const asset of assets) this.#hasten(assetKey(asset));
  }

  /** Waits until what was decided is on disk, as far as the disk takes it. */
  async stop(): Promise<void> {
    await this.#saving;
  }

  /**
   * What an event of the inbox means for holds; events of other types mean nothing. Resolves when it is on disk and acts; throws
   * `StoreError`, and then nothing has changed. Events may come in any order, and more than once.
   */
  async apply(event: ArrivedAccessEvent): Promise<void> {
    const read = readAccessEvent(event);
    if (!read) return;
    if (read.kind === 'associated') {
      // The asset inherits what the instrumentation may: one post finds out.
      this.#hasten(assetKey(read.asset));
      return;
    }
    const { clock, logger } = this.#options;
    await this.#oneAtATime(async () => {
      const outcome = this.#state.decide(read, clock.wallMs());
      if (!outcome) return;
      await this.#options.store.save({ ...outcome.change, cursor: event.id });
      if (!read.gone) this.#believeAppeared(outcome.assets);
      this.#became(this.#state.commit(outcome.change));
      if (read.object !== 'node') return;
      if (read.gone) logger.info({ event: 'access.node_lost', node: read.id }, 'a node is out of sight');
      else logger.info({ event: 'access.node_found', node: read.id }, 'a node is in sight: what is held is tried soon');
      if (!read.gone) for (const key of this.#schedule.keys()) this.#hasten(key);
    });
  }

  isHeld(asset: number): boolean {
    return this.#state.heldAssets.has(asset);
  }

  heldSeries(): readonly number[] {
    return this.#state.heldSeries();
  }

  /** For `tagferry_assets_held`. */
  heldCount(): number {
    return this.#state.heldAssets.size;
  }

  /**
   * Which holds to try now, each with one post of kind `probe`, longest due first. Changes nothing: a hold stays due until
   * `probed` says that its post goes out. An instrumentation of several assets is there once for each: one of them is enough.
   */
  dueProbes(nowMonotonicMs: number): AssetProbe[] {
    return this.#schedule.due(nowMonotonicMs).flatMap((key) => this.#probesOf(key));
  }

  /** The post of a probe goes out. */
  probed(probe: AssetProbe): void {
    const key = probe.hold ?? (probe.onlySeries ? undefined : assetKey(probe.asset));
    if (key === undefined) return;
    this.#schedule.tried(key, this.#options.clock.monotonicMs(), this.#spacingMs());
    if (probe.onlySeries) this.#nextChoice.set(key, (this.#nextChoice.get(key) ?? 0) + 1);
    this.#outstanding.set(probe.asset, (this.#outstanding.get(probe.asset) ?? new Set()).add(key));
  }

  /** The post of a probe was not answered, or with something that says nothing about access: it is due again. */
  unanswered(probe: AssetProbe): void {
    const key = probe.hold ?? (probe.onlySeries ? undefined : assetKey(probe.asset));
    if (key === undefined) return;
    this.#outstanding.get(probe.asset)?.delete(key);
    this.#schedule.putBack(key, this.#options.clock.monotonicMs());
  }

  /** When `dueProbes` may next have something (monotonic); `undefined` while nothing is held. */
  nextProbeAtMs(): number | undefined {
    return this.#schedule.nextAtMs();
  }

  /**
   * The platform answered 403 or 404 to a post. Acts at once; never throws. A post to the address of an instrumentation says
   * something about that one alone.
   */
  async refused(asset: number, status: 403 | 404, series?: readonly number[], instrumentation?: number): Promise<void> {
    this.#outstanding.delete(asset);
    const graceUntil = this.#grace.get(asset);
    this.#grace.delete(asset);
    if (graceUntil !== undefined && this.#options.clock.monotonicMs() < graceUntil) return;
    if (this.isHeld(asset)) return;
    // A probe of a tag: its hold stays. Whether the asset as a whole is refused, its other posts will say.
    const tagHeld = new Set(this.heldSeries());
    if (series?.length && series.every((id) => tagHeld.has(id))) return;
    const key = instrumentation === undefined ? assetKey(asset) : `instrumentation ${instrumentation}`;
    const refusal: Refusal = { ...this.#state.parse(key), status, sinceMs: this.#options.clock.wallMs() };
    this.#became(this.#state.commit({ refusals: [refusal] }));
    await this.#saveLater(() => {
      const now = this.#state.refusal(key);
      return now && { refusals: [now] };
    });
  }

  /**
   * The platform answered 2xx to a post. Releases what the post was a probe of, and an asset that was held by its answers alone;
   * never throws.
   */
  async delivered(asset: number, series: readonly number[]): Promise<void> {
    const keys = [...(this.#outstanding.get(asset) ?? [])];
    this.#outstanding.delete(asset);
    // A refusal is undone by any 2xx, since nothing but an answer made it: the uplink also tries of its own accord after an outage.
    if (keys.length > 0 || this.#state.isRefusedOnly(assetKey(asset))) keys.push(assetKey(asset));
    if (keys.length === 0) return;
    const change = this.#state.proved(keys, asset, series);
    if (change) await this.#release(change, 'proved');
  }

  /** No value to try a hold with. If no tag names its object either, the hold ends: a later value is posted. Never throws. */
  async foundNothing({ asset, hold }: AssetProbe): Promise<void> {
    if (hold === undefined) return;
    const { kind, id } = this.#state.parse(hold);
    // Another asset of the instrumentation may have values.
    const isOnly = kind === 'asset' || this.#state.seriesOfInstrumentation(id).every((one) => one.asset === asset);
    const change = isOnly ? this.#state.unused(hold) : undefined;
    if (change) await this.#release(change, 'unused');
  }

  async #release(change: HoldChange, why: ReleaseCause): Promise<void> {
    this.#became(this.#state.commit(change), why);
    const objects = (change.objects ?? []).map(({ kind, id }) => ({ kind, id }));
    await this.#saveLater(() => ({
      // As they are when their turn comes: an event may have come meanwhile.
      objects: objects.map(({ kind, id }) => this.#state.object(kind, id)).filter((one) => one !== undefined),
      released: (change.released ?? []).filter(({ kind, id }) => !this.#state.refusal(`${kind} ${id}`)),
    }));
  }

  /** Tags as they stand after a reload: a person mended something, so what is held is tried at once. */
  setTags(tags: Iterable<Tag>): void {
    this.#became(this.#state.setTags(tags));
    this.tryNow();
  }

  /** Tells of every change of what is held; returns what takes the listener back. Hold keys: `asset 881`, `instrumentation 4711`. */
  onChange(listener: (change: HoldDifference) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** For `status`, oldest first. */
  list(): HoldLine[] {
    const { clock } = this.#options;
    const nowMs = clock.monotonicMs();
    return this.#state.describe().map((hold) => {
      const probe = this.#schedule.get(hold.key);
      return {
        kind: hold.kind,
        id: hold.id,
        cause: hold.cause,
        since: isoOf(hold.sinceMs),
        last_probe: probe?.lastAtMs === undefined ? null : isoOf(clock.wallMs() - (nowMs - probe.lastAtMs)),
        next_probe_in_seconds: probe ? Math.max(0, Math.round((probe.nextAtMs - nowMs) / 1000)) : null,
        tags: hold.tags,
      };
    });
  }

  /** Nodes that disappeared, for `status`; their assets have events of their own. Times are ISO 8601 by the wall clock. */
  lostNodes(): { node: number; since: string }[] {
    return this.#state.lostNodes().map(({ id, sinceMs }) => ({ node: id, since: isoOf(sinceMs) }));
  }

  #everyMs(key: string): number {
    return this.#state.isRefusedOnly(key) ? REFUSED_EVERY_MS : GONE_EVERY_MS;
  }

  #spacingMs(): number {
    const perMinute = this.#options.probesPerMinute();
    return Number.isFinite(perMinute) && perMinute > 0 ? 60_000 / perMinute : 0;
  }

  #hasten(key: string): void {
    this.#schedule.hasten(key, this.#options.clock.monotonicMs());
  }

  #believeAppeared(assets: readonly number[]): void {
    const untilMs = this.#options.clock.monotonicMs() + APPEARED_GRACE_MS;
    for (const asset of assets) this.#grace.set(asset, untilMs);
    if (this.#grace.size < 1_000) return;
    const nowMs = this.#options.clock.monotonicMs();
    for (const [asset, endMs] of this.#grace) if (endMs <= nowMs) this.#grace.delete(asset);
  }

  #probesOf(hold: string): AssetProbe[] {
    const { kind, id } = this.#state.parse(hold);
    const dueSinceMs = this.#schedule.dueSinceMs(hold);
    if (kind === 'asset') return [{ asset: id, hold, dueSinceMs }];
    const choices = this.#state.seriesOfInstrumentation(id);
    const first = this.#nextChoice.get(hold) ?? 0;
    return choices.map((_, at) => {
      const { asset, series } = choices[(first + at) % choices.length]!;
      return { asset, onlySeries: series, hold, dueSinceMs };
    });
  }

  /** The schedule follows what is held, the log says it, listeners hear of it. */
  #became(difference: HoldDifference, why: ReleaseCause = 'proved'): void {
    const nowMs = this.#options.clock.monotonicMs();
    for (const key of [...difference.held, ...difference.released]) {
      // An answer to an earlier probe says nothing about a hold that came after it.
      for (const keys of this.#outstanding.values()) keys.delete(key);
    }
    for (const key of difference.released) {
      this.#schedule.delete(key);
      this.#nextChoice.delete(key);
    }
    for (const key of this.#state.keys()) {
      const everyMs = this.#everyMs(key);
      this.#schedule.set(key, everyMs, everyMs, nowMs);
    }
    this.#announce(difference, why);
  }

  #announce(difference: HoldDifference, why: ReleaseCause = 'proved'): void {
    const { logger } = this.#options;
    for (const key of difference.held) {
      const { kind, id } = this.#state.parse(key);
      const cause = this.#state.causeOf(key);
      this.#gathered.note(`held ${kind} ${cause}`, id, (ids) => {
        const facts = { event: 'access.held', ...named(kind, ids), cause, hint: HELD_HINT };
        logger.warn(facts, 'values wait: access was lost');
      });
    }
    for (const key of difference.released) {
      const { kind, id } = this.#state.parse(key);
      this.#gathered.note(`released ${kind} ${why}`, id, (ids) => {
        if (why === 'proved') logger.info({ event: 'access.released', ...named(kind, ids) }, 'access restored');
        else logger.info({ event: 'access.unused', ...named(kind, ids) }, 'hold removed: no tag and no value uses it');
      });
    }
    if (difference.held.length + difference.released.length === 0) return;
    for (const listener of this.#listeners) listener(difference);
  }

  /** Writes after what is being written; the disk's refusal is logged, since memory holds and the next answer repeats it. */
  async #saveLater(change: () => HoldChange | undefined): Promise<void> {
    await this.#oneAtATime(async () => {
      const now = change();
      if (now) await this.#options.store.save(now);
    }).catch((error) => {
      const { clock, logger } = this.#options;
      const count = this.#repeats.note('unsaved', clock.monotonicMs());
      const fields = { event: 'access.unsaved', code: codeOf(error), error: messageOf(error), count };
      logger[count === undefined ? 'debug' : 'warn'](fields, 'a hold cannot be written');
    });
  }

  #oneAtATime(work: () => Promise<void>): Promise<void> {
    const done = this.#saving.then(work);
    this.#saving = done.catch(() => {});
    return done;
  }
}

/** One object as it is, several by their first numbers and how many they are. */
function named(kind: 'asset' | 'instrumentation', ids: readonly number[]): Record<string, unknown> {
  if (ids.length === 1) return { [kind]: ids[0] };
  return { [`${kind}s`]: ids.slice(0, MAX_NAMED), objects: ids.length };
}

function assetKey(asset: number): string {
  return `asset ${asset}`;
}

function isoOf(ms: number): string {
  return new Date(Math.min(8.64e15, Math.max(-8.64e15, ms))).toISOString();
}
