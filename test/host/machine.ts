import { type ChildProcess, type ChildProcessByStdio, execFile, spawn } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { Terminal } from './terminal.ts';

export interface Outcome {
  status: number;
  stdout: string;
  stderr: string;
}

let machines = 0;

/**
 * Debian tree booted with its own systemd in separate namespaces and a separate cgroup (`boot` does the rest). Its
 * only network is loopback. All its processes end with its first process, which ends with this one.
 */
export class Machine {
  readonly #unshare: ChildProcess;
  readonly #cgroup: string;
  readonly #console: string[];
  /** Its first process, by its pid on this machine. */
  readonly #init: number;

  private constructor(unshare: ChildProcess, cgroup: string, console: string[], init: number) {
    this.#unshare = unshare;
    this.#cgroup = cgroup;
    this.#console = console;
    this.#init = init;
  }

  static async boot(tree: string): Promise<Machine> {
    if (process.getuid?.() !== 0) throw new Error('a Debian tree can only be booted by root');
    const own = ownCgroup();
    const cgroup = join(own, `tagferry-test-${process.pid}-${++machines}`);
    mkdirSync(cgroup);
    const namespaces = ['--mount', '--pid', '--uts', '--ipc', '--net', '--cgroup'];
    const unshare = spawn(
      'setpriv',
      ['--pdeathsig', 'KILL', 'sh', '-c', 'echo 0 >"$0/cgroup.procs" && exec unshare "$@"', cgroup].concat(
        ...namespaces,
        ['--propagation', 'private', '--fork', '--kill-child', join(import.meta.dirname, 'boot'), tree],
      ),
      { stdio: ['ignore', 'pipe', 'pipe'] },
    );
    const lines: string[] = [];
    for (const stream of [unshare.stdout, unshare.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => lines.push(text) > 500 && lines.shift());
    }
    const init = await until('the machine has a first process', () => firstChild(unshare.pid!));
    const machine = new Machine(unshare, cgroup, lines, init);
    try {
      await until('systemd has booted', async () => {
        if (unshare.exitCode !== null) throw new Error(`the machine ended with ${unshare.exitCode}`);
        const { stdout } = await machine.run(['systemctl', 'is-system-running']);
        return /^(running|degraded)/.test(stdout);
      });
      // `unshare` waits outside of that pid namespace; systemd cannot report its pid.
      writeFileSync(join(own, 'cgroup.procs'), String(unshare.pid));
      return machine;
    } catch (error) {
      await machine.stop();
      throw new Error(`${String(error)}\n${lines.join('').slice(-4000)}`);
    }
  }

