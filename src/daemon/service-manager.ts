import { execFile } from 'node:child_process';
import notify from 'systemd-notify';
import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';

/**
 * What systemd is told. Without `NOTIFY_SOCKET` nothing is sent and nothing is started. READY and STATUS go through the
 * `systemd-notify` package; WATCHDOG, STOPPING and RELOADING it does not know, so its program is called directly.
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
    if (!this.isPresent || this.#stopped) return;
    this.#lastStatus = status;
    await this.#quietly(() => notify({ ready: true, status }));
  }

  /** Sent only when it changed. */
  async status(status: string): Promise<void> {
    if (!this.isPresent || status === this.#lastStatus || this.#stopped) return;
    this.#lastStatus = status;
    await this.#quietly(() => notify({ status }));
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

  #send(lines: string[]): Promise<void> {
    if (!this.isPresent) return Promise.resolve();
    return this.#quietly(
      () =>
        new Promise<void>((resolve, reject) => {
          execFile('systemd-notify', [`--pid=${process.pid}`, ...lines], { timeout: 10_000 }, (error) =>
            error ? reject(error) : resolve(),
          );
        }),
    );
  }

  /** A service manager that does not hear is no reason to stop carrying values. */
  async #quietly(send: () => Promise<unknown>): Promise<void> {
    try {
      await send();
    } catch (error) {
      const count = this.#repeats.note('notify', this.#clock.monotonicMs());
      const fields = { event: 'service.notify_failed', error: messageOf(error), count };
      this.#log[count === undefined ? 'debug' : 'warn'](fields, 'the service manager was not told');
    }
  }
}
