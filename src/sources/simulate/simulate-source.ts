import type { Point } from '../points.ts';
import { Poller } from '../poller.ts';
import type { RunningSource, SourceContext } from '../source-kind.ts';

export interface SimulateSpec {
  /** Period of a sine or ramp, in milliseconds. */
  periodMs: number;
}

export interface SimulateValue {
  shape: 'sine' | 'ramp' | 'walk' | 'noise' | 'step';
  low: number;
  high: number;
}

/** Source for a simulated plant. Each point has its own generator. */
export class SimulateSource implements RunningSource {
  readonly #poller: Poller<SimulateValue>;

  constructor({ source, points, ...context }: SourceContext<SimulateSpec, SimulateValue>) {
    const generators = new Map(points.map((point) => [point, new SimulatedPoint(point, source.spec.periodMs)]));
    const read = async (due: readonly Point<SimulateValue>[]) => {
      const nowMs = context.clock.monotonicMs();
      return due.map((point) => ({ point, raw: generators.get(point)!.next(nowMs) }));
    };
    this.#poller = new Poller({ ...context, points, read });
  }

  start(): void {
    this.#poller.start();
  }

  async stop(): Promise<void> {
    await this.#poller.stop();
  }
}

/** Maximum step of a random walk, as a fraction of the range. */
const WALK_SHARE = 0.02;
/** Average number of polls between the level changes of a step signal. */
const POLLS_PER_LEVEL = 20;

/**
 * Generator of a simulated value: a sine, ramp, random walk, noise or steps between two limits, rounded to thousandths
 * like the output of a transmitter. Seeded by the value name, so that the same tags.yaml always produces the same
 * values.
 */
export class SimulatedPoint {
  readonly #spec: SimulateValue;
  readonly #periodMs: number;
  #seed = 0;
  /** Position between the limits, from 0 to 1; for a sine or ramp, the phase. */
  #position: number;

  constructor({ name, spec }: Point<SimulateValue>, periodMs: number) {
    this.#spec = spec;
    this.#periodMs = periodMs;
    for (const letter of name) this.#seed = Math.imul(this.#seed ^ letter.codePointAt(0)!, 0x01000193);
    this.#position = this.#random();
  }

  next(nowMs: number): number {
    const { low, high } = this.#spec;
    return Math.round((low + this.#positionAt(nowMs) * (high - low)) * 1000) / 1000;
  }

  #positionAt(nowMs: number): number {
    const turns = nowMs / this.#periodMs + this.#position;
    switch (this.#spec.shape) {
      case 'sine':
        return 0.5 + 0.5 * Math.sin(2 * Math.PI * turns);
      case 'ramp':
        return turns - Math.floor(turns);
      case 'noise':
        return this.#random();
      case 'walk':
        this.#position = Math.min(1, Math.max(0, this.#position + (this.#random() * 2 - 1) * WALK_SHARE));
        return this.#position;
      case 'step':
        if (this.#random() < 1 / POLLS_PER_LEVEL) this.#position = this.#random();
        return this.#position;
    }
  }

  /**
   * Returns a pseudorandom number from mulberry32, which is sufficient for a simulation and produces the same numbers
   * on every platform.
   */
  #random(): number {
    this.#seed = (this.#seed + 0x6d2b79f5) | 0;
    let t = Math.imul(this.#seed ^ (this.#seed >>> 15), 1 | this.#seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }
}
