import { createHash, randomBytes } from 'node:crypto';
import { expect, vi } from 'vitest';
import { SANDBOX_CREDENTIALS, Sandbox, type SandboxOptions } from '../../../src/sandbox/sandbox.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { Receiver } from '../sandbox/receiver.ts';
import { type Reply, Visitor } from '../sandbox/visitor.ts';

export const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;
export const WEBHOOKS = '/v1/client_applications/3/webhooks';
export const REDIRECT = 'http://127.0.0.1:53211/callback';

/** Users of the default site. */
export const GATEWAY = { id: 5, email: SANDBOX_CREDENTIALS.technicalUsername };
export const ANNA = { id: 6, email: SANDBOX_CREDENTIALS.userEmail, password: SANDBOX_CREDENTIALS.userPassword };
export const BEN = { id: 7, email: 'ben@sandbox.example', password: 'ben-password' };

export interface ObjectRef {
  type: string;
  id: number;
}

export const asset = (id: number): ObjectRef => ({ type: 'Asset', id });
export const instrumentation = (id: number): ObjectRef => ({ type: 'Instrumentation', id });
export const node = (id: number): ObjectRef => ({ type: 'Node', id });

export const reference = (id: number) => ({ id, href: expect.stringMatching(new RegExp(`^http.*/${id}$`)) });

export const until = <Result>(condition: () => Result | Promise<Result>): Promise<Result> =>
  vi.waitFor(condition, { timeout: 20_000, interval: 5 });

/**
 * The service of the specification over HTTP, without our client. Permissions, records and the clock are controlled by
 * `/sandbox/…`. Only `advance` moves the clock.
 */
export class Platform {
  readonly receiver = new Receiver();
  /** Responses to all delivery attempts; `nextInMs`: time until the next attempt. */
  readonly reports: { delivery: number; answer: number | string; nextInMs: number | undefined }[] = [];
  readonly sandbox: Sandbox;
  gateway!: Visitor;

  private constructor(options: SandboxOptions) {
    const limits = { perUser: 0, perApiKey: 0, perAddress: 0 };
    this.sandbox = new Sandbox({ clock: new ManualClock(), limits, ...options });
    this.sandbox.onDelivery(({ delivery: { id }, answer, nextInMs }) => {
      this.reports.push({ delivery: id, answer, nextInMs });
    });
  }

  static async start(options: SandboxOptions = {}): Promise<Platform> {
    const platform = new Platform(options);
    await platform.sandbox.start();
    await platform.receiver.start();
    platform.gateway = await Visitor.signedIn(platform.sandbox);
    return platform;
  }

  async stop(): Promise<void> {
    await this.sandbox.stop();
    await this.receiver.stop();
  }

  /** Returns a visitor without a token. */
  stranger(): Visitor {
    return new Visitor(this.sandbox);
  }

  /** Returns a user signed in with PKCE. */
  async person(who: { email: string; password: string }): Promise<Visitor> {
    const visitor = this.stranger();
    visitor.token = (await this.personTokens(who)).body.access_token;
    return visitor;
  }

  async personTokens(who: { email: string; password: string } = ANNA): Promise<Reply> {
    const verifier = randomBytes(48).toString('base64url');
    const code = codeOf(await this.signIn({ ...challengeOf(verifier) }, who));
    return this.exchange({ code, code_verifier: verifier });
  }

  /** Submits the sign-in page. The redirect is not followed. */
  signIn(more: Record<string, string> = {}, who: { email: string; password: string } = ANNA): Promise<Reply> {
    const fields = { ...SIGN_IN, username: who.email, password: who.password, ...more };
    return this.stranger().form('/app/id/sign_in', fields, {});
  }

  /** Sends the code grant, without a secret unless one is given. */
  exchange(fields: Record<string, string>): Promise<Reply> {
    const { client_id, redirect_uri } = SIGN_IN;
    const form = { grant_type: 'authorization_code', client_id, redirect_uri, ...fields };
    return this.stranger().form('/app/id/oauth/token', form, {});
  }

  /** Whether an access token is valid. */
  async isAlive(token: string): Promise<boolean> {
    const visitor = this.stranger();
    visitor.token = token;
    return (await visitor.get('/v1/client_applications')).status === 200;
  }

  /** Advances the clock and signs the technical user in again, because tokens expire. */
  async advance(ms: number): Promise<void> {
    await this.behind('POST', 'clock', { advanceMs: ms });
    this.gateway.token = (await this.gateway.login()).body.access_token;
  }

  /** Grants permissions, by default all four to the technical user. */
  grant(on: ObjectRef, options: { user?: number; types?: string[] } = {}): Promise<Reply> {
    return this.behind('POST', 'permissions', { on, ...options });
  }

  take(on: ObjectRef, options: { user?: number; types?: string[]; direct?: boolean } = {}): Promise<Reply> {
    return this.behind('DELETE', 'permissions', { on, ...options });
  }

  /** Changes or creates a record. */
  async put(kind: string, id: number, body: object): Promise<Reply> {
    const { objects } = (await this.behind('GET', `objects/${kind}`)).body;
    const isThere = objects.some((one: { id: number }) => one.id === id);
    return this.behind(isThere ? 'PATCH' : 'PUT', `objects/${kind}/${id}`, body);
  }

