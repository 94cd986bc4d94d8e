import { type ChildProcess, execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { GatewayProcess } from '../process/gateway-process.ts';

/** `TimeoutStopSec` of the unit: who has not ended then is killed. */
export const STOPPED_WITHIN_MS = 45_000;

/** The daemon as a gateway has it, in surroundings that may fork it away: signals reach the daemon itself. */
export class ProvenGateway extends GatewayProcess {
  /** Whether somebody meant it to end: it never does by itself. */
  isMeantToRun = false;
  /** How often it was started. */
  launches = 0;
  #started: ChildProcess | undefined;

  override launch(environment: NodeJS.ProcessEnv = {}): ChildProcess {
    this.isMeantToRun = true;
    this.launches++;
    this.#started = super.launch(environment);
    return this.#started;
  }

  override get pid(): number {
    const started = super.pid;
    return started === 0 ? 0 : (childOf(started, 'unshare') ?? started);
  }

  override signal(signal: NodeJS.Signals): void {
    const { pid } = this;
    try {
      if (pid > 0 && this.isRunning) process.kill(pid, signal);
    } catch (error) {
      // It ended in between.
      if (this.isRunning) throw error;
    }
  }

  override async end(signal: NodeJS.Signals): Promise<number | string> {
    this.isMeantToRun = false;
    if (this.isRunning) this.signal(signal);
    return this.ended();
  }

  /**
   * Asks it to end as a service manager does: one that stands still is woken to hear of it. One that has not ended in time is killed, and
   * that is what it ended with.
   */
  async stop(withinMs = STOPPED_WITHIN_MS): Promise<number | string> {
    this.isMeantToRun = false;
    this.signal('SIGTERM');
    this.signal('SIGCONT');
    let isKilled = false;
    const killer = setTimeout(() => {
      isKilled = true;
      this.signal('SIGKILL');
    }, withinMs);
    const exit = await this.ended().finally(() => clearTimeout(killer));
    return isKilled ? 'SIGKILL' : exit;
  }

  /** How often it has said what became of new files. */
  get reloads(): number {
    return this.logged('config.reloaded').length + this.logged('config.refused').length;
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
    try {
      if (this.isRunning) execFileSync('prlimit', ['--pid', String(this.pid), `--nofile=${count}:`], { stdio: 'pipe' });
    } catch (error) {
      // It ended in between.
      if (this.isRunning) throw error;
    }
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
