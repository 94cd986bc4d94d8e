import type { Observed } from './observed.ts';

/** What a rule says of what it saw. */
interface Tally {
  held(): void;
  /** In a few words; tokens and secrets have no place in them. */
  broken(why: string): void;
}

/** What the rules may ask the sandbox. */
export interface ExamSurroundings {
  /** Whose a token is, dead or alive; `undefined` where nobody knows it. */
  ownerOf(token: string): string | undefined;
  /** Whether there is such an endpoint. */
  isOffered(method: string, path: string): boolean;
  /** Milliseconds of the machine that are left of the sandbox's minute. */
  leftOfMinuteMs(): number;
}

/** Looks at one request after the other. */
export interface Watcher {
  see(one: Observed): void;
  /** What should have come by now and has not, in words. */
  open?(nowMs: number): string | undefined;
}

export interface Rule {
  id: string;
  /** Section of docs/platform.md. */
  section: string;
  requirement: string;
  begin(tally: Tally, surroundings: ExamSurroundings): Watcher;
}

/** Memory of a rule: the oldest fall away, so that a client that is watched for weeks costs no more than one of an hour. */
export class Remembered<Value> {
  readonly #max: number;
  readonly #values = new Map<string, Value>();

  constructor(max = 10_000) {
    this.#max = max;
  }

  get(name: string): Value | undefined {
    return this.#values.get(name);
  }

  set(name: string, value: Value): void {
    this.#values.delete(name);
    this.#values.set(name, value);
    if (this.#values.size > this.#max) this.#values.delete(this.#values.keys().next().value!);
  }

  delete(name: string): boolean {
    return this.#values.delete(name);
  }

  entries(): IterableIterator<[string, Value]> {
    return this.#values.entries();
  }

  get size(): number {
    return this.#values.size;
  }
}
