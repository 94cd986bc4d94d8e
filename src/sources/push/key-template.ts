interface Part {
  /** Text before the placeholder. */
  before: string;
  /** `field`, or the name of an Influx tag. */
  name: string;
}

/**
 * Composes the key of a value from its field and the Influx tags of its line (`INGEST_KEY_FROM`): `{field}_{cpu}`. An Influx tag that a line does not have is
 * left out together with the text before it. Characters of an Influx tag that no key may contain become `_`.
 */
export class KeyTemplate {
  readonly text: string;
  readonly #parts: readonly Part[];
  readonly #end: string;

  constructor(text: string) {
    this.text = text;
    const pieces = text.split(/\{([^{}]+)\}/);
    this.#end = pieces.length % 2 === 1 ? pieces.pop()! : '';
    const parts: Part[] = [];
    for (let at = 0; at < pieces.length; at += 2) parts.push({ before: pieces[at]!, name: pieces[at + 1]! });
    this.#parts = parts;
  }

  keyOf(field: string, tags: ReadonlyMap<string, string>): string {
    let key = this.#parts[0]!.before;
    let hasText = false;
    for (const [at, { before, name }] of this.#parts.entries()) {
      const text = name === 'field' ? field : tags.get(name)?.replaceAll(/[^A-Za-z0-9._-]/g, '_');
      if (text === undefined) continue;
      key += at > 0 && hasText ? before + text : text;
      hasText = true;
    }
    return key + this.#end;
  }
}
