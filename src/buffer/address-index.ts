import { systemClock } from '../base/clock.ts';

/**
 * From a text to the number that it has in a list: a table of numbers alone, four bytes a place. A `Map` would take fifty
 * bytes of each entry, which is an eighth of all that a series costs.
 */
export class AddressIndex {
  readonly #texts: readonly (string | undefined)[];
  /** Numbers, or 0; at most half full. Its length is a power of two. */
  #places = new Int32Array(64);
  #count = 0;

  /** `texts`: by number, from 1 on. What it holds is added by `add`, and what left it by `rebuild`. */
  constructor(texts: readonly (string | undefined)[]) {
    this.#texts = texts;
  }

  get size(): number {
    return this.#count;
  }

  find(text: string): number | undefined {
    const found = this.#places[this.#placeOf(text)]!;
    return found === 0 ? undefined : found;
  }

  /** Of a text that is not in yet. */
  add(text: string, id: number): void {
    if ((this.#count + 1) * 2 > this.#places.length) this.rebuild(this.#places.length * 2);
    const place = this.#placeOf(text);
    // A rebuild may have met it in the list already.
    if (this.#places[place] !== 0) return;
    this.#places[place] = id;
    this.#count++;
  }

  /** After texts have left the list. */
  rebuild(length = this.#places.length): void {
    this.#places = new Int32Array(length);
    this.#count = 0;
    for (let id = 1; id < this.#texts.length; id++) {
      const text = this.#texts[id];
      if (text === undefined) continue;
      this.#places[this.#placeOf(text)] = id;
      this.#count++;
    }
  }

  /** Where the text stands, else where it would. */
  #placeOf(text: string): number {
    const mask = this.#places.length - 1;
    let place = hashOf(text) & mask;
    for (let id = this.#places[place]!; id !== 0 && this.#texts[id] !== text; id = this.#places[place]!) {
      place = (place + 1) & mask;
    }
    return place;
  }
}

/** Another with each process: nobody outside can know which keys share a place. */
const SEED = (systemClock.random() * 2 ** 32) | 0;

/** Murmur's mixing over the characters. */
function hashOf(text: string): number {
  let hash = SEED;
  for (let i = 0; i < text.length; i++) {
    hash = Math.imul(hash ^ text.charCodeAt(i), 0x5bd1e995);
    hash ^= hash >>> 15;
  }
  return hash >>> 0;
}
