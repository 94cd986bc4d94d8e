import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import type { StatusReport } from '../../ops/status-report.ts';
import type { AgentPlace } from './agent-files.ts';
import { callSocket } from './socket-call.ts';

/**
 * The variables that the agent inherits. Everything else of the caller's environment stays away from it: a PLATFORM_URL
 * that somebody exported would send the demo's values to a real platform.
 */
const INHERITED = ['PATH', 'HOME', 'USER', 'LANG', 'LC_ALL', 'TZ', 'TMPDIR', 'LD_LIBRARY_PATH'];

/** The real daemon, as a process of its own: the same program that runs this demo, with the verb `run`. */
export class AgentChild {
  readonly #place: AgentPlace;
  readonly #onEnd: (how: string) => void;
  #child: ChildProcess | undefined;
  #ended: Promise<number | NodeJS.Signals> | undefined;
  #stopping = false;

  /** `onEnd`: it ended although nobody asked it to. */
  constructor(place: AgentPlace, onEnd: (how: string) => void) {
    this.#place = place;
    this.#onEnd = onEnd;
  }

  start(): void {
    const log = openSync(this.#place.log, 'a', 0o600);
    const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => INHERITED.includes(name)));
    const child = spawn(process.execPath, [process.argv[1]!, 'run', '--config', this.#place.config], {
      cwd: this.#place.folder,
      env: { ...environment, NO_COLOR: '1' },
      stdio: ['ignore', log, log],
      // Ctrl-C on the terminal reaches the demo alone, which then ends the agent once: a second signal would break it off.
      detached: true,
    });
    closeSync(log);
    this.#child = child;
    this.#ended = new Promise((resolve) => {
      const end = (how: number | NodeJS.Signals) => {
        resolve(how);
        if (!this.#stopping) this.#onEnd(typeof how === 'number' ? `with exit ${how}` : `by ${how}`);
      };
      child.once('exit', (code, signal) => end(code ?? signal ?? 1));
      child.once('error', () => end(1));
    });
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  get isRunning(): boolean {
    return this.#child !== undefined && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** SIGTERM, and its end: the exit status, or the signal's name. */
  stop(): Promise<number | NodeJS.Signals> {
    this.#stopping = true;
    this.#child?.kill('SIGTERM');
    return this.#ended ?? Promise.resolve(0);
  }

  /** When nobody wants to wait any longer. */
  kill(): void {
    this.#stopping = true;
    this.#child?.kill('SIGKILL');
  }

  /** `/status`; `undefined` where it does not answer. */
  async status(): Promise<StatusReport | undefined> {
    try {
      const { status, text } = await callSocket(this.#place.ops, '/status');
      return status === 200 ? (JSON.parse(text) as StatusReport) : undefined;
    } catch {
      return undefined;
    }
  }

  async isReady(): Promise<boolean> {
    try {
      return (await callSocket(this.#place.ops, '/readyz')).status === 200;
    } catch {
      return false;
    }
  }

  /** The last words of its log, for somebody who wants to know why. */
  lastWords(lines: number): string[] {
    try {
      return readFileSync(this.#place.log, 'utf8').trimEnd().split('\n').slice(-lines);
    } catch {
      return [];
    }
  }
}
