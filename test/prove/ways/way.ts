import type { ValueStatus } from '../../../src/contract/values.ts';
import type { Claim, Oracle } from '../oracle.ts';

/** An input: a producer that claims the values that it sends, and acknowledges claims when the agent confirms them. */
export interface Way {
  readonly name: string;
  /** Lines of tags.yaml below `sources:` and below `tags:`. */
  readonly sources: string;
  readonly tags: string;
  /** Starts producing. The agent may start later. */
  produce(perSecond: number): void;
  /** Stops producing and waits until all values sent are confirmed. */
  rest(): Promise<void>;
  /** Stops all processes that the input started. */
  close(): Promise<void>;
}

/** Shared by all inputs. */
export interface WayContext {
  readonly oracle: Oracle;
  readonly readings: Readings;
  readonly folder: string;
}

const STATUSES: readonly (ValueStatus | undefined)[] = [undefined, 'good', 'uncertain', 'bad'];
/** Numbers that are easily changed by conversions. */
const HARD = [-0, 0, 1e-7, 5e-324, 1.7976931348623157e308, 2 ** 53 - 1, -(2 ** 53), 0.1 + 0.2, 1e21, -1.5e-300];

/** Generates plausible and unusual numbers, each with a unique timestamp. */
export class Readings {
  #timeMs: number;
  readonly #chance: () => number;

  /** `fromMs` is the first timestamp. */
  constructor(fromMs: number, chance: () => number) {
    this.#timeMs = fromMs;
    this.#chance = chance;
  }

  next(way: string, asset: number, key: string, hasStatus: boolean): Claim {
    const draw = this.#chance();
    const plain = Math.round(draw * 2_000_000 - 1_000_000) / 1000;
    const value = draw < 0.03 ? HARD[Math.floor((draw / 0.03) * HARD.length)]! : draw < 0.1 ? draw * 1e6 : plain;
    const status = hasStatus ? STATUSES[Math.floor(this.#chance() * STATUSES.length)] : undefined;
    return { way, asset, key, timestampMs: this.#timeMs++, value, status };
  }
}

/** Formats a number for JSON and line protocol, including -0. */
export function numberText(value: number): string {
  return Object.is(value, -0) ? '-0' : String(value);
}

/** Repeats a step at an interval until `end`. */
export class Loop {
  #running = false;
  #done: Promise<void> = Promise.resolve();
  readonly #step: () => Promise<void>;

  constructor(step: () => Promise<void>) {
    this.#step = step;
  }

  get isRunning(): boolean {
    return this.#running;
  }

  start(pauseMs: number): void {
    if (this.#running) return;
    this.#running = true;
    this.#done = this.#run(pauseMs);
    // Reported by `end`.
    this.#done.catch(() => {});
  }

  async #run(pauseMs: number): Promise<void> {
    for (let due = performance.now(); this.#running; ) {
      await this.#step();
      due = Math.max(due + pauseMs, performance.now() - 1_000);
      await pause(Math.max(0, due - performance.now()));
    }
  }

  /** Stops the loop. Rejects with the error from a step. */
  async end(): Promise<void> {
    this.#running = false;
    await this.#done;
  }
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
