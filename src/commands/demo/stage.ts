import { styleText } from 'node:util';

/** `step`: an expected result. `news`: an action. `trouble`: a failure. */
type Mark = 'step' | 'news' | 'trouble';

export interface Output {
  isTTY?: boolean;
  columns?: number;
  write(text: string): unknown;
}

const HIDE_CURSOR = '\x1b[?25l';
const SHOW_CURSOR = '\x1b[?25h';
const TO_END = '\x1b[K';
/** The live line must not wrap. */
const MAX_WIDTH = 79;
const SIGNS = { step: ['green', '✓'], news: ['cyan', '·'], trouble: ['red', '✗'] } as const;

export function openStage(output: Output, environment: NodeJS.ProcessEnv, elapsedMs: () => number): Stage {
  return new Stage(output, environment, elapsedMs);
}

/** Demo output. On a terminal: scrolling lines above a live status line. In a pipe: lines and a periodic status. */
export class Stage {
  readonly #output: Output;
  readonly #elapsedMs: () => number;
  readonly #isLive: boolean;
  readonly #isColoured: boolean;
  /** Text on the live line; `undefined` before the first update and after `close`. */
  #drawn: string | undefined;
  #closed = false;

  constructor(output: Output, environment: NodeJS.ProcessEnv, elapsedMs: () => number) {
    this.#output = output;
    this.#elapsedMs = elapsedMs;
    this.#isLive = output.isTTY === true && environment.TERM !== 'dumb';
    this.#isColoured = this.#isLive && !environment.NO_COLOR;
  }

  /** Prints a line with the elapsed time. */
  say(mark: Mark, text: string): void {
    const [colour, sign] = SIGNS[mark];
    const shown = mark === 'trouble' ? this.#paint('red', text) : text;
    this.print(`${this.#paint('dim', this.#time())}  ${this.#paint(colour, sign)} ${shown}`);
  }

  /** Prints a line without a time. */
  print(text: string): void {
    // A single write avoids flicker.
    const below = this.#drawn === undefined ? '' : this.#paint('dim', this.#drawn) + TO_END;
    this.#output.write(this.#isLive ? `\r${text}${TO_END}\n${below}` : `${text}\n`);
  }

  /** Updates the live line. If there is no live line, prints `plain` if given. */
  live(text: string, plain?: string): void {
    if (!this.#isLive && plain !== undefined) this.#output.write(`${this.#time()}    ${plain}\n`);
    if (!this.#isLive || this.#closed) return;
    const width = Math.min(MAX_WIDTH, (this.#output.columns ?? 80) - 1);
    const next = [...`${this.#time()}  ${text}`].slice(0, Math.max(0, width)).join('');
    if (next === this.#drawn) return;
    const begin = this.#drawn === undefined ? HIDE_CURSOR : '';
    this.#drawn = next;
    this.#output.write(`${begin}\r${this.#paint('dim', next)}${TO_END}`);
  }

  /** Removes the live line and restores the terminal. Can be called more than once. */
  close(): void {
    this.#closed = true;
    if (this.#drawn === undefined) return;
    this.#drawn = undefined;
    this.#output.write(`\r${TO_END}${SHOW_CURSOR}`);
  }

  #paint(format: Parameters<typeof styleText>[0], text: string): string {
    return this.#isColoured ? styleText(format, text, { validateStream: false }) : text;
  }

  #time(): string {
    return `${(this.#elapsedMs() / 1000).toFixed(1)} s`.padStart(7);
  }
}

/** `██████░░░░  58 %` */
export function progressBar(share: number, width: number): string {
  const bounded = Math.min(1, Math.max(0, share));
  const full = Math.floor(bounded * width);
  return `${'█'.repeat(full)}${'░'.repeat(width - full)} ${String(Math.floor(bounded * 100)).padStart(3)} %`;
}
