import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { AgentProcess } from './agent-process.ts';

const PRELOAD = pathToFileURL(join(import.meta.dirname, 'moved-clock.mjs')).href;

/** Wall clock of an agent, which can be moved while the agent is running. */
export class MovedClock {
  readonly #file: string;

  constructor(agent: AgentProcess) {
    this.#file = join(agent.folder, 'moved-clock');
  }

  /** Environment for `AgentProcess.start`. */
  get environment(): NodeJS.ProcessEnv {
    return { NODE_OPTIONS: `--import=${PRELOAD}`, MOVED_CLOCK: this.#file };
  }

  /** Moves the clock, relative to this machine's clock. */
  move(ms: number): void {
    writeFileSync(`${this.#file}.new`, String(ms));
    // The agent never reads an empty file.
    renameSync(`${this.#file}.new`, this.#file);
  }
}
