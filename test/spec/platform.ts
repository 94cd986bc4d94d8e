import { createHash, randomBytes } from 'node:crypto';
import { expect, vi } from 'vitest';
import { SANDBOX_CREDENTIALS, Sandbox, type SandboxOptions } from '../../src/sandbox/sandbox.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { Receiver } from '../sandbox/receiver.ts';
import { type Reply, Visitor } from '../sandbox/visitor.ts';

export const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;
export const WEBHOOKS = '/v1/client_applications/3/webhooks';
export const REDIRECT = 'http://127.0.0.1:53211/callback';

/** People and machines of the default site. */
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

/** A reference of platform 6.2. */
export const reference = (id: number) => ({ id, href: expect.stringMatching(new RegExp(`^http.*/${id}$`)) });

/** Waits for something that is under way. */
export const until = <Result>(condition: () => Result | Promise<Result>): Promise<Result> =>
  vi.waitFor(condition, { timeout: 20_000, interval: 5 });

/**
 * The service of the spec, met over HTTP and nothing else: its client has no part in these tests. What the spec leaves
 * to people and devices (who may see what, what happens in the site, what time it is) is caused by `/sandbox/…`. The
 * clock stands still but for `advance`.
 */
export class Platform {
  readonly receiver = new Receiver();
  /** Every attempt that was answered, of all deliveries; `nextInMs` until the next one. */
  readonly reports: { delivery: number; answer: number | string; nextInMs: number | undefined }[] = [];
  readonly sandbox: Sandbox;
  /** The technical user. */
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

  /** Somebody without a token. */
  stranger(): Visitor {
    return new Visitor(this.sandbox);
  }

  /** A person, signed in on the identity host by PKCE. */
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

  /** What the browser sends from the sign-in page; the redirect back is not followed. */
  signIn(more: Record<string, string> = {}, who: { email: string; password: string } = ANNA): Promise<Reply> {
    const fields = { ...SIGN_IN, username: who.email, password: who.password, ...more };
    return this.stranger().form('/app/id/sign_in', fields, {});
  }

  /** The code grant, without a secret unless one is given. */
  exchange(fields: Record<string, string>): Promise<Reply> {
    const { client_id, redirect_uri } = SIGN_IN;
    const form = { grant_type: 'authorization_code', client_id, redirect_uri, ...fields };
    return this.stranger().form('/app/id/oauth/token', form, {});
  }

  /** Whether an access token opens the API. */
  async isAlive(token: string): Promise<boolean> {
    const visitor = this.stranger();
    visitor.token = token;
    return (await visitor.get('/v1/client_applications')).status === 200;
  }

  /** Moves the clock on. Tokens end by that, so the technical user signs in again. */
  async advance(ms: number): Promise<void> {
    await this.behind('POST', 'clock', { advanceMs: ms });
    this.gateway.token = (await this.gateway.login()).body.access_token;
  }

  /** Gives permissions behind the scenes, all four to the technical user unless told. */
  grant(on: ObjectRef, options: { user?: number; types?: string[] } = {}): Promise<Reply> {
    return this.behind('POST', 'permissions', { on, ...options });
  }

  take(on: ObjectRef, options: { user?: number; types?: string[]; direct?: boolean } = {}): Promise<Reply> {
    return this.behind('DELETE', 'permissions', { on, ...options });
  }

  /** Something happens in the site. */
  change(name: string, body: object): Promise<Reply> {
    return this.behind('POST', `changes/${name}`, body);
  }

  /** Members of a record that is there, or a new one. */
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

  /** Posts one value of a key, which is what causes the value events. */
  value(id: number, key: string, value: number, more: object = {}): Promise<Reply> {
    return this.gateway.post(id, key, [{ timestamp: '2026-11-21T00:00:00.000Z', value }], more);
  }

  /** Waits until the first delivery's attempt of this number was answered so; then its retry waits on the clock. */
  async tried(attempts: number, answer: number | string): Promise<void> {
    await until(() => {
      const own = this.reports.filter(({ delivery }) => delivery === this.reports[0]?.delivery);
      expect(own).toHaveLength(attempts);
      expect(own.at(-1)?.answer).toBe(answer);
    });
  }

  /** Lets the first delivery fail until no attempt is left; gives the delays between its attempts, in milliseconds. */
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

  /** A call behind the scenes, which has to succeed. */
  async behind(method: string, path: string, body?: object): Promise<Reply> {
    const reply = await this.gateway.call(method, `/sandbox/${path}`, body);
    expect(reply.status, `${method} ${path} ${reply.text}`).toBeLessThan(300);
    return reply;
  }
}

/** A webhook as its owner sees it. */
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

  /** The delivery records, oldest first. */
  // biome-ignore lint/suspicious/noExplicitAny: foreign records, looked into member by member
  async deliveries(query = ''): Promise<any[]> {
    return (await this.#platform.gateway.get(`${this.path}/events?per_page=100&${query}`)).body.events;
  }

  /** The payloads of all deliveries: a record is there as soon as its event happened, so silence can be told as well. */
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

  /** Waits until the first delivery has this status and as many attempts, and gives it. */
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

/** A sign-in request of platform 4.1. */
export const SIGN_IN = {
  response_type: 'code',
  client_id: SANDBOX_CREDENTIALS.clientId as string,
  redirect_uri: REDIRECT,
  state: 'st-4711',
};

/** Platform 5.4: the members that PKCE adds. */
export function challengeOf(verifier: string): { code_challenge: string; code_challenge_method: string } {
  return { code_challenge: createHash('sha256').update(verifier).digest('base64url'), code_challenge_method: 'S256' };
}

/** The address that the browser is sent back to. */
export function redirectOf(reply: Reply): URL {
  expect(reply.status, reply.text).toBe(302);
  return new URL(reply.headers.get('location') ?? '');
}

export function codeOf(reply: Reply): string {
  return redirectOf(reply).searchParams.get('code') ?? '';
}
