/**
 * Whose fault is it: one asset's, or everyone's? Posts are numbered in the order in which they start. For each kind
 * of fault the assets are noted that met it since a post was last taken; a taken post strikes out everything that
 * happened before it started. When enough assets met one, it is the platform.
 *
 * Enough is three, or all that posted lately where those are fewer: a gateway with one asset knows from that one, and
 * one bad asset among many never makes an outage for the others.
 */
export type FaultKind = 'later' | 'refused' | 'no-access';

const ENOUGH = 3;

export class FaultAttribution {
  #latelyMs: number;
  readonly #taken = new Map<number, number>();
  readonly #met: Record<FaultKind, Map<number, number>> = {
    later: new Map(),
    refused: new Map(),
    'no-access': new Map(),
  };
  #lastTakenPost = -1;
  #nextPost = 0;

  /** `latelyMs`: an asset that had a post taken within so long counts among those that would show an outage. */
  constructor(latelyMs: number) {
    this.#latelyMs = latelyMs;
  }

  /** After a reload. */
  setLately(latelyMs: number): void {
    this.#latelyMs = latelyMs;
  }

  /** A number for a post that starts now, and for whatever happens now: they share one order. */
  number(): number {
    return this.#nextPost++;
  }

  /** What the next post will have: whatever has this number or a larger one starts after now. */
  get next(): number {
    return this.#nextPost;
  }

  /** A 2xx for the post of that number. */
  taken(asset: number, post: number, nowMs: number): void {
    this.#taken.set(asset, nowMs);
    this.#lastTakenPost = Math.max(this.#lastTakenPost, post);
    for (const met of Object.values(this.#met)) {
      met.delete(asset);
      for (const [other, at] of met) if (at < post) met.delete(other);
    }
  }

  met(fault: FaultKind, asset: number): void {
    const met = this.#met[fault];
    if (!met.has(asset)) met.set(asset, this.number());
  }

  /** Something that started when `next` was `at`, or later, was taken: the platform takes values. */
  hasTakenSince(at: number): boolean {
    return this.#lastTakenPost >= at;
  }

  /** Whether only this one asset could show anything now. */
  isAlone(asset: number, nowMs: number): boolean {
    const active = this.#active(nowMs);
    active.delete(asset);
    return active.size === 0;
  }

  /** Whether the fault is everyone's. */
  isPlatform(fault: FaultKind, nowMs: number): boolean {
    const active = this.#active(nowMs).size;
    const met = this.#met[fault].size;
    // Permissions are taken asset by asset; only many at once look like a proxy that knows none of them.
    if (fault === 'no-access') return met >= Math.max(ENOUGH, active / 2);
    return met > 0 && this.#withAnyFault().size >= Math.min(ENOUGH, active);
  }

  /** Assets that met it since a post was last taken. */
  assetsWith(fault: FaultKind): number[] {
    return [...this.#met[fault].keys()];
  }

  #active(nowMs: number): Set<number> {
    for (const [asset, atMs] of this.#taken) if (atMs < nowMs - this.#latelyMs) this.#taken.delete(asset);
    return new Set([...this.#taken.keys(), ...this.#withAnyFault()]);
  }

  #withAnyFault(): Set<number> {
    return new Set(Object.values(this.#met).flatMap((met) => [...met.keys()]));
  }
}
