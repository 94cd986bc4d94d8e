import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort } from '../../broker/mosquitto.ts';
import { pause } from '../ways/way.ts';
import type { Image, Kernel } from './image.ts';
import { NbdDisk } from './nbd-disk.ts';

/** Seconds where nothing else runs; minutes, emulated on a machine that does much else. */
const BOOTED_WITHIN_MS = 15 * 60_000;

export interface Mounts {
  /** Options of the root file system, ext4. */
  root?: string;
  /** The state folder on an f2fs of its own, with these options. */
  f2fs?: string;
}

/**
 * A machine with a Debian kernel and tree whose disks keep their word and no more (nbd-disk.ts). It is reached by the network alone, and ends
 * without a warning.
 */
export class QemuGateway {
  readonly ports = { ingest: 0, webhook: 0, shell: 0 };
  readonly #kernel: Kernel;
  readonly #disks: NbdDisk[];
  readonly #mounts: Mounts;
  readonly #console: string;
  #qemu: ChildProcess | undefined;

  private constructor(kernel: Kernel, disks: NbdDisk[], mounts: Mounts, folder: string) {
    this.#kernel = kernel;
    this.#disks = disks;
    this.#mounts = mounts;
    this.#console = join(folder, 'console.log');
  }

  static async open(kernel: Kernel, image: Image, mounts: Mounts, folder: string): Promise<QemuGateway> {
    const disks = [new NbdDisk(image.root, join(folder, 'root.sock'))];
    if (mounts.f2fs !== undefined) disks.push(new NbdDisk(image.state, join(folder, 'state.sock')));
    for (const disk of disks) await disk.start();
    const gateway = new QemuGateway(kernel, disks, mounts, folder);
    for (const name of ['ingest', 'webhook', 'shell'] as const) gateway.ports[name] = await freePort();
    return gateway;
  }

  get flushes(): number {
    return this.#disks.reduce((sum, { flushes }) => sum + flushes, 0);
  }

  get dropped(): number {
    return this.#disks.reduce((sum, { dropped }) => sum + dropped, 0);
  }

  get console(): string {
    return readFileSync(this.#console, 'utf8').slice(-4_000);
  }

  /** Starts it, and returns when the agent answers. Gives how long that took, in ms. */
  async boot(): Promise<number> {
    const began = performance.now();
    const { root = 'rw', f2fs } = this.#mounts;
    const words = ['console=ttyS0', 'quiet', 'panic=-1', `rootopts=${root}`];
    if (f2fs !== undefined) words.push('statefs=f2fs', `stateopts=${f2fs}`);
    const forward = Object.entries({ ingest: 8470, webhook: 8471, shell: 8499 }).map(
      ([name, port]) => `hostfwd=tcp:127.0.0.1:${this.ports[name as keyof typeof this.ports]}-:${port}`,
    );
    const accelerator = process.env.PROVE_ACCEL ?? 'tcg';
    const qemu = spawn(
      'qemu-system-x86_64',
      [
        ...[
          '-accel',
          accelerator,
          '-cpu',
          accelerator === 'kvm' ? 'max,-arch-capabilities' : 'max',
          '-m',
          '640',
          '-smp',
          '1',
          '-display',
          'none',
          '-no-reboot',
          '-nodefaults',
        ],
        ...[
          '-serial',
          'stdio',
          '-kernel',
          this.#kernel.kernel,
          '-initrd',
          this.#kernel.initrd,
          '-append',
          words.join(' '),
        ],
        ...['-netdev', `user,id=net,${forward.join(',')}`, '-device', 'virtio-net-pci,netdev=net,romfile='],
        ...this.#disks.flatMap(({ socketPath }, i) => [
          '-drive',
          `driver=raw,file.driver=nbd,file.server.type=unix,file.server.path=${socketPath},if=none,id=disk${i},cache=writeback`,
          '-device',
          `virtio-blk-pci,drive=disk${i}`,
        ]),
      ],
      { stdio: ['ignore', 'pipe', 'pipe'] },
    );
    this.#qemu = qemu;
    const log = createWriteStream(this.#console, { flags: 'a' });
    for (const stream of [qemu.stdout!, qemu.stderr!]) stream.pipe(log, { end: false });
    for (const end = began + BOOTED_WITHIN_MS; ; await pause(200)) {
      if (qemu.exitCode !== null || qemu.signalCode !== null) throw new Error(`qemu ended\n${this.console}`);
      if (performance.now() > end) throw new Error(`the agent never answered\n${this.console}`);
      if ((await this.#status()) !== 0) return performance.now() - began;
    }
  }

  async #status(): Promise<number> {
    try {
      const { status } = await fetch(`http://127.0.0.1:${this.ports.ingest}/health`, {
        signal: AbortSignal.timeout(3_000),
      });
      return status;
    } catch {
      return 0;
    }
  }

  /** As root, in the machine. Throws where it fails. */
  async sh(command: string, timeoutMs = 120_000): Promise<string> {
    const url = `http://127.0.0.1:${this.ports.shell}/`;
    const answer = await fetch(url, { method: 'POST', body: command, signal: AbortSignal.timeout(timeoutMs) });
    const text = await answer.text();
    if (answer.status !== 200) throw new Error(`${command}: ${text.slice(-1_000)}`);
    return text.trim();
  }

  /** The plug: qemu is gone, and its disks lose what they were not told to keep; or lose some of it, as `keep` says. */
  async cut(keep?: () => boolean): Promise<void> {
    const qemu = this.#qemu;
    if (qemu !== undefined && qemu.exitCode === null && qemu.signalCode === null) {
      const over = once(qemu, 'exit');
      qemu.kill('SIGKILL');
      await over;
    }
    for (const disk of this.#disks) await disk.cut(keep);
  }

  async close(): Promise<void> {
    await this.cut();
    for (const disk of this.#disks) await disk.stop();
  }
}
