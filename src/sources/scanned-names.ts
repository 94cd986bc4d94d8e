const MAX_KEY = 64;

/** Keys for what a scan found, made of the names that the other side has; each is given once. */
export class ScannedNames {
  readonly #given = new Map<string, number>();

  /** `otherwise` where nothing of the name can stand in a key. */
  give(wanted: string, otherwise = 'value'): string {
    const name =
      wanted
        .toLowerCase()
        .replaceAll(/[^a-z0-9_-]+/g, '_')
        .replaceAll(/^_+|_+$/g, '')
        .slice(0, MAX_KEY) || otherwise;
    const count = (this.#given.get(name) ?? 0) + 1;
    this.#given.set(name, count);
    return count === 1 ? name : this.give(`${name}_${count}`);
  }
}
