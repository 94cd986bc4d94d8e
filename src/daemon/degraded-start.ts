import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf, type TagferryError } from '../base/errors.ts';
import { answerEarly } from '../base/inbound/body.ts';
import { hostRule } from '../base/inbound/host-rule.ts';
import { type InboundOptions, InboundServer } from '../base/inbound/inbound-server.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import type { Settings } from '../config/settings.ts';
import { ControlServer } from '../control/control-server.ts';
import { waitingRoutes } from '../control/waiting-routes.ts';
import { STORE_UNAVAILABLE } from '../store/store-messages.ts';
import { certificateFiles, type TlsSettings } from './certificate-files.ts';
import type { ServiceManager } from './service-manager.ts';

export interface DegradedStartOptions {
  settings: Pick<Settings, 'ingestListen' | 'webhookListen' | 'opsListen'> &
    Partial<Pick<Settings, 'opsHosts' | 'ingestHosts' | 'ingestToken'>> &
    TlsSettings;
  clock: Clock;
  log: Logger;
  service: Pick<ServiceManager, 'ready' | 'reloading' | 'startWatchdog' | 'status'>;
  /** As `/healthz` shows it. */
  session(): unknown;
  /** Where verbs ask. */
  controlPath: string;
  /** How often an address in use is tried again, a second apart: a predecessor may be on its way out. */
  listenRetries?: number;
}

/** What the work before a start has at hand. */
export interface WorkOfStart {
  signal: AbortSignal;
  tell(why: TagferryError): void;
  /** Calls `open` until the disk takes it; rejects where `stop` came first, and with what another attempt cannot mend. */
  untilOpen<Opened>(open: () => Promise<Opened>): Promise<Opened>;
}

/** Between two attempts, doubling: a file system that comes back is seen soon, one that does not is left alone. */
const FIRST_WAIT_MS = 1_000;
const MAX_WAIT_MS = 30_000;
/** As long as TimeoutStartSec: a corrupt buffer takes its time to salvage. Longer is stuck, and the watchdog is not fed. */
const OPENING_PATIENCE_MS = 300_000;

/**
 * Where the daemon waits at its start for a state folder whose disk does not take writes, or for a backlog that is too large
 * for its memory. The listeners stand meanwhile and
 * answer 503, so that senders keep what they have, and health says why; systemd is told READY, for it would end a start
 * that takes minutes. States: made, waiting (listeners open), over. A crash leaves nothing behind: nothing was taken in.
 */
export class DegradedStart {
  readonly #options: DegradedStartOptions;
  readonly #stopping = new AbortController();
  #listeners: InboundServer[] = [];
  #control: ControlServer | undefined;
  #isListening = false;
  #why: TagferryError | undefined;
  #working: Promise<void> | undefined;
  #attempts = 0;
  #nextAttemptMs = 0;
  #lastProgressMs = 0;
  readonly #repeats = new Repeats();

  constructor(options: DegradedStartOptions) {
    this.#options = options;
  }

  /** Whether it is waited now. */
  get isOpen(): boolean {
    return this.#why !== undefined;
  }

