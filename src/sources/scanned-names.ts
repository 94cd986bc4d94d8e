const MAX_KEY = 64;

/** Generates unique keys for scanned values from their remote names. */
export class ScannedNames {
  readonly #given = new Map<string, number>();

  /** Returns a unique key based on `wanted`, or on `otherwise` if `wanted` contains no characters allowed in a key. */
  unique(wanted: string, otherwise = 'value'): string {
    const name =
      wanted
        .toLowerCase()
        .replaceAll(/[^a-z0-9_-]+/g, '_')
        .replaceAll(/^_+|_+$/g, '')
        .slice(0, MAX_KEY) || otherwise;
    const count = (this.#given.get(name) ?? 0) + 1;
    this.#given.set(name, count);
    return count === 1 ? name : this.unique(`${name}_${count}`);
  }
}
