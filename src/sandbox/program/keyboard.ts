import { readFileSync } from 'node:fs';
import { messageOf } from '../../base/errors.ts';

/** As much of a terminal's input as a keyboard needs: `process.stdin` is one. */
export interface KeyInput {
  isTTY?: boolean;
  setRawMode(raw: boolean): unknown;
  on(event: 'data', listener: (chunk: Buffer) => void): unknown;
  off(event: 'data', listener: (chunk: Buffer) => void): unknown;
  resume(): unknown;
  pause(): unknown;
}

export interface KeyboardParts {
  input: KeyInput;
  /** A key that was pressed. What it throws is said, for a happening that cannot be is no end of the sandbox. */
  press(key: string): Promise<void> | void;
  /** Ctrl-C. */
  quit(): void;
  /** Ctrl-Z: stops the whole job, as the terminal would outside raw mode. */
  suspend(): void;
  say(line: string): void;
}

const CTRL_C = '\u0003';
const CTRL_Z = '\u001a';

/**
 * Single keys from a terminal. While it is on, the terminal is in raw mode, where Ctrl-C and Ctrl-Z are keys like any
 * other; `stop` gives it back, and an exit by any way does as well, for a shell left in raw mode shows nothing typed.
 */
export class Keyboard {
  readonly #parts: KeyboardParts;
  #isOn = false;
  readonly #onData = (chunk: Buffer) => this.#read(chunk);
  readonly #restore = () => this.stop();

  constructor(parts: KeyboardParts) {
    this.#parts = parts;
  }

  get isOn(): boolean {
    return this.#isOn;
  }

  start(): void {
    if (this.#isOn) return;
    this.#isOn = true;
    const { input } = this.#parts;
    process.on('exit', this.#restore);
    input.setRawMode(true);
    input.on('data', this.#onData);
    input.resume();
  }

  /** Idempotent. */
  stop(): void {
    if (!this.#isOn) return;
    this.#isOn = false;
    const { input } = this.#parts;
    process.off('exit', this.#restore);
    input.off('data', this.#onData);
    input.setRawMode(false);
    input.pause();
  }

  #read(chunk: Buffer): void {
    const text = chunk.toString('utf8');
    // An arrow or a function key comes as one chunk that begins with escape: none of its letters was meant.
    if (text.startsWith('\u001b')) return;
    for (const key of text) {
      if (!this.#isOn) return;
      if (key === CTRL_C) {
        this.stop();
        this.#parts.quit();
      } else if (key === CTRL_Z) {
        this.stop();
        this.#parts.suspend();
      } else if (key >= ' ') {
        void this.#press(key);
      }
    }
  }

  async #press(key: string): Promise<void> {
    try {
      await this.#parts.press(key);
    } catch (error) {
      this.#parts.say(wordsOf(error));
    }
  }
}

/** A refusal of the sandbox says in its body why it cannot be. */
function wordsOf(error: unknown): string {
  const { errors } = (error as { body?: { errors?: { message: string }[] } }).body ?? {};
  return errors?.[0]?.message ?? messageOf(error);
}

/**
 * Whether this process stands in the foreground of its terminal. `tagferry sandbox &` does not: to set raw mode there
 * would stop it (SIGTTOU). Where /proc does not tell, it is taken to.
 */
export function isInForeground(stat: string | undefined = ownStat()): boolean {
  // After the name, which may hold anything, in brackets: state, parent, process group, session, terminal, its group.
  const [, , group, , , terminalGroup] = stat?.slice(stat.lastIndexOf(')') + 2).split(' ') ?? [];
  return group === undefined || terminalGroup === undefined || group === terminalGroup;
}

function ownStat(): string | undefined {
  try {
    return readFileSync('/proc/self/stat', 'utf8');
  } catch {
    return undefined;
  }
}
