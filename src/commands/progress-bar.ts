import { counted } from '../base/amounts.ts';
import type { Clock } from '../base/clock.ts';

const WIDTH = 30;
const EVERY_MS = 100;

/** A line on standard error that is drawn over itself; nothing where that is no terminal, or with `--json`. */
export class ProgressBar {
  readonly #total: number;
  readonly #clock: Clock;
  readonly #stream: NodeJS.WriteStream;
  readonly #on: boolean;
  #drawnMs = Number.NEGATIVE_INFINITY;

  constructor(total: number, clock: Clock, stream: NodeJS.WriteStream = process.stderr) {
    this.#total = total;
    this.#clock = clock;
    this.#stream = stream;
    this.#on = stream.isTTY === true;
  }

  show(done: number): void {
    const nowMs = this.#clock.monotonicMs();
    if (!this.#on || nowMs - this.#drawnMs < EVERY_MS) return;
    this.#drawnMs = nowMs;
    this.#draw(done);
  }

  /** The last word stays on the screen. */
  end(done: number): void {
    if (!this.#on) return;
    this.#draw(done);
    this.#stream.write('\n');
  }

  #draw(done: number): void {
    if (this.#total <= 0) {
      this.#stream.write(`\r${counted(done, 'value')}`);
      return;
    }
    // Values that come in or are delivered meanwhile: never more than whole.
    const share = Math.min(1, done / this.#total);
    const full = Math.round(share * WIDTH);
    const bar = `${'█'.repeat(full)}${'░'.repeat(WIDTH - full)}`;
    this.#stream.write(`\r${bar} ${String(Math.round(share * 100)).padStart(3)} % ${counted(done, 'value')}`);
  }
}
