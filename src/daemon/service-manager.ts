import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';

const run = promisify(execFile);

/**
 * What systemd is told, by its own program `systemd-notify`. Without `NOTIFY_SOCKET` nothing is sent and nothing is started. The package
 * of that name knows READY and STATUS only.
 */
export class ServiceManager {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #environment: NodeJS.ProcessEnv;
  #cancelWatchdog: (() => void) | undefined;
  readonly #repeats = new Repeats();
  #lastStatus = '';
  #stopped = false;

  constructor(options: { clock: Clock; log: Logger; environment: NodeJS.ProcessEnv }) {
    this.#clock = options.clock;
    this.#log = options.log;
    this.#environment = options.environment;
  }

  get isPresent(): boolean {
    return this.#environment.NOTIFY_SOCKET !== undefined;
  }

  async ready(status: string): Promise<void> {
    if (this.#stopped) return;
    this.#lastStatus = status;
    await this.#send(['READY=1', `STATUS=${status}`]);
  }

  /** Sent only when it changed. */
  async status(status: string): Promise<void> {
    if (status === this.#lastStatus || this.#stopped) return;
    this.#lastStatus = status;
    await this.#send([`STATUS=${status}`]);
  }

  async stopping(): Promise<void> {
    this.#stopped = true;
    this.#cancelWatchdog?.();
    await this.#send(['STOPPING=1', 'STATUS=stopping']);
  }

  async reloading(): Promise<void> {
    await this.#send(['RELOADING=1', `MONOTONIC_USEC=${Math.round(this.#clock.monotonicMs() * 1000)}`]);
  }

  /** Tells the watchdog that the agent lives, three times in its period, as long as `isAlive` says so: the latest one. */
  startWatchdog(isAlive: () => boolean): void {
    this.#cancelWatchdog?.();
    const periodMs = Number(this.#environment.WATCHDOG_USEC ?? 0) / 1000;
    const pid = this.#environment.WATCHDOG_PID;
    if (!this.isPresent || !(periodMs > 0) || (pid !== undefined && Number(pid) !== process.pid)) return;
    const beat = () => {
      if (this.#stopped) return;
      if (isAlive()) void this.#send(['WATCHDOG=1']);
      else this.#log.error({ event: 'service.stuck' }, 'a loop makes no progress, the watchdog is not fed');
      this.#cancelWatchdog = this.#clock.after(periodMs / 3, beat);
    };
    beat();
  }

  /** A service manager that does not hear is no reason to stop carrying values. */
  async #send(lines: string[]): Promise<void> {
    if (!this.isPresent) return;
    try {
      await run('systemd-notify', [`--pid=${process.pid}`, ...lines], { timeout: 10_000 });
    } catch (error) {
      const count = this.#repeats.note('notify', this.#clock.monotonicMs());
      const fields = { event: 'service.notify_failed', error: messageOf(error), count };
      this.#log[count === undefined ? 'debug' : 'warn'](fields, 'the service manager was not told');
    }
  }
}
