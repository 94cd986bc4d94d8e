import type { Clock } from '../../base/clock.ts';
import { Listener } from './listener.ts';
import type { RequestHandler } from './request-handler.ts';

export interface AddressOptions {
  host: string;
  port: number;
  /** A second address for `/sandbox/…`, and {web_url} as an address of its own, where they are wanted. */
  adminPort: number | undefined;
  identityPort: number | undefined;
}

/** Where the sandbox listens: {base_url}, {web_url}, and behind the scenes; one address for all of them, or up to three. */
export class Addresses {
  readonly #platform: Listener;
  readonly #identity: Listener | undefined;
  readonly #admin: Listener | undefined;

  constructor(handler: RequestHandler, { host, port, adminPort, identityPort }: AddressOptions, clock: Clock) {
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

  /** Where `/sandbox/…` always answers. */
  get adminUrl(): string {
    return (this.#admin ?? this.#platform).url;
  }

  /** The platform's sockets: {base_url} and {web_url}. */
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
