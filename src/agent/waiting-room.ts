import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { Clock } from '../clock.ts';
import type { Settings } from '../config/settings.ts';
import { codeOf, type TagferryError } from '../errors.ts';
import { listen } from '../listen.ts';
import type { Logger } from '../logger.ts';
import { createServer } from '../node-http.ts';
import { readCertificate } from '../webhook/certificate.ts';
import type { ServiceManager } from './service-manager.ts';
import { STORE_UNAVAILABLE } from './store-messages.ts';

export interface WaitingRoomOptions {
  settings: Pick<Settings, 'ingestListen' | 'webhookListen' | 'webhookTlsCert' | 'webhookTlsKey' | 'opsListen'>;
  clock: Clock;
  log: Logger;
  service: Pick<ServiceManager, 'ready' | 'reloading' | 'startWatchdog' | 'status'>;
  /** As `/healthz` shows it. */
  session(): unknown;
  /** How often an address in use is tried again, a second apart: a predecessor may be on its way out. */
  listenRetries?: number;
}

/** Between two attempts, doubling: a file system that comes back is seen soon, one that does not is left alone. */
const FIRST_WAIT_MS = 1_000;
const LONGEST_WAIT_MS = 30_000;
const SAY_AGAIN_MS = 60_000;
/** As long as TimeoutStartSec: a corrupt buffer takes its time to salvage. Longer is stuck, and the watchdog is not fed. */
const OPENING_PATIENCE_MS = 300_000;

/**
 * Where the daemon waits at its start for a state folder whose disk does not take writes. The doors stand open meanwhile and
 * answer 503, so that senders keep what they have, and health says why; systemd is told READY, for it would end a start
 * that takes minutes. States: made, waiting (doors open), over. A crash leaves nothing behind: nothing was taken in.
 */
export class WaitingRoom {
  readonly #options: WaitingRoomOptions;
  readonly #stopping = new AbortController();
  readonly #doors: Server[] = [];
  #why: TagferryError | undefined;
  #attempts = 0;
  #nextAttemptMs = 0;
  #lastProgressMs = 0;
  #saidMs = Number.NEGATIVE_INFINITY;
  #said = '';

  constructor(options: WaitingRoomOptions) {
    this.#options = options;
  }

  /** Whether it is waited for the disk now. */
  get isOpen(): boolean {
    return this.#why !== undefined;
  }

