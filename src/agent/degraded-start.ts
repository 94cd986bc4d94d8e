import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf, type TagferryError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import { waitingRoutes } from '../control/agent-routes.ts';
import { ControlServer } from '../control/control-server.ts';
import { STORE_UNAVAILABLE } from '../store/store-messages.ts';
import { type Listeners, STARTING, STOPPING, type Unavailable } from './listeners.ts';
import type { Systemd } from './systemd.ts';

export interface DegradedStartOptions {
  clock: Clock;
  log: Logger;
  service: Pick<Systemd, 'ready' | 'reloading' | 'startWatchdog' | 'status'>;
  listeners: Pick<Listeners, 'start'>;
  /** Path of the control socket. */
  controlPath: string;
}

/** Functions for work that must be completed before values are accepted. */
export interface StartupWork {
  signal: AbortSignal;
  /** Reports progress, with the current reason for waiting. */
  report(reason: TagferryError): void;
  /** Calls `open` until the disk accepts writes. Rejects after `stop`, and with errors that a retry cannot fix. */
  untilOpen<Opened>(open: () => Promise<Opened>): Promise<Opened>;
}

/** Delay before the first retry, doubled for each further retry, in milliseconds. */
const FIRST_WAIT_MS = 1_000;
const MAX_WAIT_MS = 30_000;
/**
 * Equal to TimeoutStartSec, because recovering a corrupt buffer takes time. If it is exceeded, watchdog notifications
 * stop.
 */
const OPENING_PATIENCE_MS = 300_000;

/**
 * Startup that waits while the disk is read-only or the backlog exceeds the memory. Meanwhile the listeners and health
 * report the reason. READY is sent to systemd once the listeners are open, because systemd would otherwise terminate a
 * startup that takes minutes. States: created, waiting, finished. A crash loses no data, because no values have been
 * accepted.
 */
export class DegradedStart {
  readonly #options: DegradedStartOptions;
  readonly #stopping = new AbortController();
  #control: ControlServer | undefined;
  #isAnnounced = false;
  #reason: TagferryError | undefined;
  #working: Promise<void> | undefined;
  #attempts = 0;
  #nextAttemptMs = 0;
  #lastProgressMs = 0;
  readonly #repeats = new Repeats();

  constructor(options: DegradedStartOptions) {
    this.#options = options;
  }

  get isWaiting(): boolean {
    return this.#reason !== undefined;
  }

