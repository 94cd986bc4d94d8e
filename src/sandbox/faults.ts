import type { PostedSeries } from './values/values-body.ts';

/** Members common to all faults. */
export interface CountedFault {
  id: number;
  /** The fault applies only to the n-th match, starting at 1. */
  nth?: number;
  /** The fault applies to every n-th match. */
  every?: number;
  /** Number of times after which the fault is removed. */
  times?: number;
  /** Number of matches, and number of times the fault was applied. */
  matched: number;
  happened: number;
}

/** Numbered faults with match counts. */
export class FaultList<Fault extends CountedFault> {
  #faults: Fault[] = [];
  #nextId = 1;

  add(fault: Omit<Fault, 'id' | 'matched' | 'happened'>): number {
    const id = this.#nextId++;
    this.#faults.push({ ...fault, id, matched: 0, happened: 0 } as Fault);
    return id;
  }

  remove(id: number): boolean {
    const before = this.#faults.length;
    this.#faults = this.#faults.filter((fault) => fault.id !== id);
    return this.#faults.length < before;
  }

  clear(): void {
    this.#faults = [];
  }

  list(): readonly Fault[] {
    return this.#faults;
  }

  /** Counts a match and returns whether the fault applies. Removes the fault after `times`. */
  protected happens(fault: Fault): boolean {
    fault.matched++;
    if (fault.nth !== undefined && fault.matched !== fault.nth) return false;
    if (fault.every !== undefined && fault.matched % fault.every !== 0) return false;
    fault.happened++;
    if (fault.times !== undefined && fault.happened >= fault.times) this.remove(fault.id);
    return true;
  }
}

/** Conditions for requests that a fault affects. An omitted member matches all requests. */
interface FaultMatch {
  method?: string;
  /** Complete path, or a prefix followed by `*`. */
  path?: string;
  /** Matches only posts to and reads from this asset. */
  asset?: number;
}

/** Effects of a fault on the response. */
export interface FaultEffect {
  /** Response status. If set, the request is not processed. */
  status?: number;
  /** Response body. Default: an API error body. A string is sent unchanged. */
  body?: unknown;
  contentType?: string;
  /** Value of `Retry-After`, in seconds or as text; used with `status`. */
  retryAfter?: number | string;
  /** Delay before any other effect, in real milliseconds. */
  latencyMs?: number;
  /** Closes the connection either before the request is processed, or afterwards, so that only the response is lost. */
  drop?: 'before' | 'after';
}

export interface Fault extends FaultMatch, FaultEffect, CountedFault {}

/** Conditions for values that the service always rejects. An omitted member matches all values. */
export interface Poison {
  asset?: number;
  key?: string;
  value?: number;
  timestampMs?: number;
  /** Default: 400. */
  status?: number;
}

/** Faults that affect requests and values. */
export class Faults extends FaultList<Fault> {
  #poisons: Poison[] = [];

  poison(poison: Poison): void {
    this.#poisons.push(poison);
  }

  override clear(): void {
    super.clear();
    this.#poisons = [];
  }

  poisons(): readonly Poison[] {
    return this.#poisons;
  }

  /** Returns the effects on a request. If several faults apply, the first fault takes precedence for each member. */
  effectOn(method: string, path: string): FaultEffect | undefined {
    let effect: FaultEffect | undefined;
    for (const fault of [...this.list()]) {
      if (matches(fault, method, path) && this.happens(fault)) effect = { ...fault, ...effect };
    }
    return effect;
  }

  /** Returns the status with which a post of these values is rejected, if one of the values matches a `Poison`. */
  rejectionOf(asset: number, posted: readonly PostedSeries[]): { status: number; key: string } | undefined {
    for (const poison of this.#poisons) {
      if (poison.asset !== undefined && poison.asset !== asset) continue;
      for (const series of posted) {
        if (poison.key !== undefined && poison.key.toLowerCase() !== series.key) continue;
        const found = series.points.some(
          (point) =>
            (poison.value === undefined || Object.is(poison.value, point.value)) &&
            (poison.timestampMs === undefined || poison.timestampMs === point.timestampMs),
        );
        if (found) return { status: poison.status ?? 400, key: series.key };
      }
    }
    return undefined;
  }
}

/** Returns whether a fault affects a request. */
function matches(fault: FaultMatch, method: string, path: string): boolean {
  if (fault.method !== undefined && fault.method.toUpperCase() !== method) return false;
  if (fault.asset !== undefined) {
    const [, , resource, id] = path.split('/');
    if (resource !== 'assets' || id !== String(fault.asset)) return false;
  }
  if (fault.path === undefined) return true;
  return fault.path.endsWith('*') ? path.startsWith(fault.path.slice(0, -1)) : path === fault.path;
}
