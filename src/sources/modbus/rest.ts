import { type Backoff, fullJitterMs } from '../../base/retry.ts';
import type { ModbusError } from './modbus-error.ts';

/** Minimum pause after a failure. */
export const REST_FLOOR_MS = 250;
/** Backoff for an unresponsive device, because each attempt delays other devices on the line. */
const BACKOFF: Backoff = { baseMs: 2_000, capMs: 30_000 };

/** Backoff state of a device, its connection, or its registers with one poll interval: consecutive failures and the resulting pause. */
export class Rest {
  readonly #backoff: Backoff;
  #failures = 0;
  #untilMs = 0;
  #error: ModbusError | undefined;

  constructor(backoff: Backoff = BACKOFF) {
    this.#backoff = backoff;
  }

  /** Latest failure, or `undefined` if the device responds. */
  get error(): ModbusError | undefined {
    return this.#error;
  }

  isOver(nowMs: number): boolean {
    return nowMs >= this.#untilMs;
  }

  /** Records a failure and pauses requests for at least `floorMs`. */
  recordFailure(error: ModbusError, nowMs: number, random: () => number, floorMs: number): void {
    this.#untilMs = nowMs + fullJitterMs(this.#failures++, this.#backoff, random, floorMs);
    this.#error = error;
  }

  /** Records a response. */
  recordResponse(): void {
    this.#failures = 0;
    this.#untilMs = 0;
    this.#error = undefined;
  }
}
