/** How the outputs of the last commands ended, for people who look: some 300 kB at most. A restart forgets them; the log has what failed. */
const OUTPUTS = 200;

export interface CommandOutput {
  reaction: string;
  /** The end of it: what a command says last says most. */
  text: string;
}

export class RecentOutputs {
  readonly #outputs: (CommandOutput & { event: number })[] = [];

  /** `event`: its number in the inbox. */
  add(event: number, reaction: string, text: string): void {
    if (text === '') return;
    this.#outputs.push({ event, reaction, text });
    if (this.#outputs.length > OUTPUTS) this.#outputs.shift();
  }

  of(event: number): CommandOutput[] {
    return this.#outputs.filter((output) => output.event === event).map(({ reaction, text }) => ({ reaction, text }));
  }
}
