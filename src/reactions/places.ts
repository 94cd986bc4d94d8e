/**
 * Places for reactions in progress. Most of a reaction is waiting, and an incident must not start 500 processes. A rule has four at
 * most, all rules together 16, but a rule without any always gets one: no rule, however slow, keeps another from running.
 */
const PER_RULE = 4;
const TOTAL = 16;

export class Places {
  readonly #used = new Map<string, number>();
  readonly #perRule: number;
  #total = 0;

  constructor(perRule = PER_RULE) {
    this.#perRule = perRule;
  }

  hasRoom(rule: string): boolean {
    const used = this.#used.get(rule) ?? 0;
    return used === 0 || (used < this.#perRule && this.#total < TOTAL);
  }

  occupy(rule: string): void {
    this.#used.set(rule, (this.#used.get(rule) ?? 0) + 1);
    this.#total++;
  }

  release(rule: string): void {
    const left = (this.#used.get(rule) ?? 0) - 1;
    if (left > 0) this.#used.set(rule, left);
    else this.#used.delete(rule);
    this.#total--;
  }
}
