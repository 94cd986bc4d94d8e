import type { Tag } from '../config/tags.ts';
import type { AccessEvent, ObjectKind } from './access-event.ts';
import type { HoldChange, LoadedHolds } from './hold-table.ts';
import { type AccessObject, isAssetGone, isInstrumentationGone, nextVisibility, type Refusal } from './visibility.ts';

/** The hold table in memory, and what follows from it and from tags.yaml: which assets and series are held. No I/O, no clock. */
export type HoldCause = 'answered_403' | 'answered_404' | 'asset_disappeared' | 'instrumentation_disappeared';

interface KnownSeries {
  id: number;
  asset: number;
  key: string;
  group: string | undefined;
  instrumentation?: number | undefined;
}

/** The series that the agent knows: `SeriesCatalogue` of the buffer fits. */
export interface SeriesOfAssets {
  ofAsset(asset: number): readonly KnownSeries[];
  /** Those that were bound to it at acceptance. */
  ofInstrumentation(instrumentation: number): readonly KnownSeries[];
  /** Moves when a series comes or goes. */
  readonly changes: number;
}

/** Keys of holds that came and went: `asset 881`, `instrumentation 4711`. */
export interface HoldDifference {
  held: readonly string[];
  released: readonly string[];
}

export interface DescribedHold {
  key: string;
  kind: 'asset' | 'instrumentation';
  id: number;
  cause: HoldCause;
  sinceMs: number;
  tags: string[];
}

/** Last events that are remembered of objects that are there; above it the oldest go. Lost ones are never forgotten. */
const MAX_OBJECTS = 50_000;
const FORGET_AT_ONCE = 1_000;

export class AccessState {
  readonly #series: SeriesOfAssets;
  readonly #objects = new Map<string, AccessObject>();
  /** By key of the hold. */
  readonly #refusals = new Map<string, Refusal>();
  #tags: readonly Tag[] = [];
  #tagsByAsset = new Map<number, Tag[]>();
  #held = new Set<string>();
  #heldAssets = new Set<number>();
  #seriesHeld: { changes: number; ids: readonly number[] } | undefined;
  /** Answers of `seriesOfInstrumentation`, for as long as tags and series are the same. */
  #seriesOf: { changes: number; answers: Map<number, { asset: number; series: number[] }[]> } | undefined;

  constructor(tags: Iterable<Tag>, series: SeriesOfAssets) {
    this.#series = series;
    this.#take(tags);
  }

  get heldAssets(): ReadonlySet<number> {
    return this.#heldAssets;
  }

  load(loaded: LoadedHolds): HoldDifference {
    return this.commit(loaded);
  }

  setTags(tags: Iterable<Tag>): HoldDifference {
    this.#take(tags);
    return this.#rebuild();
  }

