import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { messageOf } from '../../../src/base/errors.ts';
import { freePort } from '../../../src/base/port-claim.ts';
import { pause } from '../ways/way.ts';
import type { Image, Kernel } from './image.ts';
import { type Cut, type Glimpse, Moments, type Plug, summedFates } from './moments.ts';
import { type DiskImage, type Fates, FLASH_PAGE, NbdDisk, writeImage } from './nbd-disk.ts';
import { Shell } from './shell.ts';

/** Boot time limit: seconds on an idle machine, minutes in emulation on a busy one. */
const BOOTED_WITHIN_MS = 10 * 60_000;
const COLLECTED_WITHIN_MS = 120_000;
const COLLECT_TRIES = 4;
const SHELL_PORT = 8499;
/** Kernel options: calibration of the clock fails or hangs on a busy machine. */
const CLOCK = clockWords();
/** Reads twice until both results are equal, because the shell reads byte by byte while the file is written. */
const DOING = `while read -r a </run/tagferry/doing && read -r b </run/tagferry/doing; do [ "$a" != "$b" ] || break; done; echo "$a"`;
const TAR_BYTES = 64 * 1024 * 1024;
const MACHINE = [
  // A processor with fewer features than `max`: emulating fewer features saves a third of the time.
  ...['-accel', process.env.PROVE_ACCEL ?? 'tcg,tb-size=512', '-cpu', 'Nehalem,+rdrand', '-m', '640', '-smp', '1'],
  ...['-display', 'none', '-no-reboot', '-nodefaults', '-serial', 'stdio'],
];

export interface Mounts {
  /** Mount options of the root file system, ext4. */
  root?: string;
  /** Mount options of a separate f2fs for the state folder. */
  f2fs?: string;
}

export interface Forward {
  /** Port of this machine. */
  port: number;
  /** Port of the emulated machine. */
  to: number;
}

/** Reserves the forwarded ports before the machine starts. */
export async function forwards<Name extends string>(to: Record<Name, number>): Promise<Record<Name, Forward>> {
  const found: [string, Forward][] = [];
  for (const [name, port] of Object.entries<number>(to)) found.push([name, { port: await freePort(), to: port }]);
  return Object.fromEntries(found) as Record<Name, Forward>;
}

/**
 * An emulated machine with a Debian kernel whose disks lose unflushed writes at a cut. The machine is reachable only
 * over the network and is killed without warning.
 */
export class QemuMachine {
  readonly #forwards: readonly Forward[];
  readonly #shellPort: number;
  readonly #kernel: Kernel;
  readonly #disks: NbdDisk[];
  readonly #mounts: Mounts;
  readonly #console: string;
  #qemu: ChildProcess | undefined;
  readonly #moments: Moments;
  #shells: Shell[] = [];

  private constructor(
    kernel: Kernel,
    disks: NbdDisk[],
    mounts: Mounts,
    forwarded: readonly Forward[],
    shell: Forward,
    folder: string,
  ) {
    this.#kernel = kernel;
    this.#disks = disks;
    this.#moments = new Moments(disks, () => this.#doing());
    this.#mounts = mounts;
    this.#forwards = [...forwarded, shell];
    this.#shellPort = shell.port;
    this.#console = join(folder, 'console.log');
  }

  static async open(
    kernel: Kernel,
    image: Image,
    mounts: Mounts,
    forwarded: readonly Forward[],
    folder: string,
  ): Promise<QemuMachine> {
    const disks = [new NbdDisk(image.root, join(folder, 'root.sock'))];
    // f2fs does not recover its files after torn pages.
    if (mounts.f2fs !== undefined) disks.push(new NbdDisk(image.state, join(folder, 'state.sock'), FLASH_PAGE));
    for (const disk of disks) await disk.start();
    const { shell } = await forwards({ shell: SHELL_PORT });
    return new QemuMachine(kernel, disks, mounts, forwarded, shell, folder);
  }

  get flushes(): number {
    return this.#disks.reduce((sum, { flushes }) => sum + flushes, 0);
  }

