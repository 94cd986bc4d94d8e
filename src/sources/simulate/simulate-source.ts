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
    const generators = new Map(points.map((point) => [point, simulated(point, source.spec.periodMs)]));
    const read = async (due: readonly Point<SimulateValue>[]) => {
      const nowMs = context.clock.monotonicMs();
      return due.map((point) => ({ point, raw: generators.get(point)!(nowMs) }));
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
 * Returns a generator of values between two limits by monotonic time, rounded to thousandths like the output of a
 * transmitter. Seeded by the value name, so that the same tags.yaml always produces the same values.
 */
export function simulated({ name, spec }: Point<SimulateValue>, periodMs: number): (nowMs: number) => number {
  const { shape, low, high } = spec;
  let seed = 0;
  for (const letter of name) seed = Math.imul(seed ^ letter.codePointAt(0)!, 0x01000193);
  /** Pseudorandom number from mulberry32, which is sufficient here and produces the same numbers on every platform. */
  const random = () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  /** Position between the limits, from 0 to 1; for a sine or ramp, the phase. */
  let position = random();
  const positionAt = (nowMs: number) => {
    const turns = nowMs / periodMs + position;
    if (shape === 'sine') return 0.5 + 0.5 * Math.sin(2 * Math.PI * turns);
    if (shape === 'ramp') return turns - Math.floor(turns);
    if (shape === 'noise') return random();
    if (shape === 'walk') position = Math.min(1, Math.max(0, position + (random() * 2 - 1) * WALK_SHARE));
    else if (random() < 1 / POLLS_PER_LEVEL) position = random();
    return position;
  };
  return (nowMs) => Math.round((low + positionAt(nowMs) * (high - low)) * 1000) / 1000;
}
