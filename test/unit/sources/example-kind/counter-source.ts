import type { Point } from '../../../../src/sources/points.ts';
import { Poller } from '../../../../src/sources/poller.ts';
import type { RunningSource, SourceContext } from '../../../../src/sources/source-kind.ts';

export interface CounterSpec {
  first: number;
}

export interface CounterValue {
  step: number;
}

export class CounterSource implements RunningSource {
  readonly #poller: Poller<CounterValue>;
  #polls = 0;

  constructor(context: SourceContext<CounterSpec, CounterValue>) {
    const { status, source } = context;
    const read = async (due: readonly Point<CounterValue>[]) => {
      status.connect();
      const polls = this.#polls++;
      return due.map((point) => ({ point, raw: source.spec.first + polls * point.spec.step }));
    };
    this.#poller = new Poller({ ...context, read });
  }

  start(): void {
    this.#poller.start();
  }

  stop(): Promise<void> {
    return this.#poller.stop();
  }
}
