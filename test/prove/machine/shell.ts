import { once } from 'node:events';
import { createConnection, type Socket } from 'node:net';

const END = '__end__';
/** Time limit of a connection. A machine that is still booting accepts connections but does not serve them. */
const GREETED_WITHIN_MS = 2_500;

/**
 * A root shell over the network on a machine whose power is cut. A socket unit (image.ts) starts one per connection,
 * before all other units. It does not access the disk once it runs.
 */
export class Shell {
  readonly #socket: Socket;
  #text = '';
  #wake = () => {};
  #isOver = false;
  #last: Promise<unknown> = Promise.resolve();

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setEncoding('utf8').on('data', (text: string) => {
      this.#text += text;
      this.#wake();
    });
    socket.on('error', () => {});
    socket.on('close', () => {
      this.#isOver = true;
      this.#wake();
    });
  }

  /** Rejects if the shell is not listening or does not respond. */
  static async open(port: number): Promise<Shell> {
    const socket = createConnection(port, '127.0.0.1');
    await once(socket, 'connect');
    const shell = new Shell(socket);
    try {
      await shell.run(':', GREETED_WITHIN_MS);
      return shell;
    } catch (error) {
      shell.close();
      throw error;
    }
  }

  /** Returns a command's output, even if the command fails with `failing`. Commands run one at a time. */
  async run(command: string, withinMs = 300_000, failing: 'throw' | 'give' = 'throw'): Promise<string> {
    const answer = this.#last.then(() => this.#run(command, withinMs, failing));
    this.#last = answer.catch(() => {});
    return await answer;
  }

  async #run(command: string, withinMs: number, failing: 'throw' | 'give'): Promise<string> {
    this.#text = '';
    this.#socket.write(`{ ${command}\n} </dev/null 2>&1; echo "${END}$?"\n`);
    const timer = setTimeout(() => this.#socket.destroy(), withinMs);
    try {
      for (;;) {
        const at = this.#text.lastIndexOf(END);
        const [text, status] = [this.#text.slice(0, at).trim(), this.#text.slice(at + END.length)];
        if (at >= 0 && status.endsWith('\n')) {
          if (status.trim() === '0' || failing === 'give') return text;
          throw new Error(`${command}: ${text.slice(-1_000)}`);
        }
        if (this.#isOver) throw new Error(`${command}: the machine is gone, or did not answer`);
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    } finally {
      clearTimeout(timer);
    }
  }

  close(): void {
    this.#socket.destroy();
  }
}
