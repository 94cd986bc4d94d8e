import { endOrphans } from './family.ts';
import { type ProgramOptions, runProgram } from './program-run.ts';

export interface SupervisedOptions extends ProgramOptions {
  /** Called when the program has started. */
  started?(): void;
  /** Reports how the program exited, the delay before the restart, and whether it exited by itself. */
  ended(how: string, againInMs: number, hasExited: boolean): void;
}

const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 60_000;
/** Running time after which the back-off is reset. */
const STABLE_MS = 60_000;

/**
 * Supervised program that runs continuously. After any exit, it is restarted with a back-off of 1 s, doubling to 60 s.
 * It is terminated together with its children.
 */
export class SupervisedProgram {
  readonly #options: SupervisedOptions;
  readonly #stopping = new AbortController();
  #run = new AbortController();
  #running: Promise<void> | undefined;

  constructor(options: SupervisedOptions) {
    this.#options = options;
  }

  start(): void {
    this.#running ??= this.#supervise();
  }

  /** Resolves when the program and its children have exited. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  /** Restarts the program with the usual back-off. `why` is the reason passed to `ended`. */
  restart(why: string): void {
    this.#run.abort(why);
  }

  async #supervise(): Promise<void> {
    const { clock, instance, ended } = this.#options;
    const { signal } = this.#stopping;
    await endOrphans(instance);
    for (let pauseMs = FIRST_PAUSE_MS; !signal.aborted; pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS)) {
      const startedMs = clock.monotonicMs();
      this.#run = new AbortController();
      const started = () => this.#options.started?.();
      const { how, hasExited } = await runProgram(this.#options, signal, this.#run.signal, started);
      if (signal.aborted) return;
      if (clock.monotonicMs() - startedMs >= STABLE_MS) pauseMs = FIRST_PAUSE_MS;
      ended(how, pauseMs, hasExited);
      await clock.sleep(pauseMs, signal).catch(() => {});
    }
  }
}
