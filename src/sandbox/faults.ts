import { type CountedFault, FaultList } from './fault-list.ts';
import type { PostedSeries } from './values/values-body.ts';

/** Which requests a fault concerns. Everything left out matches everything. */
export interface FaultMatch {
  method?: string;
  /** Whole path, or its beginning where it ends in `*`. */
  path?: string;
  /** Posts and reads of this asset. */
  asset?: number;
}

/** What happens instead of, or beside, the right answer. */
export interface FaultEffect {
  /** Answer this status; nothing of the request is done. */
  status?: number;
  /** Body of that answer; an error body in the API's form unless given. A string is sent as it is. */
  body?: unknown;
  contentType?: string;
  /** With `status`: `Retry-After`, in seconds or as text. */
  retryAfter?: number | string;
  /** Waits so long, in real milliseconds, before anything else. */
  latencyMs?: number;
  /** The connection is broken: before the request is done, or after, when only the answer is lost. */
  drop?: 'before' | 'after';
  /** A browser that signed somebody in comes back to the client with a state that is not the client's (platform 5.3). */
  state?: 'foreign';
}

export interface Fault extends FaultMatch, FaultEffect, CountedFault {}

export type NewFault = Omit<Fault, 'id' | 'matched' | 'happened'>;

/** A value that the service always refuses. Members left out match everything. */
export interface Poison {
  asset?: number;
  key?: string;
  value?: number;
  timestampMs?: number;
  /** 400 unless given. */
  status?: number;
}

/** Faults on demand: what a client's tests need and a service should not have. */
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

  /** The effects for a request, those of several faults put together, the first one's members winning. */
  effectOn(method: string, path: string): FaultEffect | undefined {
    let effect: FaultEffect | undefined;
    for (const fault of [...this.list()]) {
      if (matches(fault, method, path) && this.happens(fault)) effect = { ...fault, ...effect };
    }
    return effect;
  }

  /** The status with which a post of these values is refused, if any of them is poison. */
  refusalOf(asset: number, posted: readonly PostedSeries[]): { status: number; key: string } | undefined {
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

/** Whether a request is one of those that are meant. */
export function matches(fault: FaultMatch, method: string, path: string): boolean {
  if (fault.method !== undefined && fault.method.toUpperCase() !== method) return false;
  if (fault.asset !== undefined) {
    const [, , resource, id] = path.split('/');
    if (resource !== 'assets' || id !== String(fault.asset)) return false;
  }
  if (fault.path === undefined) return true;
  return fault.path.endsWith('*') ? path.startsWith(fault.path.slice(0, -1)) : path === fault.path;
}
