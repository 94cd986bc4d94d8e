/** Values that the far end accepted: `Platform`, or the sandbox of older tests. */
type FarEnd = { stored: ListValues } | { values: { list: ListValues } };
type ListValues = (asset: number, key: string) => readonly { value: number }[];

export const TOPICS = 10;
const ASSET = 881;

/** Ten topics, one per key of an asset; `topics` selects a number of them. */
export function tagsOf(port: number, topics: readonly number[], source = 'qos: 1', value = ''): string {
  const values = topics.map((topic) => `      k${topic}: { from: broker, topic: site/t${topic}${value} }\n`);
  return (
    `sources:\n  broker: { mqtt: "mqtt://127.0.0.1:${port}", ${source} }\n` +
    `tags:\n  T:\n    asset: ${ASSET}\n    values:\n${values.join('')}`
  );
}

/** Published numbers, one per message, and which of them are missing, duplicated or invented on the platform. */
export class Published {
  readonly #byKey = new Map<string, number[]>();
  #next = 0;

  get count(): number {
    return this.#next;
  }

  /** Returns the next number for a topic. */
  next(topic: number): string {
    const number = this.#next++;
    const key = `k${topic}`;
    this.#byKey.set(key, [...(this.#byKey.get(key) ?? []), number]);
    return String(number);
  }

  compare(farEnd: FarEnd): { missing: number[]; doubled: number[]; invented: number[] } {
    const result = { missing: [] as number[], doubled: [] as number[], invented: [] as number[] };
    for (const [key, sent] of this.#byKey) {
      const times = new Map<number, number>();
      const stored = 'stored' in farEnd ? farEnd.stored(ASSET, key) : farEnd.values.list(ASSET, key);
      for (const { value } of stored) times.set(value, (times.get(value) ?? 0) + 1);
      for (const number of sent) if (!times.has(number)) result.missing.push(number);
      for (const [number, count] of times) {
        if (count > 1) result.doubled.push(number);
        if (!sent.includes(number)) result.invented.push(number);
      }
    }
    return result;
  }
}

export const NOTHING_WRONG = { missing: [], doubled: [], invented: [] };