  /**
   * Calls `open` until it succeeds. `false` where `stop` came first. Throws at once what another attempt cannot mend, and
   * what `listen` says of an address.
   */
  async until(open: () => Promise<void>): Promise<boolean> {
    const { clock, log } = this.#options;
    const { signal } = this.#stopping;
    const startMs = clock.monotonicMs();
    try {
      while (!(await this.#attempt(open))) {
        const waitMs = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.min(this.#attempts - 1, 10));
        this.#nextAttemptMs = clock.monotonicMs() + waitMs;
        await this.#wait();
        await clock.sleep(Math.max(0, this.#nextAttemptMs - clock.monotonicMs()), signal);
      }
    } catch (error) {
      if (signal.aborted) return false;
      throw error;
    } finally {
      await this.#close();
    }
    if (this.#attempts > 1 && !signal.aborted) {
      const fields = { attempts: this.#attempts, waitedMs: Math.round(clock.monotonicMs() - startMs) };
      log.info({ event: 'store.available', ...fields }, 'the state folder can be written, the start goes on');
    }
    return !signal.aborted;
  }

  async #attempt(open: () => Promise<void>): Promise<boolean> {
    this.#attempts++;
    this.#lastProgressMs = this.#options.clock.monotonicMs();
    try {
      await open();
      return true;
    } catch (error) {
      if (codeOf(error) !== STORE_UNAVAILABLE || this.#stopping.signal.aborted) throw error;
      this.#why = error as TagferryError;
      this.#say();
      return false;
    } finally {
      this.#lastProgressMs = this.#options.clock.monotonicMs();
    }
  }

  #say(): void {
    const { clock, log } = this.#options;
    const { message, hint } = this.#why!;
    const nowMs = clock.monotonicMs();
    if (message === this.#said && nowMs - this.#saidMs < SAY_AGAIN_MS) return;
    this.#said = message;
    this.#saidMs = nowMs;
    log.error(
      { event: 'store.unavailable', error: message, attempts: this.#attempts, hint },
      'the start waits for the state folder, nothing is taken in',
    );
  }

  /** After the first attempt opens the doors and tells the service manager; after others only what is new. */
  async #wait(): Promise<void> {
    const { service, clock } = this.#options;
    if (this.#attempts > 1) return service.status(this.#statusLine());
    await this.#open();
    await service.ready(this.#statusLine());
    service.startWatchdog(() => clock.monotonicMs() - this.#lastProgressMs < OPENING_PATIENCE_MS);
  }

  #statusLine(): string {
    return `waiting: ${this.#why!.message}`;
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
    await this.#close();
  }

  async #open(): Promise<void> {
    const { settings, listenRetries: retries = 10 } = this.#options;
    const { ingestListen, webhookListen, webhookTlsCert: certFile, webhookTlsKey: keyFile, opsListen } = settings;
    if (ingestListen) {
      const door = this.#door(createServer(LIMITS), () => ({ error: this.#sentence(), hint: 'Send it again later.' }));
      await listen(door, ingestListen, { setting: 'INGEST_LISTEN', code: 'ingest.address_in_use', retries });
    }
    if (webhookListen) {
      const pair = certFile !== undefined && keyFile !== undefined && (await readCertificate({ certFile, keyFile }));
      const server = pair
        ? createTlsServer({ ...LIMITS, ...pair, minVersion: 'TLSv1.2', handshakeTimeout: LIMITS.headersTimeout })
        : createServer(LIMITS);
      server.on('tlsClientError', (_, socket) => socket.destroy());
      // Strangers may read it: it names no folder.
      const door = this.#door(server, () => ({ error: 'events cannot be stored now' }));
      await listen(door, webhookListen, { setting: 'WEBHOOK_LISTEN', code: 'webhook.listen', retries });
    }
    if (opsListen) {
      const health = () => ({ status: 'unavailable', problems: [this.#sentence()], session: this.#options.session() });
      const door = this.#door(createServer(LIMITS), health);
      await listen(door, opsListen, { setting: 'OPS_LISTEN', code: 'ops.listen', retries });
    }
  }

  #sentence(): string {
    const { message, hint } = this.#why!;
    return `the start waits, nothing is taken in: ${message}${hint === undefined ? '' : `. ${hint}`}`;
  }

  /** Answers 503 to everything, without waiting for a body; Node reads past what is still sent. */
  #door(server: Server, body: () => object): Server {
    const answer = (request: IncomingMessage, response: ServerResponse, asksFirst: boolean) => {
      const leftMs = this.#nextAttemptMs - this.#options.clock.monotonicMs();
      const text = `${JSON.stringify(body())}\n`;
      response.writeHead(503, {
        'Content-Type': 'application/json',
        'Content-Length': Buffer.byteLength(text),
        'Cache-Control': 'no-store',
        // The attempt itself and what follows it take a moment.
        'Retry-After': String(1 + Math.max(1, Math.ceil(leftMs / 1000))),
        ...(asksFirst ? { Connection: 'close' } : {}),
      });
      response.end(request.method === 'HEAD' ? undefined : text);
    };
    server.maxConnections = MOST_CONNECTIONS;
    server.on('request', (request, response) => answer(request, response, false));
    // Who asks before it sends has its answer before it has sent.
    server.on('checkContinue', (request, response) => answer(request, response, true));
    // Of single connections that could not be taken: there will be others.
    server.on('error', () => {});
    this.#doors.push(server);
    return server;
  }

  async #close(): Promise<void> {
    const doors = this.#doors.filter((door) => door.listening);
    const closed = doors.map((door) => new Promise((resolve) => door.close(resolve)));
    for (const door of doors) door.closeAllConnections();
    await Promise.all(closed);
    this.#why = undefined;
  }
}

/** Every answer is a few words: what takes longer to ask is no client of ours. */
const LIMITS = { maxHeaderSize: 16_384, headersTimeout: 10_000, requestTimeout: 30_000, keepAliveTimeout: 5_000 };
const MOST_CONNECTIONS = 256;
