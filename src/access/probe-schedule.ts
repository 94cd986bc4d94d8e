/**
 * When a hold is tried with one post. Each has its own interval; all together keep `spacingMs` between two probes, so that a
 * tenth of the request budget is never exceeded: where there are more holds than that allows, each is tried less often, in turn.
 * Times are of the monotonic clock.
 */
export interface Probe {
  nextAtMs: number;
  everyMs: number;
  lastAtMs: number | undefined;
}

export class ProbeSchedule {
  readonly #probes = new Map<string, Probe>();
  #nextSlotMs = Number.NEGATIVE_INFINITY;

  /** Puts a hold in, or changes how often it is tried. A hold that is there with the same interval keeps its time. */
  set(key: string, everyMs: number, firstInMs: number, nowMs: number): void {
    const known = this.#probes.get(key);
    if (known?.everyMs === everyMs) return;
    this.#probes.set(key, { nextAtMs: nowMs + firstInMs, everyMs, lastAtMs: known?.lastAtMs });
  }

  delete(key: string): void {
    this.#probes.delete(key);
  }

  get(key: string): Readonly<Probe> | undefined {
    return this.#probes.get(key);
  }

  keys(): IterableIterator<string> {
    return this.#probes.keys();
  }

  /** Something suggests that it would succeed now. */
  hasten(key: string, nowMs: number): void {
    const probe = this.#probes.get(key);
    if (probe) probe.nextAtMs = Math.min(probe.nextAtMs, nowMs);
  }

  /** Takes what is due, longest due first, as far as the spacing allows. */
  take(nowMs: number, spacingMs: number): string[] {
    const due = [...this.#probes].filter(([, probe]) => probe.nextAtMs <= nowMs);
    due.sort(([, one], [, other]) => one.nextAtMs - other.nextAtMs);
    const taken: string[] = [];
    for (const [key, probe] of due) {
      if (spacingMs > 0 && this.#nextSlotMs > nowMs) break;
      // No saved-up slots: after a quiet hour the probes still come one by one.
      this.#nextSlotMs = nowMs + spacingMs;
      probe.lastAtMs = nowMs;
      probe.nextAtMs = nowMs + probe.everyMs;
      taken.push(key);
    }
    return taken;
  }

  /** When `take` may next give something; `undefined` where nothing is held. */
  nextAtMs(): number | undefined {
    let next: number | undefined;
    for (const probe of this.#probes.values()) next = Math.min(next ?? probe.nextAtMs, probe.nextAtMs);
    return next === undefined ? undefined : Math.max(next, this.#nextSlotMs);
  }
}
