import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { AgentProcess } from './agent-process.ts';

/** Socket of a service manager. It records the assignments that a service sends, such as `READY=1`. */
export class NotifySocket {
  readonly path: string;
  readonly #child: ChildProcess;
  readonly #lines: string[] = [];

  private constructor(path: string) {
    this.path = path;
    this.#child = spawn('python3', [join(import.meta.dirname, 'notify-socket.py'), path], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
  }

  /** The socket is in the folder of the agent. */
  static async open({ folder }: AgentProcess): Promise<NotifySocket> {
    const socket = new NotifySocket(join(folder, 'notify.sock'));
    const lines = createInterface({ input: socket.#child.stdout! });
    await once(lines, 'line');
    lines.on('line', (line) => socket.#lines.push(...(JSON.parse(line) as string[])));
    return socket;
  }

  /** Received assignments in order, optionally only those that match a pattern. */
  received(pattern = /(?:)/): string[] {
    return this.#lines.filter((line) => pattern.test(line));
  }

  async close(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await ended;
  }
}
