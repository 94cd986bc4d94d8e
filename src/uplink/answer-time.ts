/**
 * How long the answer to a post may take: as the link has shown, so that a post that hangs does not hold its asset and its
 * socket for longer than the slowest honest answer would. A limit that is too short costs a post twice, so there is room:
 * never under twice the slowest recent answer, nor under three times what a body of this size took at the slowest, 15 s at
 * least. It doubles for an asset with each of its answers that ran out, 90 s at most, until that asset is answered: an asset
 * whose answers are slow by nature is waited for in the end, whatever the others show.
 */
const MIN_MS = 15_000;
/** A post of 480 kB over a 64 kbit/s link takes 60 s until the platform can begin to answer. Also where nothing is known. */
const MAX_MS = 90_000;
/** Nothing is known of the link's speed yet: 64 kbit/s. */
const SLOWEST_LINK_MS_PER_BYTE = 1 / 8;
/** Smaller bodies tell of the round trip, not of the speed. */
const SPEED_FROM_BYTES = 16 * 1024;
/** "Recent": so many minutes. */
const MINUTES = 10;
const MINUTE_MS = 60_000;
const ROOM = 2;
const SPEED_ROOM = 3;

/** What the answers of one minute have shown. */
interface Minute {
  minute: number;
  slowestMs: number;
  /** The most milliseconds a byte; `undefined` where no large body was answered. */
  msPerByte: number | undefined;
}

export class AnswerTime {
  #minutes: Minute[] = [];
  /** By asset: answers that ran out since its last one. */
  readonly #ranOut = new Map<number, number>();

  /** An answer came, whatever it said. */
  came(asset: number, bytes: number, tookMs: number, nowMs: number): void {
    this.#ranOut.delete(asset);
    const minute = Math.floor(nowMs / MINUTE_MS);
    let now = this.#minutes.at(-1);
    if (now?.minute !== minute) {
      now = { minute, slowestMs: 0, msPerByte: undefined };
      this.#minutes.push(now);
      if (this.#minutes.length > MINUTES) this.#minutes.shift();
    }
    now.slowestMs = Math.max(now.slowestMs, tookMs);
    if (bytes >= SPEED_FROM_BYTES) now.msPerByte = Math.max(now.msPerByte ?? 0, tookMs / bytes);
  }

  /** The limit was reached without an answer. */
  ranOut(asset: number): void {
    this.#ranOut.set(asset, (this.#ranOut.get(asset) ?? 0) + 1);
  }

  /** For a post of so many bytes that starts now. */
  limitMs(asset: number, bytes: number, nowMs: number): number {
    const oldest = Math.floor(nowMs / MINUTE_MS) - MINUTES;
    const recent = this.#minutes.filter(({ minute }) => minute > oldest);
    if (recent.length === 0) return MAX_MS;
    const slowestMs = Math.max(...recent.map((one) => one.slowestMs));
    const speeds = recent.flatMap(({ msPerByte }) => msPerByte ?? []);
    const speedMs = bytes * (speeds.length > 0 ? Math.max(...speeds) * SPEED_ROOM : SLOWEST_LINK_MS_PER_BYTE * ROOM);
    const wantedMs = Math.max(MIN_MS, ROOM * slowestMs, speedMs);
    return Math.min(MAX_MS, wantedMs * 2 ** (this.#ranOut.get(asset) ?? 0));
  }
}