  get console(): string {
    return readFileSync(this.#console, 'utf8');
  }

  /** Starts the machine and returns the time until its shell responds, in milliseconds. `isUp` reports when it is ready. */
  async boot(isUp: () => Promise<boolean> = async () => true): Promise<number> {
    const began = performance.now();
    this.start();
    await this.until(
      async () => (await this.#openShells()) && (await isUp()),
      'the machine is ready',
      BOOTED_WITHIN_MS,
    );
    return performance.now() - began;
  }

  start(): void {
    const { root = 'rw', f2fs } = this.#mounts;
    const words = ['console=ttyS0', 'quiet', 'panic=-1', 'mitigations=off', 'audit=0', ...CLOCK, `rootopts=${root}`];
    if (f2fs !== undefined) words.push('statefs=f2fs', `stateopts=${f2fs}`);
    const forward = this.#forwards.map(({ port, to }) => `hostfwd=tcp:127.0.0.1:${port}-:${to}`);
    const qemu = spawn(
      'qemu-system-x86_64',
      [
        ...MACHINE,
        ...['-kernel', this.#kernel.kernel, '-initrd', this.#kernel.initrd, '-append', words.join(' ')],
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
    this.#moments.isOver = false;
    const log = createWriteStream(this.#console, { flags: 'a' });
    for (const stream of [qemu.stdout!, qemu.stderr!]) stream.pipe(log, { end: false });
  }

  /** One shell for commands, and one that reads the activity while a command runs. */
  async #openShells(): Promise<boolean> {
    try {
      while (this.#shells.length < 2) this.#shells.push(await Shell.open(this.#shellPort));
      return true;
    } catch {
      return false;
    }
  }

  async until(isSo: () => Promise<boolean> | boolean, what: string, withinMs: number): Promise<void> {
    for (const end = performance.now() + withinMs; !(await isSo()); await pause(100)) {
      const qemu = this.#qemu!;
      if (qemu.exitCode !== null || qemu.signalCode !== null)
        throw new Error(`qemu ended\n${this.console.slice(-4_000)}`);
      if (performance.now() > end)
        throw new Error(`timeout waiting for ${what}\n${this.console.slice(-4_000)}\n${await this.#ails()}`);
    }
  }

  /** Runs a command as root. Throws on failure. */
  async sh(command: string, failing: 'throw' | 'give' = 'throw'): Promise<string> {
    return await this.#shells[0]!.run(command, 300_000, failing);
  }

  /** Returns the state of units and processes of a machine whose agent does not respond. */
  async #ails(): Promise<string> {
    const ask =
      'systemctl --failed --no-pager --no-legend; systemctl list-jobs --no-pager --no-legend; systemctl status tagferry --no-pager -n 40; wc -c /etc/tagferry/*';
    return (await this.#shells[0]?.run(ask, 60_000, 'give').catch(messageOf)) ?? 'its shell does not answer';
  }

  /** Returns the activity that the store reports. */
  async #doing(): Promise<string> {
    const asked = this.#shells[1]?.run(DOING, 3_000, 'give');
    const said = (await asked?.catch(() => '')) ?? '';
    return /^[a-z ]+$/.test(said) ? said : 'unknown';
  }

  /** Records an acknowledgement to a producer. */
  answered(): void {
    this.#moments.answered();
  }

  /** Controls the service. */
  async service(does: 'stop' | 'start' | 'reload'): Promise<void> {
    const commands = {
      stop: 'stop tagferry',
      start: 'start --no-block tagferry',
      reload: 'kill --signal=HUP --kill-who=main tagferry',
    };
    await this.sh(`systemctl ${commands[does]}`);
  }

  /** Returns all agent messages since the boot. */
  async journal(): Promise<string> {
    return await this.sh('journalctl -u tagferry --no-pager -o cat', 'give');
  }

  /**
   * Cuts the power at that moment: the disks stop responding, qemu is killed, and unflushed writes are lost or, with
   * `chance`, partly kept.
   */
  async pull(plug: Plug, chance?: () => number): Promise<Cut> {
    const { before, doing } = await this.#moments.next(plug, () => {
      this.#moments.isOver = true;
      for (const disk of this.#disks) disk.powerOff();
    });
    return { before, doing: await doing, fates: await this.off(chance) };
  }

  /** Copies the disks as a cut at that moment would leave them, and continues. Calls `meanwhile` at that moment. */
  async glimpse(plug: Plug, meanwhile: () => void, chance?: () => number): Promise<Glimpse> {
    return await this.#moments.glimpse(plug, meanwhile, chance);
  }

  /** Returns the disks without all unflushed writes. */
  images(): DiskImage[] {
    return this.#disks.map((disk) => disk.imageOfCut());
  }

  /** Kills the machine immediately. */
  async off(chance?: () => number): Promise<Fates> {
    this.#moments.isOver = true;
    for (const disk of this.#disks) disk.powerOff();
    const qemu = this.#qemu;
    if (qemu !== undefined && qemu.exitCode === null && qemu.signalCode === null) {
      const over = once(qemu, 'exit');
      qemu.kill('SIGKILL');
      await over;
    }
    for (const shell of this.#shells.splice(0)) shell.close();
    this.#moments.forget();
    return summedFates(this.#disks.map((disk) => disk.cut(chance)));
  }

  async close(): Promise<void> {
    await this.off();
    for (const disk of this.#disks) await disk.stop();
  }
}

/** Sets the emulated time-stamp counter to this machine's frequency. */
function clockWords(): string[] {
  const mhz = /^cpu MHz\s*: ([\d.]+)/m.exec(readFileSync('/proc/cpuinfo', 'utf8'))?.[1];
  return mhz === undefined ? [] : [`tsc_early_khz=${Math.round(Number(mhz) * 1000)}`];
}

/**
 * Uses an emulated kernel to read files from a file system that this machine's kernel does not support. Returns a tar
 * file.
 */
export async function collect(
  kernel: Kernel,
  image: DiskImage,
  fileSystem: string,
  options: string,
  tar: string,
): Promise<void> {
  const disk = `${tar}.disk`;
  await writeImage(image, disk);
  const words = `console=ttyS0 quiet panic=-1 mitigations=off ${CLOCK.join(' ')} collect=${fileSystem} stateopts=${options}`;
  const drives = [disk, tar].flatMap((file, i) => [
    ...[
      '-drive',
      `format=raw,file=${file},if=none,id=disk${i},cache=unsafe`,
      '-device',
      `virtio-blk-pci,drive=disk${i}`,
    ],
  ]);
  const boot = ['-kernel', kernel.kernel, '-initrd', kernel.initrd, '-append', words];
  // An emulated machine may miss timer interrupts on a busy host and then hang.
  for (let tries = 1; ; tries++) {
    writeFileSync(tar, '');
    truncateSync(tar, TAR_BYTES);
    try {
      await promisify(execFile)('qemu-system-x86_64', [...MACHINE, ...boot, ...drives], {
        timeout: COLLECTED_WITHIN_MS,
      });
      break;
    } catch (error) {
      if (tries === COLLECT_TRIES) throw error;
    }
  }
  rmSync(disk);
}
