import { type Backoff, fullJitterMs } from '../../base/retry.ts';
import type { ModbusError } from './modbus-error.ts';

/** A device that does not answer costs its neighbours on the line a timeout at each try, so the tries become rare. */
const BACKOFF: Backoff = { baseMs: 2_000, capMs: 30_000 };

/** How a device, or the way to it, does: failures in a row, and how long it is left alone after them. */
export class Rest {
  readonly #backoff: Backoff;
  #failures = 0;
  #untilMs = 0;
  #error: ModbusError | undefined;

  constructor(backoff: Backoff = BACKOFF) {
    this.#backoff = backoff;
  }

  /** What it failed with last; `undefined` where it answers. */
  get error(): ModbusError | undefined {
    return this.#error;
  }

  isOver(nowMs: number): boolean {
    return nowMs >= this.#untilMs;
  }

  /** It failed (again). Left alone for `floorMs` at least. */
  failed(error: ModbusError, nowMs: number, random: () => number, floorMs: number): void {
    this.#untilMs = nowMs + fullJitterMs(this.#failures++, this.#backoff, random, floorMs);
    this.#error = error;
  }

  /** It answered. */
  answered(): void {
    this.#failures = 0;
    this.#untilMs = 0;
    this.#error = undefined;
  }
}
