import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from '../../src/base/port-claim.ts';
import { compileLayer } from '../faults/disk-fault.ts';

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

/** Debian's Mosquitto as a process, in a folder of its own; without it the tests that need it fail. */
export class Mosquitto {
  readonly folder = mkdtempSync(join(tmpdir(), 'tagferry-mosquitto-'));
  readonly port: number;
  #child: ChildProcess | undefined;
  #environment: NodeJS.ProcessEnv = process.env;

  private constructor(port: number) {
    this.port = port;
  }

  /** Finds a port; `start` starts it. */
  static async make(): Promise<Mosquitto> {
    return new Mosquitto(await freePort());
  }

  /** `configuration`: what stands beside one listener that lets everyone in, or, beginning with "listener", in its place. */
  async start(configuration = ''): Promise<void> {
    const file = join(this.folder, 'mosquitto.conf');
    const listener = `listener ${this.port} 127.0.0.1\nallow_anonymous true\n`;
    // Before the listener, because what stands behind one may be its own.
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

  /** Moves its wall clock from what the machine's says; before the first start, so that it can be moved later. */
  moveTime(seconds: number): void {
    const file = join(this.folder, 'moved-time');
    // By another file and a name: it is read at every look at the clock.
    writeFileSync(`${file}.new`, String(seconds));
    renameSync(`${file}.new`, file);
    const layer = compileLayer(join(import.meta.dirname, 'moved-time.c'));
    this.#environment = { ...process.env, LD_PRELOAD: layer, MOVED_TIME: file };
  }

  /** SIGSTOP and SIGCONT, for one that hangs. */
  signal(signal: NodeJS.Signals): void {
    this.#child?.kill(signal);
  }

  /** Resolves when it has ended. */
  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const over = once(child, 'exit');
    child.kill(signal);
    await over;
  }

  /** Ends it and takes its folder away. */
  async dispose(): Promise<void> {
    await this.stop('SIGKILL');
    rmSync(this.folder, { recursive: true, force: true });
  }
}
