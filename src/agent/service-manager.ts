import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';

const run = promisify(execFile);

/**
 * Notifies systemd through the program `systemd-notify`. Without `NOTIFY_SOCKET`, nothing is sent and no program is
 * started. The npm package with the same name supports only READY and STATUS.
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

  /** Sends the status if it has changed. */
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

  /** Notifies the watchdog three times per period while `isAlive` returns true. A later call replaces `isAlive`. */
  startWatchdog(isAlive: () => boolean): void {
    this.#cancelWatchdog?.();
    const periodMs = Number(this.#environment.WATCHDOG_USEC ?? 0) / 1000;
    const pid = this.#environment.WATCHDOG_PID;
    if (!this.isPresent || !(periodMs > 0) || (pid !== undefined && Number(pid) !== process.pid)) return;
    const beat = () => {
      if (this.#stopped) return;
      if (isAlive()) void this.#send(['WATCHDOG=1']);
      else this.#log.error({ event: 'service.stuck' }, 'component stalled, watchdog notification withheld');
      this.#cancelWatchdog = this.#clock.after(periodMs / 3, beat);
    };
    beat();
  }

  /** Never rejects: the agent continues without the service manager. */
  async #send(lines: string[]): Promise<void> {
    if (!this.isPresent) return;
    try {
      await run('systemd-notify', [`--pid=${process.pid}`, ...lines], { timeout: 10_000 });
    } catch (error) {
      const count = this.#repeats.note('notify', this.#clock.monotonicMs());
      const fields = { event: 'service.notify_failed', error: messageOf(error), count };
      this.#log[count === undefined ? 'debug' : 'warn'](fields, 'failed to notify the service manager');
    }
  }
}
