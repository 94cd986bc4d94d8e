import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { freePort } from '../../../src/base/port-claim.ts';

/** Response reported by `peer.py`. */
export interface PeerResponse {
  unit: number;
  address: number;
  count: number;
  values?: number[];
  exception?: number;
  /** Function code and registers or bits of a write. */
  function?: number;
  writes?: (number | boolean)[];
}

/** Modbus devices simulated by Debian's pymodbus package. */
export class Peer {
  readonly responses: PeerResponse[] = [];
  readonly connections: number[] = [];
  refusedConnections = 0;
  hangs = 0;
  /** Number of requests that arrived too soon after a response. */
  ignored = 0;
  disconnections = 0;
  readonly #child: ChildProcess;
  readonly #acknowledged: unknown[] = [];
  #ready = false;
  #stderr = '';

  /** TCP port; 0 for a serial line. */
  readonly port: number;

  private constructor(args: string[], port = 0) {
    this.port = port;
    // Another Python, without Debian's modules, may come first in PATH.
    this.#child = spawn('/usr/bin/python3', [join(import.meta.dirname, 'modbus-peer.py'), ...args], {
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    this.#child.stderr!.setEncoding('utf8').on('data', (text: string) => {
      this.#stderr = (this.#stderr + text).slice(-4_000);
    });
    createInterface({ input: this.#child.stdout! }).on('line', (line) => this.#process(JSON.parse(line)));
  }

  /** `port`: that of a peer that has ended. */
  static async tcp(port?: number): Promise<Peer> {
    const at = port ?? (await freePort());
    return await new Peer(['tcp', String(at)], at).#untilReady();
  }

  /** A host that forwards the frames of a serial line. */
  static async rtuOverTcp(port: number): Promise<Peer> {
    return await new Peer(['rtu-over-tcp', String(port)]).#untilReady();
  }

  static async rtu(device: string, baud = 19_200, parity: 'N' | 'E' = 'N'): Promise<Peer> {
    return await new Peer(['rtu', device, String(baud), parity]).#untilReady();
  }

  /** Changes the behaviour of one unit or all connections; see `peer.py`. */
  async configure(settings: Record<string, unknown>): Promise<void> {
    const before = this.#acknowledged.length;
    this.#child.stdin!.write(`${JSON.stringify(settings)}\n`);
    await this.#until(() => this.#acknowledged.length > before);
  }

  /** Counter values that a unit returned, in order. */
  counted(unit: number): number[] {
    return this.responses
      .filter((one) => one.unit === unit && one.address === 10 && one.values)
      .map(({ values }) => values![0]! * 65_536 + values![1]!);
  }

  /** Registers or bits that clients have written to an address, in order. */
  written(address: number): (number | boolean)[][] {
    return this.responses.flatMap((one) => (one.address === address && one.writes ? [one.writes] : []));
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

  async #until(condition: () => boolean): Promise<void> {
    while (!condition()) {
      if (this.#child.exitCode !== null) throw new Error(`the peer ended: ${this.#stderr}`);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  #process(line: Record<string, unknown>): void {
    if (line.ready) this.#ready = true;
    if (line.configured) this.#acknowledged.push(line.configured);
    if (line.hangs) this.hangs++;
    if (line.ignores) this.ignored++;
    if (line.disconnections) this.disconnections++;
    if (line.refused_connections) this.refusedConnections++;
    if (typeof line.connections === 'number') this.connections.push(line.connections);
    if (line.address !== undefined) this.responses.push(line as unknown as PeerResponse);
  }
}

/** Two connected serial ports. */
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
