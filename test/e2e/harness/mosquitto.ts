import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from '../../../src/base/port-claim.ts';
import { compileLayer } from '../../host/faults/disk-fault.ts';

const PROGRAM = '/usr/sbin/mosquitto';

async function isOpen(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

/** Mosquitto from Debian's package as a process with its own folder. */
export class Mosquitto {
  readonly folder = mkdtempSync(join(tmpdir(), 'tagferry-mosquitto-'));
  readonly port: number;
  #child: ChildProcess | undefined;
  #environment: NodeJS.ProcessEnv = process.env;

  private constructor(port: number) {
    this.port = port;
  }

  /** Reserves a port. `start` starts the broker. */
  static async make(): Promise<Mosquitto> {
    return new Mosquitto(await freePort());
  }

  /** `configuration`: lines in addition to an open listener, or instead of it if they begin with "listener". */
  async start(configuration = ''): Promise<void> {
    const file = join(this.folder, 'mosquitto.conf');
    const listener = `listener ${this.port} 127.0.0.1\nallow_anonymous true\n`;
    // Must precede the listener, because later lines can apply only to that listener.
    const first = configuration.includes('listener ') ? '' : listener;
    writeFileSync(file, `user root\nmax_queued_messages 0\n${first}${configuration}\n`);
    const child = spawn(PROGRAM, ['-c', file], { stdio: 'ignore', env: this.#environment });
    this.#child = child;
    let failure: unknown;
    child.once('error', (error) => {
      failure = error;
    });
    while (!(await isOpen(this.port))) {
      if (failure !== undefined) throw failure;
      if (child.exitCode !== null) throw new Error(`Mosquitto ended with ${child.exitCode}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  /** Sets the offset of the broker's wall clock. Must be called before the first start; later calls change it. */
  moveTime(seconds: number): void {
    const file = join(this.folder, 'moved-time');
    // Written to another file and renamed, because the broker reads it at each clock access.
    writeFileSync(`${file}.new`, String(seconds));
    renameSync(`${file}.new`, file);
    const layer = compileLayer(join(import.meta.dirname, 'moved-time.c'));
    this.#environment = { ...process.env, LD_PRELOAD: layer, MOVED_TIME: file };
  }

  /** Sends a signal, for example SIGSTOP and SIGCONT to simulate a hanging broker. */
  signal(signal: NodeJS.Signals): void {
    this.#child?.kill(signal);
  }

  /** Resolves when the broker has exited. */
  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const over = once(child, 'exit');
    child.kill(signal);
    await over;
  }

  /** Stops the broker and removes its folder. */
  async dispose(): Promise<void> {
    await this.stop('SIGKILL');
    rmSync(this.folder, { recursive: true, force: true });
  }
}