  /** What an event changes, and the assets it brings back; `undefined` where it is not newer than what is known. */
  decide(
    event: Extract<AccessEvent, { kind: 'visibility' }>,
    wallMs: number,
  ): { change: HoldChange; assets: number[] } | undefined {
    const next = nextVisibility(this.object(event.object, event.id), event, wallMs);
    if (!next) return undefined;
    const assets = event.gone ? [] : this.#assetsOf(event.object, event.id);
    const back = assets.map((id) => ({ kind: 'asset', id }) as const);
    const own =
      event.object === 'instrumentation' && !event.gone ? [{ kind: event.object, id: event.id } as const] : [];
    const released = [...back, ...own].filter((one) => this.#refusals.has(keyOf(one)));
    const met = [{ kind: event.object, id: event.id, ...event.names, seenMs: wallMs }];
    return { change: { objects: [next], met, released, forgotten: this.#tooMany() }, assets };
  }

  /** What a 2xx for a probe of these holds changes. A tag's hold is released only where one of its series was in the post. */
  proved(keys: readonly string[], asset: number, series: readonly number[]): HoldChange | undefined {
    const objects: AccessObject[] = [];
    const released: Pick<Refusal, 'kind' | 'id'>[] = [];
    const posted = new Set(series);
    for (const key of new Set(keys)) {
      const { kind, id } = this.parse(key);
      const inPost =
        kind === 'asset' ||
        this.seriesOfInstrumentation(id).some((one) => one.asset === asset && one.series.some((s) => posted.has(s)));
      if (!inPost) continue;
      const object = this.object(kind, id);
      if (object?.gone && !object.proved) objects.push({ ...object, proved: true });
      if (kind === 'instrumentation' && this.#refusals.has(key)) released.push({ kind, id });
    }
    if (this.#refusals.has(keyOf({ kind: 'asset', id: asset }))) released.push({ kind: 'asset', id: asset });
    return objects.length + released.length === 0 ? undefined : { objects, released };
  }

  /** What ends a hold that nothing uses; `undefined` while a tag names its object. */
  unused(key: string): HoldChange | undefined {
    const { kind, id } = this.parse(key);
    if (!this.#held.has(key) || this.#tags.some((tag) => tag[kind] === id)) return undefined;
    const object = this.object(kind, id);
    return {
      objects: object?.gone && !object.proved ? [{ ...object, proved: true }] : [],
      released: this.#refusals.has(key) ? [{ kind, id }] : [],
    };
  }

  /** Takes a change over. */
  commit(change: HoldChange): HoldDifference {
    for (const one of change.forgotten ?? []) this.#objects.delete(`${one.kind} ${one.id}`);
    for (const one of change.objects ?? []) this.#objects.set(`${one.kind} ${one.id}`, one);
    for (const one of change.refusals ?? []) this.#refusals.set(keyOf(one), one);
    for (const one of change.released ?? []) this.#refusals.delete(keyOf(one));
    return this.#rebuild();
  }

  object(kind: ObjectKind, id: number): AccessObject | undefined {
    return this.#objects.get(`${kind} ${id}`);
  }

  refusal(key: string): Refusal | undefined {
    return this.#refusals.get(key);
  }

  keys(): Iterable<string> {
    return this.#held;
  }

  parse(key: string): { kind: 'asset' | 'instrumentation'; id: number } {
    const [kind, id] = key.split(' ') as ['asset' | 'instrumentation', string];
    return { kind, id: Number(id) };
  }

  causeOf(key: string): HoldCause {
    if (this.isRefusedOnly(key)) return `answered_${this.#refusals.get(key)!.status}`;
    return `${this.parse(key).kind}_disappeared`;
  }

  /** Held by an answer alone. Where the object also disappeared, that is the cause: its event is what will end it. */
  isRefusedOnly(key: string): boolean {
    const { kind, id } = this.parse(key);
    if (!this.#refusals.has(key)) return false;
    return kind === 'asset' ? !this.#isGone(id) : !isInstrumentationGone(this.object(kind, id));
  }

  /** Recomputed when a hold changed, or which series there are. */
  heldSeries(): readonly number[] {
    if (this.#seriesHeld?.changes === this.#series.changes) return this.#seriesHeld.ids;
    const ids = new Set<number>();
    for (const key of this.#held) {
      const { kind, id } = this.parse(key);
      if (kind !== 'instrumentation') continue;
      for (const one of this.seriesOfInstrumentation(id)) for (const series of one.series) ids.add(series);
    }
    this.#seriesHeld = { changes: this.#series.changes, ids: [...ids] };
    return this.#seriesHeld.ids;
  }

  /**
   * The series of the tags that name an instrumentation, by asset, and those that were bound to it. By key and group, whatever
   * the unit: a unit that a reload changed made another series of the same value.
   */
  seriesOfInstrumentation(instrumentation: number): readonly { asset: number; series: number[] }[] {
    const { changes } = this.#series;
    if (this.#seriesOf?.changes !== changes) this.#seriesOf = { changes, answers: new Map() };
    let answer = this.#seriesOf.answers.get(instrumentation);
    if (!answer) {
      answer = this.#findSeries(instrumentation);
      this.#seriesOf.answers.set(instrumentation, answer);
    }
    return answer;
  }

  #findSeries(instrumentation: number): { asset: number; series: number[] }[] {
    const byAsset = new Map<number, Set<number>>();
    for (const tag of this.#tags) {
      if (tag.instrumentation !== instrumentation) continue;
      const wanted = new Set([...tag.values.values()].map((value) => `${value.key}|${value.group ?? ''}`));
      for (const series of this.#series.ofAsset(tag.asset)) {
        if (series.instrumentation !== undefined || !wanted.has(`${series.key}|${series.group ?? ''}`)) continue;
        byAsset.set(tag.asset, (byAsset.get(tag.asset) ?? new Set()).add(series.id));
      }
    }
    for (const { id, asset } of this.#series.ofInstrumentation(instrumentation)) {
      byAsset.set(asset, (byAsset.get(asset) ?? new Set()).add(id));
    }
    return [...byAsset].map(([asset, series]) => ({ asset, series: [...series] }));
  }

  describe(): DescribedHold[] {
    const holds = [...this.#held].map((key) => {
      const { kind, id } = this.parse(key);
      const cause = this.causeOf(key);
      const isAnswer = cause === 'answered_403' || cause === 'answered_404';
      const sinceMs = (isAnswer ? this.#refusals.get(key)?.sinceMs : this.object(kind, id)?.sinceMs) ?? 0;
      const tags = this.#tags.filter((tag) => tag[kind] === id).map((tag) => tag.name);
      return { key, kind, id, cause, sinceMs, tags };
    });
    return holds.sort((one, other) => one.sinceMs - other.sinceMs);
  }

  lostNodes(): AccessObject[] {
    return [...this.#objects.values()].filter((object) => object.kind === 'node' && object.gone);
  }

  #take(tags: Iterable<Tag>): void {
    this.#tags = [...tags];
    this.#seriesOf = undefined;
    this.#tagsByAsset = Map.groupBy(this.#tags, (tag) => tag.asset);
  }

  #assetsOf(kind: ObjectKind, id: number): number[] {
    if (kind === 'asset') return [id];
    if (kind === 'node') return [];
    return [...new Set(this.#tags.filter((tag) => tag.instrumentation === id).map((tag) => tag.asset))];
  }

  #isGone(asset: number): boolean {
    const object = this.object('asset', asset);
    if (!object?.gone) return false;
    const instrumentations = (this.#tagsByAsset.get(asset) ?? [])
      .filter((tag) => tag.instrumentation !== undefined)
      .map((tag) => this.object('instrumentation', tag.instrumentation!))
      .filter((one) => one !== undefined);
    return isAssetGone(object, instrumentations);
  }

  #rebuild(): HoldDifference {
    const held = new Set<string>();
    const heldAssets = new Set<number>();
    for (const [key, { kind, id }] of this.#refusals) {
      held.add(key);
      if (kind === 'asset') heldAssets.add(id);
    }
    for (const object of this.#objects.values()) {
      if (!object.gone) continue;
      if (object.kind === 'asset' && this.#isGone(object.id)) heldAssets.add(object.id);
      if (object.kind === 'instrumentation' && isInstrumentationGone(object)) held.add(`instrumentation ${object.id}`);
    }
    for (const asset of heldAssets) held.add(`asset ${asset}`);
    const difference = {
      held: [...held].filter((key) => !this.#held.has(key)),
      released: [...this.#held].filter((key) => !held.has(key)),
    };
    this.#held = held;
    this.#heldAssets = heldAssets;
    this.#seriesHeld = undefined;
    return difference;
  }

  #tooMany(): { kind: ObjectKind; id: number }[] {
    if (this.#objects.size < MAX_OBJECTS) return [];
    return [...this.#objects.values()]
      .filter((object) => !object.gone)
      .sort((one, other) => (one.occurredAtMs ?? 0) - (other.occurredAtMs ?? 0))
      .slice(0, FORGET_AT_ONCE)
      .map(({ kind, id }) => ({ kind, id }));
  }
}

function keyOf({ kind, id }: Pick<Refusal, 'kind' | 'id'>): string {
  return `${kind} ${id}`;
}
