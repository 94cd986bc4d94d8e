import type { Tag } from '../config/tags.ts';
import type { AccessEvent, ObjectKind } from './access-event.ts';
import type { NamedObject } from './known-objects.ts';

/**
 * Access of this technical user, in memory: a copy of the hold table, and the holds derived from it and tags.yaml.
 * Performs no I/O and does not read a clock.
 *
 *   free ── 403 or 404 ────► held, `answered_…` ───── appeared, 2xx, unused ─────────────► free
 *   free ── disappeared ───► held, `…_disappeared` ── appeared, 2xx to a probe, unused ──► free
 *
 * An asset that was rejected and then disappears is held because of the event, because a later event ends the hold. An
 * asset is not held while one of its instrumentations appeared at the same time or later (platform 2.2).
 */
export type HoldCause = 'answered_403' | 'answered_404' | 'asset_disappeared' | 'instrumentation_disappeared';

type HoldKind = 'asset' | 'instrumentation';

/** Id of a held asset, or the negative ID of a held instrumentation. */
export type HoldKey = number;

export interface Hold {
  kind: HoldKind;
  id: number;
  cause: HoldCause;
  /** Wall-clock time, for display. */
  sinceMs: number;
}

/** Latest access event of an object, and whether the platform has accepted values since then. */
export interface AccessObject {
  kind: ObjectKind;
  id: number;
  gone: boolean;
  /** Platform time of the event; `null` if the event contains none, which counts as the oldest. */
  occurredAtMs: number | null;
  /** Wall-clock time at which the agent received the event, for display. */
  sinceMs: number;
  /**
   * Whether values are posted although the object disappeared: a 2xx followed the event, or the hold was unused. Valid
   * until the next event of the object.
   */
  proved: boolean;
}

/** Asset for which the platform responded with 403 or 404, or an instrumentation if VALUES_PATH contains it. */
export interface Refusal {
  kind: HoldKind;
  id: number;
  status: 403 | 404;
  /** Wall-clock time, for display. */
  sinceMs: number;
}

/** Change to the table, saved in one transaction. */
export interface HoldChange {
  objects?: readonly AccessObject[];
  /** Objects in an event, stored so that operators can look up IDs. */
  named?: readonly NamedObject[];
  refusals?: readonly Refusal[];
  /** Rejections to remove. */
  released?: readonly Pick<Refusal, 'kind' | 'id'>[];
  /** Objects whose latest event can be removed. */
  forgotten?: readonly { kind: ObjectKind; id: number }[];
  /** Inbox ID of the event that caused the change. All earlier events are in the table. */
  cursor?: number;
}

interface KnownSeries {
  id: number;
  asset: number;
  key: string;
  group: string | undefined;
  instrumentation?: number | undefined;
}

/** Series known to the agent, implemented by `SeriesCatalogue` of the buffer. */
export interface SeriesOfAssets {
  ofAsset(asset: number): readonly KnownSeries[];
  /** Returns the series that were bound to the instrumentation on acceptance. */
  ofInstrumentation(instrumentation: number): readonly KnownSeries[];
  /** Number of series, which never decreases. */
  readonly size: number;
}

/** Added and removed holds. */
export interface HoldDifference {
  held: readonly Hold[];
  released: readonly Hold[];
}

/**
 * Maximum number of objects with a stored event. Above this limit, the oldest visible objects are removed. Objects that
 * disappeared are never removed.
 */
const MAX_OBJECTS = 50_000;
const FORGET_AT_ONCE = 1_000;

export function keyOf({ kind, id }: { kind: HoldKind; id: number }): HoldKey {
  return kind === 'asset' ? id : -id;
}

