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

/** Seconds where nothing else runs; minutes, emulated on a machine that does much else. */
const BOOTED_WITHIN_MS = 10 * 60_000;
const COLLECTED_WITHIN_MS = 120_000;
const COLLECT_TRIES = 4;
const SHELL_PORT = 8499;
/** Of the kernels: on a busy machine they would measure the clock wrongly, or wait for ever while they do. */
const CLOCK = clockWords();
/** Its shell reads byte by byte, while others write: until it has read the same twice. */
const DOING = `while read -r a </run/tagferry/doing && read -r b </run/tagferry/doing; do [ "$a" != "$b" ] || break; done; echo "$a"`;
const TAR_BYTES = 64 * 1024 * 1024;
const MACHINE = [
  // A processor of fewer parts than `max` has: what has none is not emulated; a third less to do.
  ...['-accel', process.env.PROVE_ACCEL ?? 'tcg,tb-size=512', '-cpu', 'Nehalem,+rdrand', '-m', '640', '-smp', '1'],
  ...['-display', 'none', '-no-reboot', '-nodefaults', '-serial', 'stdio'],
];

export interface Mounts {
  /** Options of the root file system, ext4. */
  root?: string;
  /** The state folder on an f2fs of its own, with these options. */
  f2fs?: string;
}

export interface Forward {
  /** Of this machine. */
  port: number;
  /** Of the other, to which it leads. */
  to: number;
}

/** Before the machine is there, for who must know them. */
export async function forwards<Name extends string>(to: Record<Name, number>): Promise<Record<Name, Forward>> {
  const found: [string, Forward][] = [];
  for (const [name, port] of Object.entries<number>(to)) found.push([name, { port: await freePort(), to: port }]);
  return Object.fromEntries(found) as Record<Name, Forward>;
}

/** A machine with a Debian kernel and tree whose disks keep their word and no more. It is reached by the network alone, and ends without a warning. */
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
    // f2fs is made for flash: where half a page of it is written it does not find its own files again.
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

  /** Starts it. Gives after how many ms the shell was there; `isUp` says when that is. */
  async boot(isUp: () => Promise<boolean> = async () => true): Promise<number> {
    const began = performance.now();
    this.start();
    await this.until(async () => (await this.#openShells()) && (await isUp()), 'it is up', BOOTED_WITHIN_MS);
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

  /** One for commands, one to ask what it is at while a command runs. */
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
        throw new Error(`never: ${what}\n${this.console.slice(-4_000)}\n${await this.#ails()}`);
    }
  }

  /** As root, in the machine. Throws where it fails. */
  async sh(command: string, failing: 'throw' | 'give' = 'throw'): Promise<string> {
    return await this.#shells[0]!.run(command, 300_000, failing);
  }

  /** What a machine that answers its shell, and nobody else, says of itself. */
  async #ails(): Promise<string> {
    const ask =
      'systemctl --failed --no-pager --no-legend; systemctl list-jobs --no-pager --no-legend; systemctl status tagferry --no-pager -n 40; wc -c /etc/tagferry/*';
    return (await this.#shells[0]?.run(ask, 60_000, 'give').catch(messageOf)) ?? 'its shell does not answer';
  }

  /** What its store says that it is at. */
  async #doing(): Promise<string> {
    const asked = this.#shells[1]?.run(DOING, 3_000, 'give');
    const said = (await asked?.catch(() => '')) ?? '';
    return /^[a-z ]+$/.test(said) ? said : 'not said';
  }

  /** Something was acknowledged to whoever sent it. */
  answered(): void {
    this.#moments.answered();
  }

  /** Of the daemon, by systemd. */
  async service(does: 'stop' | 'start' | 'reload'): Promise<void> {
    const commands = {
      stop: 'stop tagferry',
      start: 'start --no-block tagferry',
      reload: 'kill --signal=HUP --kill-who=main tagferry',
    };
    await this.sh(`systemctl ${commands[does]}`);
  }

  /** All that the daemon has said since the start. */
  async journal(): Promise<string> {
    return await this.sh('journalctl -u tagferry --no-pager -o cat', 'give');
  }

  /**
   * The plug is pulled at that moment: from it on its disks answer nothing, qemu is killed, and what was not flushed is gone; or only some of
   * it, by `chance`.
   */
  async pull(plug: Plug, chance?: () => number): Promise<Cut> {
    const { before, doing } = await this.#moments.next(plug, () => {
      this.#moments.isOver = true;
      for (const disk of this.#disks) disk.powerOff();
    });
    return { before, doing: await doing, fates: await this.off(chance) };
  }

  /** What its disks would have if the plug were pulled at that moment; it goes on. `meanwhile` is called at it, too. */
  async glimpse(plug: Plug, meanwhile: () => void, chance?: () => number): Promise<Glimpse> {
    return await this.#moments.glimpse(plug, meanwhile, chance);
  }

  /** What a cut would leave now, where all that was not flushed is gone. */
  images(): DiskImage[] {
    return this.#disks.map((disk) => disk.imageOfCut());
  }

  /** At once. */
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

/** The emulated processor counts as that of this machine does. */
function clockWords(): string[] {
  const mhz = /^cpu MHz\s*: ([\d.]+)/m.exec(readFileSync('/proc/cpuinfo', 'utf8'))?.[1];
  return mhz === undefined ? [] : [`tsc_early_khz=${Math.round(Number(mhz) * 1000)}`];
}

/** The files of a file system that this machine's own kernel does not know, as those of the other read it after a cut: a tar file. */
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
  // An emulated machine on one that is very busy may miss the interrupts by which its kernel measures time, and waits for ever.
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
