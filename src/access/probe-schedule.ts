/**
 * When a hold is tried with one post. Each has its own interval; all together keep `spacingMs` between two probes, so that a
 * tenth of the request budget is never exceeded: where there are more holds than that allows, each is tried less often, in turn.
 *
 * A hold stays due until its post is under way: looking at what is due changes nothing, so that a probe for which there is no
 * room now keeps its place before those that became due later. Times are of the monotonic clock.
 */
export interface Probe {
  nextAtMs: number;
  everyMs: number;
  lastAtMs: number | undefined;
  /** `lastAtMs` as it was before the post that is under way. */
  beforeMs: number | undefined;
}

export class ProbeSchedule {
  readonly #probes = new Map<string, Probe>();
  #nextSlotMs = Number.NEGATIVE_INFINITY;

  /** Puts a hold in, or changes how often it is tried. A hold that is there with the same interval keeps its time. */
  set(key: string, everyMs: number, firstInMs: number, nowMs: number): void {
    const known = this.#probes.get(key);
    if (known?.everyMs === everyMs) return;
    const { lastAtMs, beforeMs } = known ?? { lastAtMs: undefined, beforeMs: undefined };
    this.#probes.set(key, { nextAtMs: nowMs + firstInMs, everyMs, lastAtMs, beforeMs });
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

  /** What is due and the spacing allows now, longest due first. Who posts one of them says so by `tried`. */
  due(nowMs: number): string[] {
    if (this.#nextSlotMs > nowMs) return [];
    const due = [...this.#probes].filter(([, probe]) => probe.nextAtMs <= nowMs);
    return due.sort(([, one], [, other]) => one.nextAtMs - other.nextAtMs).map(([key]) => key);
  }

  /** Since when a hold has been due. */
  dueSinceMs(key: string): number {
    return this.#probes.get(key)?.nextAtMs ?? Number.POSITIVE_INFINITY;
  }

  /** Its post is under way. */
  tried(key: string, nowMs: number, spacingMs: number): void {
    // No saved-up slots: after a quiet hour the probes still come one by one.
    this.#nextSlotMs = nowMs + spacingMs;
    const probe = this.#probes.get(key);
    if (!probe) return;
    probe.beforeMs = probe.lastAtMs;
    probe.lastAtMs = nowMs;
    probe.nextAtMs = nowMs + probe.everyMs;
  }

  /** Its post came to nothing: it is due again, behind those that are due already. */
  putBack(key: string, nowMs: number): void {
    const probe = this.#probes.get(key);
    if (!probe) return;
    probe.lastAtMs = probe.beforeMs;
    probe.nextAtMs = Math.min(probe.nextAtMs, nowMs);
  }

  /** When `due` may next give something; `undefined` where nothing is held. */
  nextAtMs(): number | undefined {
    let next: number | undefined;
    for (const probe of this.#probes.values()) next = Math.min(next ?? probe.nextAtMs, probe.nextAtMs);
    return next === undefined ? undefined : Math.max(next, this.#nextSlotMs);
  }
}
