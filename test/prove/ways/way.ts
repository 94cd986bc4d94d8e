import type { ValueStatus } from '../../../src/contract/values.ts';
import type { Claim, Oracle } from '../oracle.ts';

/** A way in: a producer that claims what it gives, and turns what the agent says of it into obligations. One file a way. */
export interface Way {
  readonly name: string;
  /** Its lines of tags.yaml, below `sources:` and below `tags:`. */
  readonly sources: string;
  readonly tags: string;
  /** Begins to give values, so many a second; before the daemon is there or after. */
  produce(perSecond: number): void;
  /** Ends it, and returns when nothing of it is under way any more. */
  rest(): Promise<void>;
  /** Takes away what it has started. */
  close(): Promise<void>;
}

/** What the ways share: the judge, and where values come from. */
export interface WayContext {
  readonly oracle: Oracle;
  readonly readings: Readings;
  readonly folder: string;
}

const STATUSES: readonly (ValueStatus | undefined)[] = [undefined, 'good', 'uncertain', 'bad'];
/** What is hard to carry bit for bit. */
const HARD = [-0, 0, 1e-7, 5e-324, 1.7976931348623157e308, 2 ** 53 - 1, -(2 ** 53), 0.1 + 0.2, 1e21, -1.5e-300];

/** Numbers as a plant has them and some that it has not, each series with times of its own. */
export class Readings {
  #timeMs: number;
  readonly #chance: () => number;

  /** `fromMs`: where times begin; they never come twice. */
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

/** A number as JSON and line protocol have it, -0 too. */
export function numberText(value: number): string {
  return Object.is(value, -0) ? '-0' : String(value);
}

/** Something done again and again, with a pause, until it is told to end. */
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
    // Told by `end`.
    this.#done.catch(() => {});
  }

  async #run(pauseMs: number): Promise<void> {
    for (let due = performance.now(); this.#running; ) {
      await this.#step();
      due = Math.max(due + pauseMs, performance.now() - 1_000);
      await pause(Math.max(0, due - performance.now()));
    }
  }

  /** Rejects with what a step threw. */
  async end(): Promise<void> {
    this.#running = false;
    await this.#done;
  }
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
