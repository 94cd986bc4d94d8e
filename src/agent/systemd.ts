import { type ChildProcess, execFile } from 'node:child_process';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { promisify } from 'node:util';
import notify from 'systemd-notify';
import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';

const run = promisify(execFile);

/** Maximum duration of one notification. `systemd-notify` itself waits up to 5 s until systemd has read the message. */
const TIMEOUT_MS = 10_000;

/**
 * Notifies systemd (sd_notify(3)). READY and STATUS are sent by the npm package `systemd-notify`, which supports only
 * these two; WATCHDOG, RELOADING and STOPPING are sent by the program that the package runs. Without `NOTIFY_SOCKET`,
 * nothing is sent and no program is started.
 *
 * Each message ends or times out before the next one is sent, so systemd reads them in order. WATCHDOG is sent
 * immediately, because a delayed ping would restart the service. Nothing follows STOPPING. Failures are logged and never
 * thrown: the agent continues without the service manager.
 */
export class Systemd {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #environment: NodeJS.ProcessEnv;
  #cancelWatchdog: (() => void) | undefined;
  /** Resolves when all messages except WATCHDOG have been sent. */
  #sent: Promise<void> = Promise.resolve();
  /** Latest status, sent or waiting for its turn. Empty after a failure, so that the next call sends the status. */
  #status = '';
  #isStopping = false;
  #isFailing = false;

  constructor(options: { clock: Clock; log: Logger; environment: NodeJS.ProcessEnv }) {
    this.#clock = options.clock;
    this.#log = options.log;
    this.#environment = options.environment;
  }

  /** Sends READY with a status. */
  ready(status: string): Promise<void> {
    this.#status = status;
    return this.#inOrder(async () => {
      if (!this.#isStopping) await this.#sendStatus({ ready: true, status });
    });
  }

  /** Sends the status if it has changed. The status is a state without figures, because each message is a process. */
  async status(status: string): Promise<void> {
    if (status === this.#status) return;
    this.#status = status;
    await this.#inOrder(async () => {
      const isLatest = status === this.#status;
      if (isLatest && !this.#isStopping) await this.#sendStatus({ status });
    });
  }

  reloading(): Promise<void> {
    return this.#inOrder(async () => {
      if (this.#isStopping) return;
      await this.#run(['RELOADING=1', `MONOTONIC_USEC=${Math.round(this.#clock.monotonicMs() * 1000)}`]);
    });
  }

  stopping(): Promise<void> {
    this.#isStopping = true;
    this.#cancelWatchdog?.();
    return this.#inOrder(() => this.#run(['STOPPING=1', 'STATUS=stopping']));
  }

  /** Notifies the watchdog three times per period while `isAlive` returns true. A later call replaces `isAlive`. */
  startWatchdog(isAlive: () => boolean): void {
    this.#cancelWatchdog?.();
    const periodMs = Number(this.#environment.WATCHDOG_USEC ?? 0) / 1000;
    const pid = this.#environment.WATCHDOG_PID;
    if (!this.#isPresent || !(periodMs > 0) || (pid !== undefined && Number(pid) !== process.pid)) return;
    const beat = () => {
      if (this.#isStopping) return;
      if (isAlive()) void this.#run(['WATCHDOG=1']);
      else this.#log.error({ event: 'service.stuck' }, 'component stalled, watchdog notification withheld');
      this.#cancelWatchdog = this.#clock.after(periodMs / 3, beat);
    };
    beat();
  }

  get #isPresent(): boolean {
    return this.#environment.NOTIFY_SOCKET !== undefined;
  }

  #inOrder(send: () => Promise<void>): Promise<void> {
    if (!this.#isPresent) return Promise.resolve();
    this.#sent = this.#sent.then(send);
    return this.#sent;
  }

  async #sendStatus(message: { ready?: true; status: string }): Promise<void> {
    const { program, ended } = callPackage(message);
    const cancelTimeout = this.#clock.after(TIMEOUT_MS, () => {
      program?.kill('SIGKILL');
      program?.stdout?.destroy();
      program?.stderr?.destroy();
    });
    try {
      await ended;
      this.#isFailing = false;
    } catch (error) {
      this.#failed(error);
      if (this.#status === message.status) this.#status = '';
    } finally {
      cancelTimeout();
    }
  }

  async #run(variables: string[]): Promise<void> {
    if (!this.#isPresent) return;
    try {
      await run('systemd-notify', [`--pid=${process.pid}`, ...variables], {
        timeout: TIMEOUT_MS,
        killSignal: 'SIGKILL',
      });
      this.#isFailing = false;
    } catch (error) {
      this.#failed(error);
    }
  }

  /** Logs the first of consecutive failures as a warning. */
  #failed(error: unknown): void {
    const fields = { event: 'service.notify_failed', error: messageOf(error) || 'systemd-notify failed' };
    this.#log[this.#isFailing ? 'debug' : 'warn'](fields, 'failed to notify the service manager');
    this.#isFailing = true;
  }
}

/**
 * Calls the package, and returns the program that it started. The package has no timeout, and it does not handle the
 * `error` event of its program if no file descriptor is available, which would terminate the agent.
 */
function callPackage(message: { ready?: true; status: string }) {
  let program: ChildProcess | undefined;
  const onStart = (started: unknown) => {
    ({ process: program } = started as { process: ChildProcess });
    program.on('error', () => {});
  };
  subscribe('child_process', onStart);
  const ended = notify(message);
  unsubscribe('child_process', onStart);
  return { program, ended };
}