export class AccessState {
  readonly #series: SeriesOfAssets;
  readonly #objects: Record<ObjectKind, Map<number, AccessObject>> = {
    asset: new Map(),
    instrumentation: new Map(),
    node: new Map(),
  };
  readonly #refusals = new Map<HoldKey, Refusal>();
  #tags: readonly Tag[] = [];
  #tagsByAsset = new Map<number, Tag[]>();
  #holds: ReadonlyMap<HoldKey, Hold> = new Map();
  /** Cached results of `seriesOfInstrumentation`, valid until tags or series change. */
  #seriesOf: { size: number; byInstrumentation: Map<number, { asset: number; series: number[] }[]> } | undefined;

  constructor(tags: Iterable<Tag>, series: SeriesOfAssets) {
    this.#series = series;
    this.setTags(tags);
  }

  get holds(): ReadonlyMap<HoldKey, Hold> {
    return this.#holds;
  }

  setTags(tags: Iterable<Tag>): HoldDifference {
    this.#tags = [...tags];
    this.#tagsByAsset = Map.groupBy(this.#tags, (tag) => tag.asset);
    this.#seriesOf = undefined;
    return this.#rebuild();
  }

  /**
   * Returns the change caused by an event and the assets that become visible, or `undefined` if the event is not newer
   * than the stored one.
   */
  decide(
    event: Extract<AccessEvent, { kind: 'visibility' }>,
    wallMs: number,
  ): { change: HoldChange; assets: number[] } | undefined {
    const { object: kind, id, gone, names } = event;
    const next = nextVisibility(this.object(kind, id), event, wallMs);
    if (!next) return undefined;
    const assets = gone ? [] : this.#assetsOf(kind, id);
    const visible: Pick<Refusal, 'kind' | 'id'>[] = assets.map((asset) => ({ kind: 'asset', id: asset }));
    if (kind === 'instrumentation' && !gone) visible.push({ kind, id });
    const released = visible.filter((one) => this.#refusals.has(keyOf(one)));
    const named = [{ kind, id, ...names, seenMs: wallMs }];
    return { change: { objects: [next], named, released, forgotten: this.#oldest() }, assets };
  }

  /**
   * Returns the change after a 2xx response to a probe of these holds. A tag hold is released only if the post
   * contained one of its series.
   */
  proved(keys: Iterable<HoldKey>, asset: number, series: readonly number[]): HoldChange | undefined {
    const objects: AccessObject[] = [];
    const released: Pick<Refusal, 'kind' | 'id'>[] = [];
    const posted = new Set(series);
    for (const key of new Set(keys)) {
      const hold = this.#holds.get(key);
      if (!hold) continue;
      const { kind, id } = hold;
      const inPost =
        kind === 'asset' ||
        this.seriesOfInstrumentation(id).some((one) => one.asset === asset && one.series.some((s) => posted.has(s)));
      if (!inPost) continue;
      const object = this.object(kind, id);
      if (object?.gone && !object.proved) objects.push({ ...object, proved: true });
      if (kind === 'instrumentation' && this.#refusals.has(key)) released.push({ kind, id });
    }
    if (this.#refusals.has(asset)) released.push({ kind: 'asset', id: asset });
    return objects.length + released.length === 0 ? undefined : { objects, released };
  }

  /** Returns the change that removes an unused hold, or `undefined` while a tag references its object. */
  unused(key: HoldKey): HoldChange | undefined {
    const hold = this.#holds.get(key);
    if (!hold) return undefined;
    const { kind, id } = hold;
    if (this.#tags.some((tag) => tag[kind] === id)) return undefined;
    const object = this.object(kind, id);
    return {
      objects: object?.gone && !object.proved ? [{ ...object, proved: true }] : [],
      released: this.#refusals.has(key) ? [{ kind, id }] : [],
    };
  }

  /** Applies a change. */
  commit({ forgotten = [], objects = [], refusals = [], released = [] }: HoldChange): HoldDifference {
    for (const { kind, id } of forgotten) this.#objects[kind].delete(id);
    for (const one of objects) this.#objects[one.kind].set(one.id, one);
    for (const one of refusals) this.#refusals.set(keyOf(one), one);
    for (const one of released) this.#refusals.delete(keyOf(one));
    return this.#rebuild();
  }

  object(kind: ObjectKind, id: number): AccessObject | undefined {
    return this.#objects[kind].get(id);
  }

  refusal(key: HoldKey): Refusal | undefined {
    return this.#refusals.get(key);
  }

  /** Returns the series of held instrumentations. */
  heldSeries(): readonly number[] {
    const ids = new Set<number>();
    for (const { kind, id } of this.#holds.values()) {
      if (kind === 'asset') continue;
      for (const one of this.seriesOfInstrumentation(id)) for (const series of one.series) ids.add(series);
    }
    return [...ids];
  }

  /**
   * Returns the series of an instrumentation by asset: the series of tags that reference it, and the series bound to
   * it. Units are ignored, because a reload that changes the unit of a value creates another series.
   */
  seriesOfInstrumentation(instrumentation: number): readonly { asset: number; series: number[] }[] {
    const { size } = this.#series;
    if (this.#seriesOf?.size !== size) this.#seriesOf = { size, byInstrumentation: new Map() };
    const { byInstrumentation } = this.#seriesOf;
    const known = byInstrumentation.get(instrumentation) ?? this.#findSeries(instrumentation);
    byInstrumentation.set(instrumentation, known);
    return known;
  }

  #findSeries(instrumentation: number): { asset: number; series: number[] }[] {
    const byAsset = new Map<number, Set<number>>();
    const add = ({ asset, id }: KnownSeries) => byAsset.set(asset, (byAsset.get(asset) ?? new Set()).add(id));
    for (const tag of this.#tags) {
      if (tag.instrumentation !== instrumentation) continue;
      const wanted = new Set([...tag.values.values()].map((value) => `${value.key}|${value.group ?? ''}`));
      for (const series of this.#series.ofAsset(tag.asset)) {
        if (series.instrumentation === undefined && wanted.has(`${series.key}|${series.group ?? ''}`)) add(series);
      }
    }
    this.#series.ofInstrumentation(instrumentation).forEach(add);
    return [...byAsset].map(([asset, series]) => ({ asset, series: [...series] }));
  }

  /** Returns the tag names of a held object. */
  tagsOf({ kind, id }: Hold): string[] {
    return this.#tags.filter((tag) => tag[kind] === id).map((tag) => tag.name);
  }

  lostNodes(): AccessObject[] {
    return [...this.#objects.node.values()].filter(({ gone }) => gone);
  }

  #assetsOf(kind: ObjectKind, id: number): number[] {
    if (kind === 'asset') return [id];
    if (kind === 'node') return [];
    return [...new Set(this.#tags.filter((tag) => tag.instrumentation === id).map((tag) => tag.asset))];
  }

  #isAssetGone({ id, gone, proved, occurredAtMs }: AccessObject): boolean {
    if (!gone || proved) return false;
    return !(this.#tagsByAsset.get(id) ?? []).some(({ instrumentation }) => {
      const object = instrumentation === undefined ? undefined : this.object('instrumentation', instrumentation);
      return object?.gone === false && timeOf(object.occurredAtMs) >= timeOf(occurredAtMs);
    });
  }

  #rebuild(): HoldDifference {
    const before = this.#holds;
    const holds = new Map<HoldKey, Hold>();
    for (const [key, { kind, id, status, sinceMs }] of this.#refusals) {
      holds.set(key, { kind, id, cause: `answered_${status}`, sinceMs });
    }
    for (const object of this.#objects.asset.values()) {
      const { id, sinceMs } = object;
      if (this.#isAssetGone(object)) holds.set(id, { kind: 'asset', id, cause: 'asset_disappeared', sinceMs });
    }
    for (const { id, gone, proved, sinceMs } of this.#objects.instrumentation.values()) {
      const hold = { kind: 'instrumentation', id, cause: 'instrumentation_disappeared', sinceMs } as const;
      if (gone && !proved) holds.set(-id, hold);
    }
    this.#holds = holds;
    return {
      held: [...holds].filter(([key]) => !before.has(key)).map(([, hold]) => hold),
      released: [...before].filter(([key]) => !holds.has(key)).map(([, hold]) => hold),
    };
  }

  #oldest(): { kind: ObjectKind; id: number }[] {
    const all = Object.values(this.#objects);
    if (all.reduce((sum, { size }) => sum + size, 0) < MAX_OBJECTS) return [];
    return all
      .flatMap((objects) => [...objects.values()])
      .filter(({ gone }) => !gone)
      .sort((one, other) => (one.occurredAtMs ?? 0) - (other.occurredAtMs ?? 0))
      .slice(0, FORGET_AT_ONCE)
      .map(({ kind, id }) => ({ kind, id }));
  }
}

/**
 * Returns the object after an event, or `undefined` if the event is a duplicate or older than the latest one. Events
 * can arrive in any order, so the result does not depend on their order. If two events have the same time, `appeared`
 * takes precedence: a replaced permission produces both, and one unnecessary post is less harmful than held values.
 */
function nextVisibility(
  latest: AccessObject | undefined,
  event: Extract<AccessEvent, { kind: 'visibility' }>,
  wallMs: number,
): AccessObject | undefined {
  const { object: kind, id, gone } = event;
  const occurredAtMs = event.occurredAtMs ?? null;
  if (latest) {
    const [timeMs, latestMs] = [timeOf(occurredAtMs), timeOf(latest.occurredAtMs)];
    if (timeMs < latestMs) return undefined;
    if (timeMs === latestMs && (gone || !latest.gone)) return undefined;
  }
  return { kind, id, gone, occurredAtMs, sinceMs: wallMs, proved: false };
}

function timeOf(occurredAtMs: number | null): number {
  return occurredAtMs ?? Number.NEGATIVE_INFINITY;
}