  /**
   * Calls `open` until it succeeds, and gives what it opened; `undefined` where `stop` came first. Throws at once what another
   * attempt cannot mend, and what `listen` says of an address.
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

  async #tryUntilOpen<Opened>(open: () => Promise<Opened>): Promise<Opened> {
    const { clock, log } = this.#options;
    const startMs = clock.monotonicMs();
    this.#attempts = 0;
    let attempt = await this.#attempt(open);
    while (!attempt) {
      const waitMs = Math.min(MAX_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.min(this.#attempts - 1, 10));
      this.#nextAttemptMs = clock.monotonicMs() + waitMs;
      await this.#wait();
      await clock.sleep(Math.max(0, this.#nextAttemptMs - clock.monotonicMs()), this.#stopping.signal);
      attempt = await this.#attempt(open);
    }
    if (this.#attempts > 1 && !this.#stopping.signal.aborted) {
      const fields = { attempts: this.#attempts, waitedMs: Math.round(clock.monotonicMs() - startMs) };
      log.info({ event: 'store.available', ...fields }, 'the state folder can be written, the start goes on');
    }
    return attempt.opened;
  }

  /**
   * Does what must be done before anything is taken in, the listeners open meanwhile as while it is waited for a disk. `work` tells
   * now and then why, and that it is not stuck; what it opens it may wait for, as `until` does. `false` where `stop` came first.
   */
  async during(why: TagferryError, work: (doing: WorkOfStart) => Promise<void>): Promise<boolean> {
    const { service, clock } = this.#options;
    const { signal } = this.#stopping;
    const tell = (now: TagferryError) => {
      this.#why = now;
      this.#lastProgressMs = clock.monotonicMs();
      void service.status(this.#statusLine());
    };
    const doing = async () => {
      try {
        tell(why);
        await this.#openAndTell();
        await work({ signal, tell, untilOpen: (open) => this.#tryUntilOpen(open) });
      } catch (error) {
        if (!signal.aborted) throw error;
      } finally {
        await this.#close();
      }
    };
    const done = doing();
    this.#working = done.catch(() => {});
    await done;
    return !signal.aborted;
  }

  async #attempt<Opened>(open: () => Promise<Opened>): Promise<{ opened: Opened } | undefined> {
    this.#attempts++;
    this.#lastProgressMs = this.#options.clock.monotonicMs();
    try {
      return { opened: await open() };
    } catch (error) {
      if (codeOf(error) !== STORE_UNAVAILABLE || this.#stopping.signal.aborted) throw error;
      this.#why = error as TagferryError;
      this.#say();
      return undefined;
    } finally {
      this.#lastProgressMs = this.#options.clock.monotonicMs();
    }
  }

  #say(): void {
    const { clock, log } = this.#options;
    const { message, hint } = this.#why!;
    if (this.#repeats.note(message, clock.monotonicMs()) === undefined) return;
    log.error(
      { event: 'store.unavailable', error: message, attempts: this.#attempts, hint },
      'the start waits for the state folder, nothing is taken in',
    );
  }

  /** At first opens the listeners and tells the service manager; later only what is new. */
  async #wait(): Promise<void> {
    if (this.#isListening) return this.#options.service.status(this.#statusLine());
    await this.#openAndTell();
  }

  async #openAndTell(): Promise<void> {
    const { service, clock } = this.#options;
    this.#isListening = true;
    await this.#open();
    await this.#openControl();
    await service.ready(this.#statusLine());
    service.startWatchdog(() => clock.monotonicMs() - this.#lastProgressMs < OPENING_PATIENCE_MS);
  }

  #statusLine(): string {
    return `waiting: ${this.#why?.message}`;
  }

  /** SIGHUP: the settings of a start that is under way are not changed, and systemd waits for the end of a reload. */
  async refuseReload(): Promise<void> {
    const { service, log } = this.#options;
    // The wait may end meanwhile.
    const statusLine = this.#statusLine();
    const error = `the start waits: ${this.#why?.message}; reload when it is over, or restart`;
    log.error({ event: 'config.refused', error }, 'the configuration cannot be read again yet');
    await service.reloading();
    await service.ready(statusLine);
  }

  /** Ends the wait: `until` gives `false`. */
  async stop(): Promise<void> {
    this.#stopping.abort(new Error('the agent stops'));
    await this.#working;
    await this.#close();
  }

  async #open(): Promise<void> {
    const { settings } = this.#options;
    const { ingestListen, webhookListen, opsListen } = settings;
    const stored = () => ({ error: this.#sentence(), hint: 'Send it again later.' });
    if (ingestListen) {
      const of = { name: 'ingest', setting: 'INGEST_LISTEN', code: 'ingest.address_in_use' };
      const tls = certificateFiles(settings, 'ingest');
      const rule = settings.ingestToken === undefined && hostRule(ingestListen, 'INGEST_HOSTS', settings.ingestHosts);
      await this.#listen({ ...of, address: ingestListen, tls, hosts: () => rule || undefined }, stored);
    }
    if (webhookListen) {
      const of = { name: 'webhook', setting: 'WEBHOOK_LISTEN', code: 'webhook.listen' };
      const tls = certificateFiles(settings, 'webhook');
      // Strangers may read it: it names no folder.
      await this.#listen({ ...of, address: webhookListen, tls }, () => ({ error: 'events cannot be stored now' }));
    }
    if (opsListen) {
      const of = { name: 'ops', setting: 'OPS_LISTEN', code: 'ops.listen' };
      const health = () => ({ status: 'unavailable', problems: [this.#sentence()], session: this.#options.session() });
      const tls = certificateFiles(settings, 'ops');
      const rule = hostRule(opsListen, 'OPS_HOSTS', settings.opsHosts);
      await this.#listen({ ...of, address: opsListen, tls, hosts: () => rule }, health);
    }
  }

  /** Beside a state folder that takes no writes no socket can be made: then the log and the service manager tell alone. */
  async #openControl(): Promise<void> {
    const { controlPath: path, clock, log } = this.#options;
    const control = new ControlServer(
      waitingRoutes(() => this.#why),
      { path, clock, log },
    );
    await control.start().then(
      () => {
        this.#control = control;
      },
      (error: unknown) => log.debug({ event: 'control.unavailable', error: messageOf(error) }, 'verbs cannot ask yet'),
    );
  }

  #sentence(): string {
    const { message, hint } = this.#why ?? { message: 'it is over in a moment', hint: undefined };
    return `the start waits, nothing is taken in: ${message}${hint === undefined ? '' : `. ${hint}`}`;
  }

  /** Answers 503 to everything, without waiting for a body. */
  async #listen(
    options: Pick<InboundOptions, 'name' | 'address' | 'setting' | 'code' | 'tls' | 'hosts'>,
    body: () => object,
  ): Promise<void> {
    const { clock, log, listenRetries = 10 } = this.#options;
    const listener = new InboundServer({
      ...options,
      limits: { ...LIMITS, listenRetries },
      clock,
      log,
      serve: (request, response) => this.#answer(request, response, body()),
    });
    this.#listeners.push(listener);
    await listener.start();
  }

  #answer(request: IncomingMessage, response: ServerResponse, body: object): void {
    const { clock } = this.#options;
    const leftMs = this.#nextAttemptMs - clock.monotonicMs();
    const headers = {
      'Content-Type': 'application/json',
      'Cache-Control': 'no-store',
      // The attempt itself and what follows it take a moment.
      'Retry-After': String(1 + Math.max(1, Math.ceil(leftMs / 1000))),
    };
    answerEarly(request, response, { status: 503, headers, text: `${JSON.stringify(body)}\n` }, clock);
  }

  async #close(): Promise<void> {
    await Promise.all([...this.#listeners, this.#control].map((listener) => listener?.stop()));
    this.#listeners = [];
    this.#control = undefined;
    this.#isListening = false;
    this.#why = undefined;
  }
}

/** Every answer is a few words: what takes longer to ask is no client of ours. */
const LIMITS = { keepAliveMs: 5_000, stopMs: 0 };
