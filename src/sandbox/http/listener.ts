import type { RequestListener, Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Clock } from '../../base/clock.ts';
import { codeOf } from '../../base/errors.ts';
import { createServer } from '../../base/node-http.ts';
import { claimPort, type PortClaim } from '../../base/port-claim.ts';

/**
 * A listening socket that can go away and come back on the same port: "connection refused" is the outage that clients
 * meet most. Each time it opens it is a new server; the port is chosen once, and is claimed until the end: another that
 * got it meanwhile would have this one's callers.
 * Not `base/inbound`, by which all others listen: that keeps connections within bounds and lets answers go out, where this
 * plays a service without such bounds, answers as slowly as a fault says, and breaks every connection on purpose.
 */
export class Listener {
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

  get port(): number {
    return this.#port;
  }

  get url(): string {
    const host = this.#host.includes(':') ? `[${this.#host}]` : this.#host;
    return `http://${host}:${this.#port}`;
  }

  get isOpen(): boolean {
    return this.#server !== undefined;
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
        await listening(server, this.#port, this.#host);
        this.#server = server;
        this.#wasOpen = true;
        this.#port = (server.address() as AddressInfo).port;
        return;
      } catch (error) {
        // Where the port is not claimed, an outgoing connection may have taken it for a moment. At the first time it is somebody else's.
        if (codeOf(error) !== 'EADDRINUSE' || !this.#wasOpen || attempt >= 50) throw error;
        await this.#clock.sleep(100);
      }
    }
  }

  /** Breaks every connection and refuses new ones. */
  async close(): Promise<void> {
    const server = this.#server;
    if (!server) return;
    this.#server = undefined;
    const closed = new Promise((resolve) => server.close(resolve));
    server.closeAllConnections();
    await closed;
  }

  /** It does not come back: the port may be anybody's. */
  async end(): Promise<void> {
    await this.close();
    this.#claim?.release();
    this.#claim = undefined;
  }
}

function listening(server: Server, port: number, host: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => {
      server.off('error', reject);
      resolve();
    });
  });
}
