import { createInterface, type Interface } from 'node:readline';
import { Writable } from 'node:stream';
import { TagferryError } from '../../base/errors.ts';
import { fitted } from '../../base/table.ts';

/** Minimum number of columns for an answer next to its question. */
const ROOM_FOR_ANSWER = 30;
/** On a narrower terminal the answer is on a separate line. */
const MIN_COLUMNS_BESIDE = 70;

/** Exit status after Ctrl-C: 128 + SIGINT. */
export const EXIT_INTERRUPTED = 130;

export interface Screen {
  say(text: string): void;
  /** Prints a command on one line for copying. */
  show(command: string): void;
}

/** Questions and answers on a terminal. Secrets are not echoed. In a pipe, each line of standard input is an answer. */
export class Dialogue implements Screen {
  readonly #lines: Interface;
  readonly #waiting: { resolve(line: string): void; reject(error: Error): void }[] = [];
  readonly #early: string[] = [];
  #isSecret = false;
  #isOver = false;
  #isWriting = false;
  #isInterrupted = false;

  constructor() {
    const shown = new Writable({
      write: (chunk, _encoding, done) => {
        if (!this.#isSecret) process.stderr.write(chunk);
        done();
      },
    });
    this.#lines = createInterface({ input: process.stdin, output: shown, terminal: process.stdin.isTTY === true });
    this.#lines.on('line', (line) => {
      const waiting = this.#waiting.shift();
      if (waiting) waiting.resolve(line);
      else this.#early.push(line);
    });
    this.#lines.on('close', () => {
      this.#isOver = true;
      for (const { reject } of this.#waiting.splice(0)) reject(this.#ended());
    });
    this.#lines.on('SIGINT', () => this.#interrupt());
  }

  get isTerminal(): boolean {
    return process.stdin.isTTY === true;
  }

  /** Asks for one line of text. An empty answer selects `fallback`. */
  async ask(question: string, fallback = ''): Promise<string> {
    this.#put(fallback === '' ? question : `${question} [${fallback}]`);
    const line = (await this.#next()).trim();
    return line === '' ? fallback : line;
  }

  /** Like `ask`; the answer "-" removes the fallback. */
  async askOrRemove(question: string, fallback = ''): Promise<string> {
    const answer = await this.ask(question, fallback);
    return answer === '-' ? '' : answer;
  }

  /**
   * Like `ask`. In a pipe, the fallback applies if the input has ended, so that scripts written before the question was
   * added still work.
   */
  async askOptional(question: string, fallback = ''): Promise<string> {
    if (this.isTerminal) return this.ask(question, fallback);
    return this.#isOver && this.#early.length === 0 ? fallback : this.ask(question, fallback).catch(() => fallback);
  }

  /** Asks for one of several letters; the first one is the default. */
  async choose<Letter extends string>(question: string, choices: Readonly<Record<Letter, string>>): Promise<Letter> {
    const letters = Object.keys(choices) as Letter[];
    const shown = letters.map((letter) => `${letter}: ${choices[letter]}`).join(', ');
    for (;;) {
      const answer = (await this.ask(`${question} (${shown})`, letters[0])).toLowerCase();
      const found = letters.find((letter) => answer === letter || answer === choices[letter]);
      if (found !== undefined) return found;
    }
  }

  async askSecret(question: string): Promise<string> {
    this.#put(question);
    this.#isSecret = true;
    try {
      return (await this.#next()).trim();
    } finally {
      this.#isSecret = false;
      process.stderr.write('\n');
    }
  }

  /** Returns whether the user keeps a rejected answer. Otherwise the caller repeats the question. */
  async keeps(): Promise<boolean> {
    return (await this.ask('Press Enter to answer again, or type keep to keep this answer')).toLowerCase() === 'keep';
  }

  readonly say = (text: string): void => {
    if (!this.#isInterrupted) process.stderr.write(`${fitted(text, process.stderr)}\n`);
  };

  readonly show = (command: string): void => {
    process.stderr.write(`  ${command}\n`);
  };

  /** Disables Ctrl-C while files are being written. */
  beginWriting(): void {
    this.#isWriting = true;
  }

  close(): void {
    this.#lines.close();
  }

  /** On a narrow terminal the answer is on a separate line. */
  #put(question: string): void {
    if (this.#isInterrupted) return;
    const { isTTY, columns = 80 } = process.stderr;
    const isNarrow = isTTY && columns < MIN_COLUMNS_BESIDE;
    const width = isNarrow ? columns : columns - ROOM_FOR_ANSWER;
    process.stderr.write(`${fitted(`${question}:`, { isTTY, columns: width })}${isNarrow ? '\n> ' : ' '}`);
  }

  #next(): Promise<string> {
    const early = this.#isInterrupted ? undefined : this.#early.shift();
    if (early !== undefined) return Promise.resolve(early);
    if (this.#isOver) return Promise.reject(this.#ended());
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  /** The first Ctrl-C ends the dialogue, which revokes its tokens. A second Ctrl-C exits immediately. */
  #interrupt(): void {
    if (this.#isWriting) return;
    if (this.#isInterrupted) process.exit(EXIT_INTERRUPTED);
    this.#isInterrupted = true;
    process.stderr.write('\nInterrupted. Nothing was written.\n');
    for (const { reject } of this.#waiting.splice(0)) reject(this.#ended());
    this.#isOver = true;
  }

  #ended(): Error {
    if (this.#isInterrupted) return new Interrupted();
    return new TagferryError('standard input ended before all questions were answered. Nothing was written', {
      code: 'setup.unanswered',
      hint: this.isTerminal ? undefined : 'Run `tagferry setup` on a terminal, or provide one line per question.',
    });
  }
}

/** Thrown after Ctrl-C, which the dialogue has already reported. */
export class Interrupted extends Error {}
