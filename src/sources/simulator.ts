import { STAMPED_HERE, ValueColumns } from '../buffer/value-columns.ts';
import type { Clock } from '../clock.ts';
import type { Point } from './points.ts';

/** One turn of a sine. */
const PERIOD_MS = 60_000;
/** A walk moves by at most this share of its span; a step changes its level at one poll in so many. */
const WALK_SHARE = 0.02;
const POLLS_A_LEVEL = 20;

/**
 * Values of a plant that does not exist: sines, walks and steps between two bounds, in thousandths like a transmitter's. Each
 * point has a generator of its own, seeded by its name, so that the same tags.yaml makes the same walk.
 */
export class Simulator {
  readonly #clock: Clock;
  readonly #points: SimulatedPoint[];

  constructor(points: readonly Point<'simulate'>[], clock: Clock) {
    this.#clock = clock;
    this.#points = points.map((point) => new SimulatedPoint(point));
  }

  /** The next value of each point. */
  read(): Promise<ValueColumns> {
    const columns = new ValueColumns();
    const wallMs = Math.max(0, Math.round(this.#clock.wallMs()));
    const monotonicMs = this.#clock.monotonicMs();
    for (const point of this.#points) columns.add(point.series, wallMs, point.next(monotonicMs), STAMPED_HERE);
    return Promise.resolve(columns);
  }
}

class SimulatedPoint {
  readonly series: number;
  readonly #shape: 'sine' | 'walk' | 'step';
  readonly #low: number;
  readonly #span: number;
  #seed: number;
  /** Where it stands between its bounds, 0 to 1. For a sine: its phase. */
  #place: number;

  constructor({ name, series, origin }: Point<'simulate'>) {
    this.series = series;
    this.#shape = origin.shape;
    this.#low = origin.low;
    this.#span = origin.high - origin.low;
    this.#seed = 0;
    for (const letter of name) this.#seed = Math.imul(this.#seed ^ letter.codePointAt(0)!, 0x01000193);
    this.#place = this.#random();
  }

  next(nowMs: number): number {
    let place = this.#place;
    if (this.#shape === 'sine') {
      place = 0.5 + 0.5 * Math.sin(2 * Math.PI * (nowMs / PERIOD_MS + place));
    } else if (this.#shape === 'walk') {
      place = Math.min(1, Math.max(0, place + (this.#random() * 2 - 1) * WALK_SHARE));
      this.#place = place;
    } else if (this.#random() < 1 / POLLS_A_LEVEL) {
      place = this.#random();
      this.#place = place;
    }
    return Math.round((this.#low + place * this.#span) * 1000) / 1000;
  }

  /** mulberry32: enough for a play, and the same everywhere. */
  #random(): number {
    this.#seed = (this.#seed + 0x6d2b79f5) | 0;
    let t = Math.imul(this.#seed ^ (this.#seed >>> 15), 1 | this.#seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }
}
