import { type ChildProcess, execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { GatewayProcess } from '../process/gateway-process.ts';

/** The daemon as a gateway has it, in surroundings that may fork it away: signals reach the daemon itself. */
export class ProvenGateway extends GatewayProcess {
  /** Whether somebody meant it to end: it never does by itself. */
  isMeantToRun = false;
  #started: ChildProcess | undefined;

  override launch(environment: NodeJS.ProcessEnv = {}): ChildProcess {
    this.isMeantToRun = true;
    this.#started = super.launch(environment);
    return this.#started;
  }

  override get pid(): number {
    const started = super.pid;
    return started === 0 ? 0 : (childOf(started, 'unshare') ?? started);
  }

  override signal(signal: NodeJS.Signals): void {
    const { pid } = this;
    if (pid > 0 && this.isRunning) process.kill(pid, signal);
  }

  override async end(signal: NodeJS.Signals): Promise<number | string> {
    this.isMeantToRun = false;
    if (this.isRunning) this.signal(signal);
    return this.ended();
  }

  get isRunning(): boolean {
    return this.#commandOf(super.pid) !== undefined;
  }

  /** Status or signal of what has ended. */
  get endedWith(): number | string | null {
    return this.#started?.exitCode ?? this.#started?.signalCode ?? null;
  }

  /** Open files, sockets and pipes. */
  handles(): number {
    try {
      return readdirSync(`/proc/${this.pid}/fd`).length;
    } catch {
      return 0;
    }
  }

  /** How many it may open from now on. */
  limitHandles(count: number | 'unlimited'): void {
    if (this.isRunning) execFileSync('prlimit', ['--pid', String(this.pid), `--nofile=${count}:`]);
  }

  #commandOf(pid: number): string | undefined {
    try {
      const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
      return text.slice(text.lastIndexOf(')') + 2).startsWith('Z') ? undefined : text;
    } catch {
      return undefined;
    }
  }
}

/** The one child of a process that is called so. */
function childOf(pid: number, name: string): number | undefined {
  try {
    if (!readFileSync(`/proc/${pid}/comm`, 'utf8').startsWith(name)) return undefined;
    const child = Number(readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ')[0]);
    return child > 0 ? child : undefined;
  } catch {
    return undefined;
  }
}
