import type { IncomingMessage } from 'node:http';
import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf, type TagferryError } from '../base/errors.ts';
import type { InboundServer } from '../base/inbound/inbound-server.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import { waitingRoutes } from '../control/agent-routes.ts';
import { ControlServer } from '../control/control-server.ts';
import { type Health, healthNotes, healthReport, sightOf } from '../ops/ops-server.ts';
import { STORE_UNAVAILABLE } from '../store/store-messages.ts';
import { type ListenerName, type ListenerSettings, unavailableListener } from './listeners.ts';
import type { Systemd } from './systemd.ts';

export interface DegradedStartOptions {
  settings: ListenerSettings;
  clock: Clock;
  log: Logger;
  service: Pick<Systemd, 'ready' | 'reloading' | 'startWatchdog' | 'status'>;
  /** Session state for `/healthz`. */
  session(): Health['session'];
  /** Path of the control socket. */
  controlPath: string;
  /** Number of retries, one second apart, if an address is in use. Default: 10. */
  listenRetries?: number;
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
 * Startup that waits while the disk is read-only or the backlog exceeds the memory. Meanwhile the listeners respond
 * with 503, so that senders keep their values, and health reports the reason. READY is sent to systemd, because systemd
 * would otherwise terminate a startup that takes minutes. States: created, waiting (listeners open), finished. A crash
 * loses no data, because no values have been accepted.
 */
export class DegradedStart {
  readonly #options: DegradedStartOptions;
  readonly #stopping = new AbortController();
  #listeners: InboundServer[] = [];
  #control: ControlServer | undefined;
  #isListening = false;
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

  /** Runs `work` while the listeners are open. Returns `false` after `stop`. */
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
        await this.#open();
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
      if (this.#isListening) await service.status(this.#statusLine());
      else await this.#open();
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

  /** Opens the listeners and notifies the service manager. */
  async #open(): Promise<void> {
    const { settings, session, clock, log, listenRetries, service } = this.#options;
    this.#isListening = true;
    const bodies: Record<ListenerName, (request: IncomingMessage) => object> = {
      ingest: () => ({ error: this.#problem(), hint: 'Retry later.' }),
      // The response is public, so it contains no path.
      webhook: () => ({ error: 'events cannot be stored at the moment' }),
      ops: (request) => {
        const problems = healthNotes(this.#reason?.code ?? 'agent.starting', [this.#problem()]);
        const health = { ok: false, problems, notes: [], session: session() };
        return healthReport(health, sightOf(request, { opsToken: settings.opsToken }, settings.opsListen!));
      },
    };
    for (const name of ['ingest', 'webhook', 'ops'] as const) {
      const retryAfterSeconds = () => this.#retryAfterSeconds();
      const options = {
        body: bodies[name],
        retryAfterSeconds,
        clock,
        log,
        ...(listenRetries === undefined ? {} : { listenRetries }),
      };
      const listener = unavailableListener(settings, name, options);
      if (!listener) continue;
      this.#listeners.push(listener);
      await listener.start();
    }
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

  #problem(): string {
    const { message, hint } = this.#reason ?? { message: 'ready in a moment', hint: undefined };
    return `startup is suspended and values are not accepted: ${message}${hint === undefined ? '' : `. ${hint}`}`;
  }

  /** Includes time for the attempt itself. */
  #retryAfterSeconds(): number {
    const leftMs = this.#nextAttemptMs - this.#options.clock.monotonicMs();
    return 1 + Math.max(1, Math.ceil(leftMs / 1000));
  }

  async #close(): Promise<void> {
    await Promise.all([...this.#listeners, this.#control].map((listener) => listener?.stop()));
    this.#listeners = [];
    this.#control = undefined;
    this.#isListening = false;
    this.#reason = undefined;
  }
}