  /** Runs a program inside, from this machine. */
  #enter(command: readonly string[]): { file: string; args: string[] } {
    const environment = ['env', '-i', '--chdir=/', 'PATH=/usr/sbin:/usr/bin:/sbin:/bin', 'HOME=/root', 'LANG=C.UTF-8'];
    const enter = ['--target', String(this.#init), '--all', '--', ...environment];
    return { file: 'nsenter', args: [...enter, 'SYSTEMD_PAGER=cat', 'DEBIAN_FRONTEND=noninteractive', ...command] };
  }

  /** Command line that enters the machine; append a program and its arguments. */
  entering(): string[] {
    const { file, args } = this.#enter([]);
    return [file, ...args];
  }

  /** Runs a program inside. */
  run(command: readonly string[], options: { input?: string; timeoutMs?: number } = {}): Promise<Outcome> {
    const { file, args } = this.#enter(command);
    return new Promise((resolve, reject) => {
      const child = execFile(
        file,
        args,
        { timeout: options.timeoutMs ?? 60_000, maxBuffer: 64_000_000 },
        (error, stdout, stderr) => {
          if (error && typeof error.code !== 'number') reject(new Error(`${command.join(' ')}: ${error.message}`));
          else resolve({ status: error ? Number(error.code) : 0, stdout, stderr });
        },
      );
      child.stdin!.on('error', () => {}).end(options.input ?? '');
    });
  }

  /** Starts a program inside with piped input and output; it ends with the machine. */
  start(command: readonly string[]): ChildProcessByStdio<Writable, Readable, null> {
    const { file, args } = this.#enter(command);
    return spawn(file, args, { stdio: ['pipe', 'pipe', 'ignore'] });
  }

  /** Runs a command inside on an interactive terminal of 80 columns and 24 rows. */
  terminal(command: string): Terminal {
    const { file, args } = this.#enter([
      'TERM=xterm',
      'script',
      '-qefc',
      `stty cols 80 rows 24; ${command}`,
      '/dev/null',
    ]);
    return new Terminal(spawn(file, args, { stdio: ['pipe', 'pipe', 'pipe'] }));
  }

  /** Runs a shell script inside and returns its output; other exit statuses than 0 are errors with all output. */
  async sh(script: string, options: { timeoutMs?: number } = {}): Promise<string> {
    const { status, stdout, stderr } = await this.run(['sh', '-euc', script], options);
    if (status !== 0) throw new Error(`${script}\nended with ${status}:\n${stdout}${stderr}`);
    return stdout.trim();
  }

  /** Property of a unit, as `systemctl show` prints it. */
  async property(unit: string, name: string): Promise<string> {
    return this.sh(`systemctl show --value -p ${name} ${unit}`);
  }

  /** Journal output of a unit. */
  async journal(unit: string): Promise<string> {
    return this.sh(`journalctl -o cat --no-pager -u ${unit}`);
  }

  put(from: string, to: string): void {
    mkdirSync(dirname(this.#path(to)), { recursive: true });
    copyFileSync(from, this.#path(to));
  }

  write(path: string, text: string, mode = 0o644): void {
    mkdirSync(dirname(this.#path(path)), { recursive: true });
    writeFileSync(this.#path(path), text, { mode });
  }

  read(path: string): string {
    return readFileSync(this.#path(path), 'utf8');
  }

  exists(path: string): boolean {
    return existsSync(this.#path(path));
  }

  #path(inside: string): string {
    return join(`/proc/${this.#init}/root`, inside);
  }

  console(): string {
    return this.#console.join('');
  }

  async stop(): Promise<void> {
    if (this.#unshare.exitCode === null && this.#unshare.signalCode === null) {
      const ended = new Promise((resolve) => this.#unshare.once('exit', resolve));
      // The first process ends all others of its namespace; no state is kept.
      if (existsSync(`/proc/${this.#init}`)) process.kill(this.#init, 'SIGKILL');
      await ended;
    }
    await until('the cgroup is empty', () => removeTree(this.#cgroup));
  }
}

/** Polls until there is a result, during at most one third of the time, because a poll often starts a program. */
export async function until<T>(
  what: string,
  probe: () => T | Promise<T>,
  withinMs = 100_000,
): Promise<Exclude<T, false | undefined | null>> {
  const deadline = performance.now() + withinMs;
  for (;;) {
    const asked = performance.now();
    const found = await probe();
    const took = performance.now() - asked;
    if (found !== undefined && found !== null && found !== false) {
      return found as Exclude<T, false | undefined | null>;
    }
    if (performance.now() > deadline) throw new Error(`it did not happen within ${withinMs / 1000} s: ${what}`);
    await delay(Math.max(100, 2 * took));
  }
}

/** Folder of this process's cgroup in the unified hierarchy, independent of the mount point. */
function ownCgroup(): string {
  const mount = readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .find((line) => line.includes(' - cgroup2 '));
  const own = /^0::(.*)$/m.exec(readFileSync('/proc/self/cgroup', 'utf8'))?.[1];
  if (mount === undefined || own === undefined) throw new Error('no cgroup2 file system is mounted on this machine');
  return join(mount.split(' ')[4]!, own);
}

function firstChild(pid: number): number | undefined {
  const [first] = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ');
  return first ? Number(first) : undefined;
}

function removeTree(cgroup: string): boolean {
  if (!existsSync(cgroup)) return true;
  for (const entry of readdirSync(cgroup, { withFileTypes: true })) {
    if (entry.isDirectory()) removeTree(join(cgroup, entry.name));
  }
  try {
    rmdirSync(cgroup);
    return true;
  } catch {
    return false;
  }
}
