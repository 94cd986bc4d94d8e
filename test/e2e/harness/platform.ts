/**
 * The platform at the far end of an end-to-end test. Only this file imports the sandbox, so that tests do not depend on
 * its structure. `start` listens on a free port of 127.0.0.1 with a site that has the assets 881 to 893
 * (instrumentations 4711 to 4723, tags FT-101, FT-102, …) and one technical user; request limits are off.
 */
import type { EventType } from '../../../src/contract/events.ts';
import {
  type Caused,
  type EventRequest,
  type Outage,
  Sandbox,
  type SandboxOptions,
} from '../../../src/sandbox/sandbox.ts';

export { SANDBOX_CREDENTIALS as CREDENTIALS } from '../../../src/sandbox/sandbox.ts';

/** Value that the platform accepted. */
export interface Stored {
  timestampMs: number;
  value: number;
  status: string | undefined;
  /** Number of times that this asset, key and timestamp have arrived. */
  times: number;
}

/** Request that the platform received; `status` 0 means that the connection was closed without a response. */
export interface Received {
  at: string;
  method: string;
  path: string;
  status: number;
}

type Fault = Parameters<Sandbox['faults']['add']>[0];
type Poison = Parameters<Sandbox['faults']['poison']>[0];
type Permission = Parameters<Sandbox['grantPermission']>[1];
type Threshold = Parameters<Sandbox['setThreshold']>[0];

export class Platform {
  readonly #sandbox: Sandbox;
  readonly #received: Received[] = [];

  private constructor(sandbox: Sandbox) {
    this.#sandbox = sandbox;
    sandbox.requests.onRequest(({ at, method, path, status }) => this.#received.push({ at, method, path, status }));
  }

  static async start(options: SandboxOptions = {}): Promise<Platform> {
    const sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 }, ...options });
    await sandbox.start();
    return new Platform(sandbox);
  }

  async stop(): Promise<void> {
    await this.#sandbox.stop();
  }

  /** PLATFORM_URL. */
  get url(): string {
    return this.#sandbox.url;
  }

  /** Base URL of the sandbox's control interface. */
  get adminUrl(): string {
    return this.#sandbox.adminUrl;
  }

  /** Accepted values of a key, in order of their timestamps. */
  stored(asset: number, key: string): Stored[] {
    return this.#sandbox.values.list(asset, key);
  }

  /** Number of different accepted values, and of all accepted values including repetitions. */
  counts(asset?: number, key?: string): { stored: number; received: number; posts: number } {
    return this.#sandbox.values.counts(asset, key);
  }

  /** Timestamps that are missing, were never sent, or have another value than the one sent. */
  compare(
    asset: number,
    key: string,
    sent: readonly { timestampMs: number; value: number }[],
  ): { missing: number[]; invented: number[]; different: number[] } {
    return this.#sandbox.values.compare(asset, key, [...sent]);
  }

  /** Calls back for each accepted post with asset and number of values. Returns a function that ends this. */
  onPost(listener: (asset: number, keys: readonly { key: string; points: readonly Stored[] }[]) => void): () => void {
    return this.#sandbox.values.onRecord((asset, posted) => listener(asset, posted as never));
  }

  /** Makes the platform unavailable: a closed port, closed connections, or a status for every request. */
  async fail(how: Outage = 'refuse'): Promise<void> {
    await this.#sandbox.goOffline(how);
  }

  async recover(): Promise<void> {
    await this.#sandbox.goOnline();
  }

  /** Adds a fault to matching requests. Returns its number. */
  addFault(fault: Fault): number {
    return this.#sandbox.faults.add(fault);
  }

  removeFault(id: number): void {
    this.#sandbox.faults.remove(id);
  }

  /** Rejects every post that contains a matching value. */
  poison(poison: Poison): void {
    this.#sandbox.faults.poison(poison);
  }

  clearFaults(): void {
    this.#sandbox.faults.clear();
  }

  /** Requests since the start, oldest first. */
  requests(path = ''): Received[] {
    return this.#received.filter((one) => one.path.startsWith(path));
  }

  tokens(): { issued: number; revoked: number; alive: number } {
    return this.#sandbox.tokens.counts();
  }

  /** Revokes all tokens, as another client with the same credentials could. */
  revokeTokens(): void {
    this.#sandbox.tokens.revokeAll();
  }

  /** Grants permissions on an asset to the technical user; announces objects that become visible. */
  grant(asset: number, options: Permission = {}): void {
    this.#sandbox.grantPermission({ type: 'Asset', id: asset }, options);
  }

  revoke(asset: number, options: Permission = {}): void {
    this.#sandbox.revokePermission({ type: 'Asset', id: asset }, options);
  }

  setThreshold(threshold: Threshold): number {
    return this.#sandbox.setThreshold(threshold);
  }

  /** Causes an event of one of the 23 types. */
  cause(type: EventType, request: EventRequest = {}): Caused {
    return this.#sandbox.cause(type, request);
  }

  /** Sends an event with this content to every webhook that receives its type. */
  announce(type: EventType, content: Record<string, unknown>): void {
    this.#sandbox.announcer.announce({ type, audience: () => true, content: () => content as never });
  }

  webhooks(): readonly { id: number; url: string; secret: string; disabled?: boolean | undefined }[] {
    return this.#sandbox.webhooks() as never;
  }

  deliveries(): readonly { id: number; status: string; eventType: string; payload: string; attempts: number }[] {
    return this.#sandbox.deliveries();
  }

  /** Moves the platform's clock, which schedules deliveries, token expiry and quotas. */
  advance(ms: number): void {
    this.#sandbox.clock.advance(ms);
  }
}
