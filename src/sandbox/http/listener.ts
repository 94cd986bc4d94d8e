import { once } from 'node:events';
import type { RequestListener, Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Clock } from '../../base/clock.ts';
import { codeOf } from '../../base/errors.ts';
import { createServer } from '../../base/node-http.ts';
import { claimPort, type PortClaim } from '../../base/port-claim.ts';
import type { SandboxOptions } from '../sandbox-options.ts';

/**
 * A listening socket that can be closed and reopened on the same port, because "connection refused" is the most common
 * kind of outage. The port stays reserved until the final close. Otherwise, another program on this port could receive
 * requests from the sandbox's clients. `base/inbound` is not used, because it limits connections and completes
 * responses, whereas the sandbox deliberately delays responses and closes connections.
 */
class Listener {
  readonly #handle: RequestListener;
  readonly #host: string;
  readonly #clock: Clock;
  #port: number;
  #claim: PortClaim | undefined;
  #server: Server | undefined;
  #wasOpen = false;

  constructor(handle: RequestListener, host: string, port: number, clock: Clock) {
    this.#handle = handle;
    this.#host = host;
    this.#port = port;
    this.#clock = clock;
  }

  get url(): string {
    const host = this.#host.includes(':') ? `[${this.#host}]` : this.#host;
    return `http://${host}:${this.#port}`;
  }

  async open(): Promise<void> {
    if (this.#server) return;
    if (this.#port === 0) {
      this.#claim = await claimPort();
      this.#port = this.#claim?.port ?? 0;
    }
    for (let attempt = 0; ; attempt++) {
      const server = createServer({ keepAliveTimeout: 65_000, requestTimeout: 60_000 }, this.#handle);
      try {
        server.listen(this.#port, this.#host);
        await once(server, 'listening');
        this.#server = server;
        this.#wasOpen = true;
        this.#port = (server.address() as AddressInfo).port;
        return;
      } catch (error) {
        // Retry, because an outgoing connection may briefly use a port that is not reserved. If the socket was never
        // open, the port is used by another program.
        if (codeOf(error) !== 'EADDRINUSE' || !this.#wasOpen || attempt >= 50) throw error;
        await this.#clock.sleep(100);
      }
    }
  }

  /** Closes all connections and refuses new connections. */
  async close(): Promise<void> {
    const server = this.#server;
    if (!server) return;
    this.#server = undefined;
    const closed = new Promise((resolve) => server.close(resolve));
    server.closeAllConnections();
    await closed;
  }

  /** Closes the socket permanently and releases the port. */
  async end(): Promise<void> {
    await this.close();
    this.#claim?.release();
    this.#claim = undefined;
  }
}

/** Whether a socket serves {base_url}, {web_url}, or both. */
export type Host = 'platform' | 'identity' | 'both';

/** Sockets for {base_url}, {web_url} and `/sandbox/…`: one shared socket, or up to three. */
export class Addresses {
  readonly #platform: Listener;
  readonly #identity: Listener | undefined;
  readonly #admin: Listener | undefined;

  constructor(handler: { at(host: Host): RequestListener }, options: SandboxOptions, clock: Clock) {
    const { host = '127.0.0.1', port = 0, adminPort, identityPort } = options;
    this.#platform = new Listener(handler.at(identityPort === undefined ? 'both' : 'platform'), host, port, clock);
    if (adminPort !== undefined) this.#admin = new Listener(handler.at('both'), host, adminPort, clock);
    if (identityPort !== undefined) {
      this.#identity = new Listener(handler.at('identity'), host, identityPort, clock);
    }
  }

  /** {base_url}. */
  get url(): string {
    return this.#platform.url;
  }

  /** {web_url}. */
  get identityUrl(): string {
    return (this.#identity ?? this.#platform).url;
  }

  /** Base URL of `/sandbox/…`. */
  get adminUrl(): string {
    return (this.#admin ?? this.#platform).url;
  }

  /** Opens the sockets for {base_url} and {web_url}. */
  async open(): Promise<void> {
    await this.#platform.open();
    await this.#identity?.open();
  }

  async close(): Promise<void> {
    await this.#platform.close();
    await this.#identity?.close();
  }

  async openAll(): Promise<void> {
    await this.open();
    await this.#admin?.open();
  }

  async endAll(): Promise<void> {
    for (const listener of [this.#platform, this.#identity, this.#admin]) await listener?.end();
  }
}
