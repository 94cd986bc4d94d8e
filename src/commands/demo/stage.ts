import { styleText } from 'node:util';

/**
 * Where the demo tells its story. On a terminal: lines that scroll, and under them one live line that is drawn over
 * itself. Elsewhere: lines alone, the live line's text now and then.
 */
export interface Stage {
  /** One line of the story, with the time since the start before it. */
  say(mark: Mark, text: string): void;
  /** A line without a time. */
  tell(text: string): void;
  /** The newest text of the live line. `plain`: what to print where there is no live line; nothing if left out. */
  live(text: string, plain?: string): void;
  /** Takes the live line away and gives the terminal back as it was. May be called twice. */
  close(): void;
}

/** `step`: something that the demo promised came. `news`: something happens. `trouble`: it should not have. */
type Mark = 'step' | 'news' | 'trouble';

/** The part of a stdout that a stage needs. */
export interface Output {
  isTTY?: boolean;
  columns?: number;
  write(text: string): unknown;
}

const HIDE_CURSOR = '\x1b[?25l';
const SHOW_CURSOR = '\x1b[?25h';
const TO_END = '\x1b[K';
/** Nothing that is drawn over itself may wrap. */
const WIDEST = 79;

export function openStage(output: Output, environment: NodeJS.ProcessEnv, elapsedMs: () => number): Stage {
  const hasLiveLine = output.isTTY === true && environment.TERM !== 'dumb';
  const hasColour = hasLiveLine && !environment.NO_COLOR;
  const paint = (format: Parameters<typeof styleText>[0], text: string) =>
    hasColour ? styleText(format, text, { validateStream: false }) : text;
  const time = () => `${(elapsedMs() / 1000).toFixed(1)} s`.padStart(7);
  const line = (mark: Mark, text: string) => {
    const signs = { step: paint('green', '✓'), news: paint('cyan', '·'), trouble: paint('red', '✗') };
    return `${paint('dim', time())}  ${signs[mark]} ${mark === 'trouble' ? paint('red', text) : text}`;
  };
  return hasLiveLine
    ? new TerminalStage(output, line, (text) => paint('dim', text), time)
    : new PlainStage(output, line, time);
}

class PlainStage implements Stage {
  readonly #output: Output;
  readonly #line: (mark: Mark, text: string) => string;
  readonly #time: () => string;

  constructor(output: Output, line: (mark: Mark, text: string) => string, time: () => string) {
    this.#output = output;
    this.#line = line;
    this.#time = time;
  }

  say(mark: Mark, text: string): void {
    this.#output.write(`${this.#line(mark, text)}\n`);
  }

  tell(text: string): void {
    this.#output.write(`${text}\n`);
  }

  live(_text: string, plain?: string): void {
    if (plain !== undefined) this.#output.write(`${this.#time()}    ${plain}\n`);
  }

  close(): void {}
}

class TerminalStage implements Stage {
  readonly #output: Output;
  readonly #line: (mark: Mark, text: string) => string;
  readonly #dim: (text: string) => string;
  readonly #time: () => string;
  /** What stands on the live line; `undefined` before the first and after the end. */
  #drawn: string | undefined;
  #closed = false;

  constructor(
    output: Output,
    line: (mark: Mark, text: string) => string,
    dim: (text: string) => string,
    time: () => string,
  ) {
    this.#output = output;
    this.#line = line;
    this.#dim = dim;
    this.#time = time;
  }

  say(mark: Mark, text: string): void {
    this.tell(this.#line(mark, text));
  }

  tell(text: string): void {
    // One write: a terminal that draws between two would flicker.
    const below = this.#drawn === undefined ? '' : this.#dim(this.#drawn) + TO_END;
    this.#output.write(`\r${text}${TO_END}\n${below}`);
  }

  live(text: string): void {
    if (this.#closed) return;
    const width = Math.min(WIDEST, (this.#output.columns ?? 80) - 1);
    const next = [...`${this.#time()}  ${text}`].slice(0, Math.max(0, width)).join('');
    if (next === this.#drawn) return;
    const begin = this.#drawn === undefined ? HIDE_CURSOR : '';
    this.#drawn = next;
    this.#output.write(`${begin}\r${this.#dim(next)}${TO_END}`);
  }

  close(): void {
    this.#closed = true;
    if (this.#drawn === undefined) return;
    this.#drawn = undefined;
    this.#output.write(`\r${TO_END}${SHOW_CURSOR}`);
  }
}

/** `██████░░░░  58 %` */
export function progressBar(share: number, width: number): string {
  const full = Math.floor(Math.min(1, Math.max(0, share)) * width);
  const percent = Math.floor(Math.min(1, Math.max(0, share)) * 100);
  return `${'█'.repeat(full)}${'░'.repeat(width - full)} ${String(percent).padStart(3)} %`;
}

const NUMBERS = new Intl.NumberFormat('en');

/** `1,204` */
export function count(number: number): string {
  return NUMBERS.format(number);
}
