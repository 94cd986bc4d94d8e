import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdirSync, openSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { pause } from '../ways/way.ts';
import type { Image } from './image.ts';
import { type Glimpse, Moments, type Plug } from './moments.ts';
import { type DiskImage, NbdDisk } from './nbd-disk.ts';

const run = promisify(execFile);
const EXPORTED_WITHIN_MS = 30_000;
const STOPPED_WITHIN_MS = 60_000;

/** Starts the agent as its unit does. */
export interface Program {
  command: readonly string[];
  environment: Record<string, string>;
}

/**
 * A faster alternative to a machine: this machine's kernel mounts the file system, over a loop device and FUSE (the
 * storage daemon of qemu), from a disk that loses unflushed writes. The installed agent runs in it. Copies of the disk
 * can be checked at any moment. The kernel cannot be killed, so there is no boot.
 *
 * This process must not access the mounted tree: it would wait for the disk, which it serves itself.
 */
export class MountedMachine {
  readonly #folder: string;
  readonly #disk: NbdDisk;
  readonly #moments: Moments;
  readonly #output: string;
  readonly #there: string[] = [];
  #storage: ChildProcess | undefined;
  readonly #program: Program;
  #agent: ChildProcess | undefined;

  private constructor(image: Image, program: Program, folder: string) {
    this.#folder = folder;
    this.#program = program;
    this.#output = join(folder, 'agent.log');
    this.#disk = new NbdDisk(image.root, join(folder, 'root.sock'));
    this.#moments = new Moments([this.#disk], async () => this.#doing());
  }

  /** `options` are mount options. */
  static async open(image: Image, options: string, program: Program, folder: string): Promise<MountedMachine> {
    const machine = new MountedMachine(image, program, folder);
    try {
      await machine.#mount(options);
      return machine;
    } catch (error) {
      await machine.close();
      throw error;
    }
  }

  get #root(): string {
    return join(this.#folder, 'mounted');
  }

  async #mount(options: string): Promise<void> {
    await this.#disk.start();
    const file = join(this.#folder, 'exported');
    writeFileSync(file, '');
    const blockdev = `driver=nbd,node-name=disk,server.type=unix,server.path=${this.#disk.socketPath}`;
    const storage = spawn(
      'qemu-storage-daemon',
      ['--blockdev', blockdev, '--export', `type=fuse,id=disk,node-name=disk,mountpoint=${file},writable=on`],
      { stdio: ['ignore', 'ignore', 'inherit'] },
    );
    this.#storage = storage;
    for (const end = performance.now() + EXPORTED_WITHIN_MS; ; await pause(50)) {
      const { stdout } = await run('stat', ['-c', '%s', file]);
      if (Number(stdout) > 0) break;
      if (storage.exitCode !== null || performance.now() > end) throw new Error('the disk is not there');
    }
    mkdirSync(this.#root);
    const mount = async (at: string, ...given: readonly string[]) => {
      await run('mount', [...given, at]);
      this.#there.push(at);
    };
    await mount(this.#root, '-t', 'ext4', '-o', `loop,${options}`, file);
    for (const part of ['proc', 'dev']) await mount(join(this.#root, part), '--bind', `/${part}`);
    // In memory, as on a machine, because it is read while the disk waits.
    await mount(join(this.#root, 'run'), '-t', 'tmpfs', 'run');
    mkdirSync(join(this.#root, 'run/tagferry'));
  }

  get flushes(): number {
    return this.#disk.flushes;
  }

  get console(): string {
    return '';
  }

  /** Starts the agent and returns its startup time in milliseconds. */
  async boot(isUp: () => Promise<boolean> = async () => true): Promise<number> {
    const began = performance.now();
    await this.service('start');
    await this.until(isUp, 'the machine is ready', STOPPED_WITHIN_MS);
    return performance.now() - began;
  }

  async until(isSo: () => Promise<boolean> | boolean, what: string, withinMs: number): Promise<void> {
    for (const end = performance.now() + withinMs; !(await isSo()); await pause(100)) {
      if (performance.now() > end)
        throw new Error(`timeout waiting for ${what}\n${(await this.journal()).slice(-4_000)}`);
    }
  }

  async service(does: 'stop' | 'start' | 'reload'): Promise<void> {
    const agent = this.#agent;
    const isThere = agent !== undefined && agent.exitCode === null && agent.signalCode === null;
    if (does === 'start') this.#launch();
    else if (isThere && does === 'reload') agent.kill('SIGHUP');
    else if (isThere) {
      const over = once(agent, 'exit');
      agent.kill('SIGTERM');
      await over;
    }
  }

  #launch(): void {
    const out = openSync(this.#output, 'a');
    const { command, environment } = this.#program;
    this.#agent = spawn('chroot', [this.#root, ...command], {
      stdio: ['ignore', out, out],
      env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', ...environment },
    });
    closeSync(out);
  }

  /** Runs a command as root in the tree. Throws on failure. */
  async sh(command: string): Promise<string> {
    const { stdout } = await run('chroot', [this.#root, '/bin/sh', '-c', command]);
    return stdout.trim();
  }

  /** Returns all agent output. */
  async journal(): Promise<string> {
    return readFileSync(this.#output, 'utf8');
  }

  #doing(): string {
    try {
      return readFileSync(join(this.#root, 'run/tagferry/doing'), 'utf8').trim();
    } catch {
      return 'unknown';
    }
  }

  answered(): void {
    this.#moments.answered();
  }

  async glimpse(plug: Plug, meanwhile: () => void, chance?: () => number): Promise<Glimpse> {
    return await this.#moments.glimpse(plug, meanwhile, chance);
  }

  /** Returns the disks without all unflushed writes. */
  images(): DiskImage[] {
    return [this.#disk.imageOfCut()];
  }

  async close(): Promise<void> {
    this.#moments.forget();
    const agent = this.#agent;
    if (agent !== undefined && agent.exitCode === null && agent.signalCode === null) {
      const over = once(agent, 'exit');
      agent.kill('SIGKILL');
      await over;
    }
    for (const at of this.#there.splice(0).reverse()) await run('umount', [at]);
    if (this.#storage !== undefined && this.#storage.exitCode === null) {
      const over = once(this.#storage, 'exit');
      this.#storage.kill('SIGTERM');
      await over;
    }
    await this.#disk.stop();
    // Fails if it is still mounted, so that no files of this machine are removed.
    rmdirSync(this.#root);
  }
}
