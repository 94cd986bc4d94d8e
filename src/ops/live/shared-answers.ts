import { gzipSync } from 'node:zlib';
import type { Clock } from '../../base/clock.ts';

/** JSON, uncompressed and as gzip. */
export interface Answer {
  plain: Buffer;
  gzip: Buffer;
}

/** Time for which an answer is shared, in milliseconds. */
const SHARED_MS = 1_000;
/** Maximum number of stored answers. A new answer replaces the oldest one, so that no viewer can lock out others. */
const MAX_ANSWERS = 64;
/** The fastest level reduces JSON by 80 %. */
const LEVEL = 1;

/**
 * Shares the answers of the page's requests between viewers. An answer is computed and compressed at most once per
 * second, regardless of the number of viewers, and only when it is requested. No state belongs to a viewer.
 *
 * An answer is stored from the beginning of its computation until one second after its end, so that a slow store
 * receives one request at a time per subject.
 */
export class SharedAnswers {
  readonly #clock: Clock;
  readonly #answers = new Map<string, Promise<Answer | undefined>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Returns the answer for a key. `compute` returns data for JSON, or `undefined` if there is no such subject. Rejects
   * with the error of `compute`.
   */
  get(key: string, compute: () => unknown): Promise<Answer | undefined> {
    const known = this.#answers.get(key);
    if (known) return known;
    const answer = answerOf(compute);
    this.#answers.set(key, answer);
    const [oldest] = this.#answers.keys();
    if (this.#answers.size > MAX_ANSWERS) this.#answers.delete(oldest!);
    const forgetLater = () =>
      this.#clock.after(SHARED_MS, () => {
        if (this.#answers.get(key) === answer) this.#answers.delete(key);
      });
    answer.then(forgetLater, forgetLater);
    return answer;
  }
}

async function answerOf(compute: () => unknown): Promise<Answer | undefined> {
  const data = await compute();
  if (data === undefined) return undefined;
  const plain = Buffer.from(`${JSON.stringify(data)}\n`);
  // Synchronous, because a name server that does not respond blocks the thread pool.
  return { plain, gzip: gzipSync(plain, { level: LEVEL }) };
}
