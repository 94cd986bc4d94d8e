import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

/** What `peer.py` says of one answer. */
export interface Answered {
  unit: number;
  address: number;
  count: number;
  values?: number[];
  exception?: number;
}

/** Modbus devices that nobody here wrote: pymodbus, of Debian. */
export class Peer {
  readonly answers: Answered[] = [];
  readonly connections: number[] = [];
  refusedConnections = 0;
  hangs = 0;
  readonly #child: ChildProcess;
  readonly #told: unknown[] = [];
  #ready = false;
  #words = '';

  private constructor(args: string[]) {
    // Debian's own: another Python may come first in PATH, without its modules.
    this.#child = spawn('/usr/bin/python3', [join(import.meta.dirname, 'peer.py'), ...args], {
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    this.#child.stderr!.setEncoding('utf8').on('data', (text: string) => {
      this.#words = (this.#words + text).slice(-4_000);
    });
    createInterface({ input: this.#child.stdout! }).on('line', (line) => this.#hear(JSON.parse(line)));
  }

  static async tcp(port: number): Promise<Peer> {
    return await new Peer(['tcp', String(port)]).#untilReady();
  }

  static async rtu(device: string, baud = 19_200, parity: 'N' | 'E' = 'N'): Promise<Peer> {
    return await new Peer(['rtu', device, String(baud), parity]).#untilReady();
  }

  async tell(what: Record<string, unknown>): Promise<void> {
    const before = this.#told.length;
    this.#child.stdin!.write(`${JSON.stringify(what)}\n`);
    await this.#until(() => this.#told.length > before);
  }

  /** What the counter of a unit said, in order. */
  counted(unit: number): number[] {
    return this.answers
      .filter((one) => one.unit === unit && one.address === 10 && one.values)
      .map(({ values }) => values![0]! * 65_536 + values![1]!);
  }

  async end(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exit = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await exit;
  }

  async #untilReady(): Promise<this> {
    await this.#until(() => this.#ready);
    return this;
  }

  async #until(holds: () => boolean): Promise<void> {
    while (!holds()) {
      if (this.#child.exitCode !== null) throw new Error(`the peer ended: ${this.#words}`);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  #hear(line: Record<string, unknown>): void {
    if (line.ready) this.#ready = true;
    if (line.told) this.#told.push(line.told);
    if (line.hangs) this.hangs++;
    if (line.refused_connections) this.refusedConnections++;
    if (typeof line.connections === 'number') this.connections.push(line.connections);
    if (line.address !== undefined) this.answers.push(line as unknown as Answered);
  }
}

/** Two ends of a cable. */
export class SerialPair {
  readonly ours: string;
  readonly theirs: string;
  #child: ChildProcess | undefined;

  constructor(folder: string) {
    this.ours = join(folder, 'ours');
    this.theirs = join(folder, 'theirs');
  }

  async plug(): Promise<void> {
    const ends = [this.ours, this.theirs].map((link) => `pty,raw,echo=0,link=${link}`);
    this.#child = spawn('socat', ends, { stdio: 'ignore' });
    while (!existsSync(this.ours) || !existsSync(this.theirs)) await new Promise((resolve) => setTimeout(resolve, 5));
  }

  async unplug(): Promise<void> {
    const child = this.#child;
    if (!child) return;
    this.#child = undefined;
    const exit = once(child, 'exit');
    child.kill('SIGTERM');
    await exit;
  }
}
