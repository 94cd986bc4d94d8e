/**
 * Decides whether an asset or the platform is at fault. Posts are numbered in the order in which they start. For each
 * kind of fault, the affected assets are recorded; an accepted post removes all faults recorded before the post
 * started.
 *
 * A fault is attributed to the platform if it affects three assets, or all recently active assets if there are fewer.
 * One faulty asset among many therefore never causes an outage.
 */
import type { Meaning } from './verdict.ts';

export type FaultKind = 'later' | 'refused' | 'no-access';

const ENOUGH = 3;

export class FaultAttribution {
  #activeMs: number;
  readonly #accepted = new Map<number, number>();
  readonly #faulty: Record<FaultKind, Map<number, number>> = {
    later: new Map(),
    refused: new Map(),
    'no-access': new Map(),
  };
  #latestAcceptedPost = -1;
  #nextPost = 0;

  /** `activeMs` is the time for which an asset counts as active after an accepted post, in milliseconds. */
  constructor(activeMs: number) {
    this.#activeMs = activeMs;
  }

  /** Applies settings after a reload. */
  setActiveMs(activeMs: number): void {
    this.#activeMs = activeMs;
  }

  /** Returns the next number, for a post or a fault. */
  nextNumber(): number {
    return this.#nextPost++;
  }

  /** Number of the next post. */
  get next(): number {
    return this.#nextPost;
  }

  /** Records that a post was accepted. */
  accepted(asset: number, post: number, nowMs: number): void {
    this.#accepted.set(asset, nowMs);
    this.#latestAcceptedPost = Math.max(this.#latestAcceptedPost, post);
    for (const met of Object.values(this.#faulty)) {
      met.delete(asset);
      for (const [other, at] of met) if (at < post) met.delete(other);
    }
  }

  record(fault: FaultKind, asset: number): void {
    const met = this.#faulty[fault];
    if (!met.has(asset)) met.set(asset, this.nextNumber());
  }

  /** Whether a post with this number or a later one was accepted. */
  acceptedSince(at: number): boolean {
    return this.#latestAcceptedPost >= at;
  }

  /** Whether no other asset is active. */
  isAlone(asset: number, nowMs: number): boolean {
    const active = this.#active(nowMs);
    active.delete(asset);
    return active.size === 0;
  }

  /** Whether the fault is attributed to the platform. */
  isPlatform(fault: FaultKind, nowMs: number): boolean {
    const active = this.#active(nowMs).size;
    const met = this.#faulty[fault].size;
    // Permissions are revoked per asset. Many simultaneous denials indicate a proxy.
    if (fault === 'no-access') return met >= Math.max(ENOUGH, active / 2);
    return met > 0 && this.#withAnyFault().size >= Math.min(ENOUGH, active);
  }

  /** Returns the assets affected by this fault since a post was accepted. */
  assetsWith(fault: FaultKind): number[] {
    return [...this.#faulty[fault].keys()];
  }

  #active(nowMs: number): Set<number> {
    for (const [asset, atMs] of this.#accepted) if (atMs < nowMs - this.#activeMs) this.#accepted.delete(asset);
    return new Set([...this.#accepted.keys(), ...this.#withAnyFault()]);
  }

  #withAnyFault(): Set<number> {
    return new Set(Object.values(this.#faulty).flatMap((met) => [...met.keys()]));
  }
}

/** Returns the kind of fault that a response indicates. */
export function faultOf(meaning: Meaning): FaultKind | undefined {
  if (meaning === 'refused' || meaning === 'no-access' || meaning === 'later') return meaning;
  return meaning === 'not-understood' ? 'later' : undefined;
}