  /** Reason that the listeners report until startup is complete. */
  get unavailable(): Unavailable {
    if (this.#stopping.signal.aborted) return STOPPING;
    if (!this.#reason) return STARTING;
    const { code, message, hint } = this.#reason;
    const why = hint === undefined ? message : `${message}. ${hint}`;
    const detail = `startup is suspended and values are not accepted: ${why}`;
    // Includes time for the attempt itself.
    const leftMs = this.#nextAttemptMs - this.#options.clock.monotonicMs();
    return { ...STARTING, code, detail, retryAfterSeconds: 1 + Math.max(1, Math.ceil(leftMs / 1000)) };
  }

  /**
   * Calls `open` until it succeeds and returns the result, or `undefined` after `stop`. Throws errors that a retry
   * cannot fix and errors of the listeners.
   */
  async until<Opened>(open: () => Promise<Opened>): Promise<Opened | undefined> {
    const { signal } = this.#stopping;
    try {
      const opened = await this.#tryUntilOpen(open);
      return signal.aborted ? undefined : opened;
    } catch (error) {
      if (signal.aborted) return undefined;
      throw error;
    } finally {
      await this.#close();
    }
  }

  /** Runs `work` while the listeners report the reason. Returns `false` after `stop`. */
  async during(reason: TagferryError, work: (services: StartupWork) => Promise<void>): Promise<boolean> {
    const { service, clock } = this.#options;
    const { signal } = this.#stopping;
    const report = (current: TagferryError) => {
      this.#reason = current;
      this.#lastProgressMs = clock.monotonicMs();
      void service.status(this.#statusLine());
    };
    const working = async () => {
      try {
        report(reason);
        await this.#announce();
        await work({ signal, report, untilOpen: (open) => this.#tryUntilOpen(open) });
      } catch (error) {
        if (!signal.aborted) throw error;
      } finally {
        await this.#close();
      }
    };
    const done = working();
    this.#working = done.catch(() => {});
    await done;
    return !signal.aborted;
  }

  async #tryUntilOpen<Opened>(open: () => Promise<Opened>): Promise<Opened> {
    const { clock, log, service } = this.#options;
    const startMs = clock.monotonicMs();
    this.#attempts = 0;
    let attempt = await this.#attempt(open);
    while (!attempt) {
      const waitMs = Math.min(MAX_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.min(this.#attempts - 1, 10));
      this.#nextAttemptMs = clock.monotonicMs() + waitMs;
      if (this.#isAnnounced) await service.status(this.#statusLine());
      else await this.#announce();
      await clock.sleep(Math.max(0, this.#nextAttemptMs - clock.monotonicMs()), this.#stopping.signal);
      attempt = await this.#attempt(open);
    }
    if (this.#attempts > 1 && !this.#stopping.signal.aborted) {
      const fields = { attempts: this.#attempts, waitedMs: Math.round(clock.monotonicMs() - startMs) };
      log.info({ event: 'store.available', ...fields }, 'state folder writable, continuing startup');
    }
    return attempt.opened;
  }

  async #attempt<Opened>(open: () => Promise<Opened>): Promise<{ opened: Opened } | undefined> {
    const { clock } = this.#options;
    this.#attempts++;
    this.#lastProgressMs = clock.monotonicMs();
    try {
      return { opened: await open() };
    } catch (error) {
      if (codeOf(error) !== STORE_UNAVAILABLE || this.#stopping.signal.aborted) throw error;
      this.#reason = error as TagferryError;
      this.#logUnavailable(this.#reason);
      return undefined;
    } finally {
      this.#lastProgressMs = clock.monotonicMs();
    }
  }

  #logUnavailable({ message, hint }: TagferryError): void {
    const { clock, log } = this.#options;
    if (this.#repeats.note(message, clock.monotonicMs()) === undefined) return;
    log.error(
      { event: 'store.unavailable', error: message, attempts: this.#attempts, hint },
      'state folder not writable, startup suspended, not accepting values',
    );
  }

  #statusLine(): string {
    return `waiting: ${this.#reason?.message}`;
  }

  /** Handles SIGHUP. The reload runs after startup, but systemd requires a notification now. */
  async postponeReload(): Promise<void> {
    const { service, log } = this.#options;
    // Read now, because the wait may end in the meantime.
    const statusLine = this.#statusLine();
    const fields = { event: 'config.reload_postponed', reason: this.#reason?.message };
    log.warn(fields, 'startup suspended, reload postponed until startup is complete');
    await service.reloading();
    await service.ready(statusLine);
  }

  /** Ends the wait; `until` then returns `undefined`. */
  async stop(): Promise<void> {
    this.#stopping.abort(new Error('the agent is stopping'));
    await this.#working;
    await this.#close();
  }

  /** Notifies the service manager when the listeners are open. */
  async #announce(): Promise<void> {
    const { clock, listeners, service } = this.#options;
    this.#isAnnounced = true;
    await listeners.start();
    await this.#openControl();
    await service.ready(this.#statusLine());
    service.startWatchdog(() => clock.monotonicMs() - this.#lastProgressMs < OPENING_PATIENCE_MS);
  }

  /**
   * If the state folder is read-only, no socket can be created, and only the log and the service manager report the
   * state.
   */
  async #openControl(): Promise<void> {
    const { controlPath: path, clock, log } = this.#options;
    const control = new ControlServer(
      waitingRoutes(() => this.#reason),
      { path, clock, log },
    );
    try {
      await control.start();
      this.#control = control;
    } catch (error) {
      const fields = { event: 'control.unavailable', error: messageOf(error) };
      log.debug(fields, 'failed to open the control socket during startup');
    }
  }

  async #close(): Promise<void> {
    await this.#control?.stop();
    this.#control = undefined;
    this.#isAnnounced = false;
    this.#reason = undefined;
  }
}
