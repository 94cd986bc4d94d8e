import type { Point } from '../points.ts';
import { Poller } from '../poller.ts';
import type { RunningSource, SourceContext, SourceState } from '../source-kind.ts';
import type { SimulateSpec, SimulateValue } from './simulate-spec.ts';
import { SimulatedPoint } from './simulated-point.ts';

/** Values of a plant that does not exist; each point has a generator of its own. */
export class SimulateSource implements RunningSource {
  readonly #poller: Poller<SimulateValue>;
  readonly #startedMs: number;

  constructor({ source, points, gate, clock, log }: SourceContext<SimulateSpec, SimulateValue>) {
    const generators = new Map(points.map((point) => [point, new SimulatedPoint(point, source.spec.periodMs)]));
    this.#startedMs = clock.monotonicMs();
    const read = async (due: readonly Point<SimulateValue>[]) => {
      const nowMs = clock.monotonicMs();
      for (const point of due) gate.take(point, generators.get(point)!.next(nowMs));
    };
    this.#poller = new Poller({ source: source.name, points, gate, clock, log, read });
  }

  start(): void {
    this.#poller.start();
  }

  async stop(): Promise<void> {
    await this.#poller.stop();
  }

  state(): SourceState {
    return { connected: undefined, sinceMs: this.#startedMs, errors: 0, pollsLate: this.#poller.stats.late };
  }
}
