/** Series with values in quarantine, as of a moment ago: asked for where the count of values there is another, and somebody wants to know. */
export class QuarantinedSeries {
  readonly #count: () => number;
  readonly #read: () => Promise<readonly number[]>;
  #asked = 0;
  #known: ReadonlySet<number> = new Set();

  /** `count`: values in quarantine now. */
  constructor(count: () => number, read: () => Promise<readonly number[]>) {
    this.#count = count;
    this.#read = read;
  }

  get known(): ReadonlySet<number> {
    const count = this.#count();
    if (count === this.#asked) return this.#known;
    this.#asked = count;
    this.#read().then(
      (series) => {
        this.#known = new Set(series);
      },
      () => {
        // A store that does not answer is asked again.
        this.#asked = Number.NaN;
      },
    );
    return this.#known;
  }
}
