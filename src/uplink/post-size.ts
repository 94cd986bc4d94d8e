/**
 * The largest body that the way to the platform lets through: POST_MAX_BYTES, until a 413 teaches less.
 *
 * A 413 halves the limit. Posts that fill it and are taken raise it again: to the double, or to the middle between what is
 * taken and what was too large, until the two are close. What was too large is forgotten after a minute, and the next larger
 * body finds out whether it still is; where it is, the wait doubles, to an hour. So a proxy that was wrong for five minutes
 * costs minutes, and one with a small limit a single post now and then. The end of an outage, and a reload, forget it all.
 *
 * One asset that is answered 413 where others have just had larger posts taken says nothing about the way.
 */
const FIRST_REST_MS = 60_000;
const MAX_REST_MS = 3_600_000;
/** So many posts in a row that fill the limit raise it. */
const FULL_POSTS = 3;
/** Above this part of what was too large it is not worth a refused post to come closer. */
const CLOSE = 0.75;
/** A body that was taken so lately contradicts a 413 for one that is no larger. */
const LATELY_MS = 10_000;
/** A value with its key, group and unit must fit at any rate. */
const MIN_BYTES = 1_000;

export class PostSize {
  #configured: number;
  #limit: number;
  /** The smallest body that is known to be too large. */
  #tooLarge = Number.POSITIVE_INFINITY;
  /** The largest that was taken since a smaller one was too large. */
  #proven = 0;
  #fullPosts = 0;
  #restMs = FIRST_REST_MS;
  /** When what was too large may be tried again. */
  #forgetAtMs = Number.NEGATIVE_INFINITY;
  #lately = { bytes: 0, atMs: Number.NEGATIVE_INFINITY };

  constructor(maxBytes: number) {
    this.#configured = maxBytes;
    this.#limit = maxBytes;
  }

  get maxBytes(): number {
    return this.#limit;
  }

  /** After a reload: whoever reloads may have mended what was in the way. */
  setLimit(maxBytes: number): void {
    this.#configured = maxBytes;
    this.forget();
  }

  /** What 413s taught holds no longer. */
  forget(): void {
    this.#limit = this.#configured;
    this.#tooLarge = Number.POSITIVE_INFINITY;
    this.#proven = 0;
    this.#fullPosts = 0;
    this.#restMs = FIRST_REST_MS;
    this.#forgetAtMs = Number.NEGATIVE_INFINITY;
  }

  /** A body of so many bytes was taken. Gives the new limit where it grew. */
  taken(bytes: number, nowMs: number): number | undefined {
    if (bytes >= this.#lately.bytes || nowMs - this.#lately.atMs > LATELY_MS) this.#lately = { bytes, atMs: nowMs };
    this.#proven = Math.max(this.#proven, bytes);
    if (bytes >= this.#tooLarge) {
      this.#tooLarge = Number.POSITIVE_INFINITY;
      this.#restMs = FIRST_REST_MS;
    }
    if (this.#limit >= this.#configured || bytes * 2 < this.#limit) return undefined;
    this.#fullPosts++;
    if (this.#fullPosts < FULL_POSTS) return undefined;
    const next = Math.min(this.#configured, this.#larger(nowMs));
    if (next <= this.#limit) return undefined;
    this.#fullPosts = 0;
    this.#limit = next;
    return next;
  }

  #larger(nowMs: number): number {
    const double = this.#limit * 2;
    const mayForget = nowMs >= this.#forgetAtMs;
    if (double < this.#tooLarge || mayForget) return double;
    return this.#limit < this.#tooLarge * CLOSE ? Math.floor((this.#limit + this.#tooLarge) / 2) : this.#limit;
  }

  /** A body of so many bytes was answered 413. Gives the new limit where it changed. */
  refused(bytes: number, nowMs: number): number | undefined {
    if (this.#lately.bytes >= bytes && nowMs - this.#lately.atMs <= LATELY_MS) return undefined;
    if (bytes <= this.#proven) this.#proven = 0;
    // Those that follow within the rest belong to the same happening.
    if (nowMs >= this.#forgetAtMs) {
      this.#forgetAtMs = nowMs + this.#restMs;
      this.#restMs = Math.min(MAX_REST_MS, this.#restMs * 2);
    }
    this.#tooLarge = Math.min(this.#tooLarge, bytes);
    this.#fullPosts = 0;
    const next = Math.max(MIN_BYTES, this.#proven, Math.floor(bytes / 2));
    if (next >= this.#limit) return undefined;
    this.#limit = next;
    return next;
  }
}
