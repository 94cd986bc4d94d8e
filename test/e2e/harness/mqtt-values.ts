import type { Platform } from './platform.ts';

const ASSET = 881;

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

  compare(platform: Pick<Platform, 'stored'>): { missing: number[]; doubled: number[]; invented: number[] } {
    const result = { missing: [] as number[], doubled: [] as number[], invented: [] as number[] };
    for (const [key, sent] of this.#byKey) {
      const times = new Map<number, number>();
      for (const { value } of platform.stored(ASSET, key)) times.set(value, (times.get(value) ?? 0) + 1);
      for (const number of sent) if (!times.has(number)) result.missing.push(number);
      for (const [number, count] of times) {
        if (count > 1) result.doubled.push(number);
        if (!sent.includes(number)) result.invented.push(number);
      }
    }
    return result;
  }
}