  destroy(kind: string, id: number): Promise<Reply> {
    return this.behind('DELETE', `objects/${kind}/${id}`);
  }

  // biome-ignore lint/suspicious/noExplicitAny: records of every kind, looked into member by member
  async object(kind: string, id: number): Promise<any> {
    const { objects } = (await this.gateway.get(`/sandbox/objects/${kind}`)).body;
    return objects.find((one: { id: number }) => one.id === id);
  }

  /** Posts one value. */
  value(id: number, key: string, value: number, more: object = {}): Promise<Reply> {
    return this.gateway.post(id, key, [{ timestamp: '2026-11-21T00:00:00.000Z', value }], more);
  }

  /** Waits until an attempt of the first delivery has this response. Its retry then waits for the clock. */
  async tried(attempts: number, answer: number | string): Promise<void> {
    await until(() => {
      const own = this.reports.filter(({ delivery }) => delivery === this.reports[0]?.delivery);
      expect(own).toHaveLength(attempts);
      expect(own.at(-1)?.answer).toBe(answer);
    });
  }

  /** Lets all attempts of the first delivery fail. Returns the delays between them, in milliseconds. */
  async exhausted(): Promise<number[]> {
    const delays: number[] = [];
    for (let attempt = 1; ; attempt++) {
      await this.tried(attempt, this.receiver.status);
      const delayMs = this.reports.at(-1)?.nextInMs;
      if (delayMs === undefined) break;
      delays.push(delayMs);
      await this.behind('POST', 'clock', { advanceMs: Math.ceil(delayMs) });
    }
    await this.advance(0);
    return delays;
  }

  /** Registers a webhook of the receiver. */
  async webhook(event_types: readonly string[], properties: object = {}, more: object = {}): Promise<Hook> {
    const body = { url: this.receiver.url, event_types, properties, ...more };
    const created = await this.gateway.call('POST', WEBHOOKS, body);
    expect(created.status, created.text).toBe(201);
    return new Hook(this, created.body.id, created.body.secret);
  }

  /** Sends a request to the admin API, which must succeed. */
  async behind(method: string, path: string, body?: object): Promise<Reply> {
    const reply = await this.gateway.call(method, `/sandbox/${path}`, body);
    expect(reply.status, `${method} ${path} ${reply.text}`).toBeLessThan(300);
    return reply;
  }
}

/** A webhook as seen by its owner. */
export class Hook {
  readonly id: number;
  readonly secret: string;
  readonly path: string;
  readonly #platform: Platform;

  constructor(platform: Platform, id: number, secret: string) {
    this.#platform = platform;
    this.id = id;
    this.secret = secret;
    this.path = `${WEBHOOKS}/${id}`;
  }

  /** Returns the delivery records, oldest first. */
  // biome-ignore lint/suspicious/noExplicitAny: foreign records, looked into member by member
  async deliveries(query = ''): Promise<any[]> {
    return (await this.#platform.gateway.get(`${this.path}/events?per_page=100&${query}`)).body.events;
  }

  /**
   * Returns all delivery payloads. A record exists as soon as its event has occurred, so missing events can be tested.
   */
  // biome-ignore lint/suspicious/noExplicitAny: foreign payloads, looked into member by member
  async told(): Promise<any[]> {
    return (await this.deliveries()).map(({ payload }) => payload);
  }

  async types(): Promise<string[]> {
    return (await this.told()).map(({ event_type }) => event_type);
  }

  patch(body: object): Promise<Reply> {
    return this.#platform.gateway.call('PATCH', this.path, body);
  }

  resend(...ids: number[]): Promise<Reply> {
    const webhook_events = ids.map((id) => ({ id }));
    return this.#platform.gateway.call('POST', `${this.path}/events`, { webhook_events });
  }

  /** Waits until the first delivery has this status and number of attempts. */
  // biome-ignore lint/suspicious/noExplicitAny: a foreign record, looked into member by member
  async first(status: string, attempts?: number): Promise<any> {
    return until(async () => {
      const [delivery] = await this.deliveries();
      expect(delivery?.status).toBe(status);
      if (attempts !== undefined) expect(this.#platform.receiver.received.length).toBe(attempts);
      return delivery;
    });
  }
}

/** Sign-in request of platform 4.1. */
export const SIGN_IN = {
  response_type: 'code',
  client_id: SANDBOX_CREDENTIALS.clientId as string,
  redirect_uri: REDIRECT,
  state: 'st-4711',
};

/** Returns the PKCE members of platform 5.4. */
export function challengeOf(verifier: string): { code_challenge: string; code_challenge_method: string } {
  return { code_challenge: createHash('sha256').update(verifier).digest('base64url'), code_challenge_method: 'S256' };
}

/** Returns the redirect address. */
export function redirectOf(reply: Reply): URL {
  expect(reply.status, reply.text).toBe(302);
  return new URL(reply.headers.get('location') ?? '');
}

export function codeOf(reply: Reply): string {
  return redirectOf(reply).searchParams.get('code') ?? '';
}
