import type { ChildProcess } from 'node:child_process';
import { until } from './machine.ts';

/** A program on a terminal: its output and the input typed into it. */
export class Terminal {
  readonly #child: ChildProcess;
  #shown = '';

  constructor(child: ChildProcess) {
    this.#child = child;
    for (const stream of [child.stdout!, child.stderr!]) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        this.#shown += text;
      });
    }
    child.stdin!.on('error', () => {});
  }

  /** Output so far, including escape sequences. */
  get raw(): string {
    return this.#shown;
  }

  /** Output without colours and cursor movements. */
  get text(): string {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences begin with one
    return this.#shown.replaceAll(/\x1b\[[0-9;?]*[A-Za-z]/g, '').replaceAll('\r', '');
  }

  get lines(): string[] {
    return this.text.split('\n');
  }

  /** Waits for a prompt and types the response. */
  async answer(question: RegExp, text: string): Promise<void> {
    const from = this.#answered;
    await until(`the terminal prompts: ${question}`, () => {
      const found = question.exec(this.text.slice(from));
      if (found) this.#answered = from + found.index + found[0].length;
      else if (this.#hasEnded()) throw new Error(`it ended before it asked ${question}:\n${this.text}`);
      return found !== null;
    }).catch((error: Error) => {
      throw new Error(`${error.message}\n${this.text.slice(from)}`, { cause: error });
    });
    this.#child.stdin!.write(`${text}\r`);
  }

  #answered = 0;

  async shows(what: RegExp): Promise<void> {
    await until(`the terminal shows ${what}`, () => {
      if (!what.test(this.text) && this.#hasEnded())
        throw new Error(`it ended and did not show ${what}:\n${this.text}`);
      return what.test(this.text);
    });
  }

  press(key: string): void {
    this.#child.stdin!.write(key);
  }

  /** Waits for the program to exit. Returns its exit status. */
  async ended(): Promise<number> {
    await until('the program on the terminal exits', () => this.#hasEnded());
    return this.#child.exitCode ?? -1;
  }

  #hasEnded(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }
}
