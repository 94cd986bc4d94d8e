import type { Point } from '../points.ts';
import type { SimulateValue } from './simulate-spec.ts';

/** A walk moves by at most this share of its span; a step changes its level at one poll in so many. */
const WALK_SHARE = 0.02;
const POLLS_A_LEVEL = 20;

/**
 * A value of a plant that does not exist: a sine, a ramp, a walk, noise or steps between two bounds, in thousandths like a
 * transmitter's. Seeded by its name, so that the same tags.yaml makes the same walk.
 */
export class SimulatedPoint {
  readonly #spec: SimulateValue;
  readonly #periodMs: number;
  #seed = 0;
  /** Where it stands between its bounds, 0 to 1. For a sine and a ramp: its phase. */
  #place: number;

  constructor({ name, spec }: Point<SimulateValue>, periodMs: number) {
    this.#spec = spec;
    this.#periodMs = periodMs;
    for (const letter of name) this.#seed = Math.imul(this.#seed ^ letter.codePointAt(0)!, 0x01000193);
    this.#place = this.#random();
  }

  next(nowMs: number): number {
    const { low, high } = this.#spec;
    return Math.round((low + this.#placeAt(nowMs) * (high - low)) * 1000) / 1000;
  }

  #placeAt(nowMs: number): number {
    const turns = nowMs / this.#periodMs + this.#place;
    switch (this.#spec.shape) {
      case 'sine':
        return 0.5 + 0.5 * Math.sin(2 * Math.PI * turns);
      case 'ramp':
        return turns - Math.floor(turns);
      case 'noise':
        return this.#random();
      case 'walk':
        this.#place = Math.min(1, Math.max(0, this.#place + (this.#random() * 2 - 1) * WALK_SHARE));
        return this.#place;
      case 'step':
        if (this.#random() < 1 / POLLS_A_LEVEL) this.#place = this.#random();
        return this.#place;
    }
  }

  /** mulberry32: enough for a play, and the same everywhere. */
  #random(): number {
    this.#seed = (this.#seed + 0x6d2b79f5) | 0;
    let t = Math.imul(this.#seed ^ (this.#seed >>> 15), 1 | this.#seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }
}
