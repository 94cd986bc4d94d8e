import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from '../../../src/base/port-claim.ts';
import { wholeLines } from '../../whole-lines.ts';

const PROGRAM = join(import.meta.dirname, 'opcua-server-process.ts');

/** node-opcua server in its own process. */
export class OpcuaServer {
  readonly folder = mkdtempSync(join(tmpdir(), 'tagferry-opcua-'));
  port = 0;
  #child: ChildProcess | undefined;

  get url(): string {
    return `opc.tcp://127.0.0.1:${this.port}`;
  }

  /** `namespaces`: see `server-process.ts`. */
  async start(...namespaces: string[]): Promise<void> {
    this.port ||= await freePort();
    const child = spawn(process.execPath, [PROGRAM, this.folder, String(this.port), ...namespaces], {
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    this.#child = child;
    let stderr = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
    });
    await new Promise<void>((resolve, reject) => {
      child.stdout.setEncoding('utf8').on('data', (text: string) => text.includes('READY') && resolve());
      child.once('exit', () => reject(new Error(`the server did not start: ${stderr.slice(-2000)}`)));
    });
  }

  /** Sends a command to the process; see `server-process.ts`. */
  send(line: object): void {
    this.#child?.stdin?.write(`${JSON.stringify(line)}\n`);
  }

  /** SIGSTOP suspends the server, with its connections open. */
  signal(signal: NodeJS.Signals): void {
    this.#child?.kill(signal);
  }

  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await ended;
  }

  /** Values of Count with their times. */
  emitted(): { value: number; timeMs: number }[] {
    return wholeLines(join(this.folder, 'ledger')).map((line) => {
      const [value, timeMs] = line.split(' ').map(Number) as [number, number];
      return { value, timeMs };
    });
  }

  /** Values of Count in acknowledged messages. */
  acknowledged(): number[] {
    return wholeLines(join(this.folder, 'acknowledged')).map(Number);
  }

  /** Requests that exceeded the operation limits of the server. */
  excess(): string[] {
    return wholeLines(join(this.folder, 'excess'));
  }

  async dispose(): Promise<void> {
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
