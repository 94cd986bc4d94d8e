import { type ChildProcess, execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { GatewayProcess } from '../host/gateway-process.ts';

/** `TimeoutStopSec` of the unit, after which systemd kills the agent. */
export const STOPPED_WITHIN_MS = 45_000;

/** A gateway's agent. Signals reach the agent even if a wrapper forked it. */
export class ProvenGateway extends GatewayProcess {
  /** Whether the agent should be running. It must never exit by itself. */
  isMeantToRun = false;
  /** Number of starts. */
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
      // The process exited meanwhile.
      if (this.isRunning) throw error;
    }
  }

  override async end(signal: NodeJS.Signals): Promise<number | string> {
    this.isMeantToRun = false;
    if (this.isRunning) this.signal(signal);
    return this.ended();
  }

  /**
   * Stops the agent as a service manager does, resuming a suspended process first. If the timeout expires, kills the
   * agent and returns `SIGKILL`.
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

  /** Number of reloads, applied or rejected. */
  get reloads(): number {
    return this.logged('config.reloaded').length + this.logged('config.refused').length;
  }

  get isRunning(): boolean {
    return this.#commandOf(super.pid) !== undefined;
  }

  /** Exit status or signal of the latest process. */
  get endedWith(): number | string | null {
    return this.#started?.exitCode ?? this.#started?.signalCode ?? null;
  }

  /** Number of open file descriptors. */
  handles(): number {
    try {
      return readdirSync(`/proc/${this.pid}/fd`).length;
    } catch {
      return 0;
    }
  }

  /** Limits the number of open file descriptors. */
  limitHandles(count: number | 'unlimited'): void {
    try {
      if (this.isRunning) execFileSync('prlimit', ['--pid', String(this.pid), `--nofile=${count}:`], { stdio: 'pipe' });
    } catch (error) {
      // The process exited meanwhile.
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

/** Returns the child process of a process with this name. */
function childOf(pid: number, name: string): number | undefined {
  try {
    if (!readFileSync(`/proc/${pid}/comm`, 'utf8').startsWith(name)) return undefined;
    const child = Number(readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ')[0]);
    return child > 0 ? child : undefined;
  } catch {
    return undefined;
  }
}
