import { afterEach } from 'vitest';
import { Redactor } from '../../src/base/redactor.ts';
import type { HttpRequest, PlatformAnswer } from '../../src/platform/http-boundary.ts';
import type { SessionGrant } from '../../src/platform/session/issued-token.ts';
import { Session } from '../../src/platform/session/session.ts';
import type { StoredToken } from '../../src/platform/session/session-file.ts';
import type { SessionSnapshot } from '../../src/platform/session/session-snapshot.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

export type Answer = Pick<PlatformAnswer, 'status' | 'text'> & { headers?: Record<string, string> };

/** Level, members, words. */
export type Line = [string, Record<string, unknown>, string];

export const never = new Promise<never>(() => {});
/** What a platform answers that is away for a moment. */
export const AWAY: Answer = { status: 503, text: '' };
export const REFUSED: Answer = { status: 400, text: '{"error":"invalid_grant"}' };

/** All that a session has done, each kind in its order. */
export class Story {
  requests: unknown[] = [];
  files: StoredToken[][] = [];
  lines: Line[] = [];
  states: SessionSnapshot[] = [];
  renewals: SessionGrant[] = [];
}

/** A session whose platform is a function and whose disk is a list; the clock stands until it is moved, and chance is a number. */
export class SessionWorld {
  readonly clock = new ManualClock();
  lifeS = 1_000;
  chance = 0;
  /** Whether an answer with tokens has a refresh token. */
  givesRefreshToken = true;
  /** What the platform answers to `password`, `refresh_token` or `revoke`; tokens, or that one is revoked, where it says nothing. */
  answer: (what: string, form: Record<string, string>) => Promise<Answer | undefined> = async () => undefined;
  /** What the disk does before it gives or takes a file. */
  disk: () => Promise<void> = async () => {};
  left: StoredToken[] = [];
  readonly ending = new AbortController();
  readonly session: Session;
  #story = new Story();
  #asked: string[] = [];
  #issued = 0;

  constructor() {
    this.clock.random = () => this.chance;
    const line = (level: string) => (fields: Record<string, unknown>, text: string) =>
      void this.#story.lines.push([level, fields, text]);
    this.session = new Session({
      redactor: new Redactor(),
      boundary: { send: (request) => this.#send(request) },
      baseUrl: 'http://platform.test/',
      credentials: () => ({
        client: { clientId: 'id', clientSecret: 'secret', clientAuth: 'body' },
        user: { username: 'user', password: 'pass' },
      }),
      file: {
        read: async () => {
          await this.disk();
          return this.left;
        },
        write: async (tokens: StoredToken[]) => {
          await this.disk();
          this.#story.files.push(tokens);
        },
      } as never,
      clock: this.clock,
      log: { debug: line('debug'), info: line('info'), warn: line('warn'), error: line('error') } as never,
      onRenewal: (grant) => void this.#story.renewals.push(grant),
    });
    this.session.onChange(() => this.#story.states.push(this.session.snapshot()));
  }

  async start(): Promise<this> {
    await this.session.start(this.ending.signal);
    await this.clock.advance(0);
    return this;
  }

  /** What was done since this was asked last. */
  told(): Story {
    const told = this.#story;
    this.#story = new Story();
    return told;
  }

  /** The kinds of the requests that went out since this was asked last. */
  asked(): string[] {
    return this.#asked.splice(0);
  }

  /** A token as the session file has it. */
  stored(number: number, endsInMs: number): StoredToken {
    const expiresWallMs = this.clock.wallMs() + endsInMs;
    return { accessToken: accessToken(number), refreshToken: `r-${number}`, expiresWallMs };
  }

  async end(): Promise<void> {
    this.answer = async () => undefined;
    this.disk = async () => {};
    const ending = this.session.stop();
    await this.clock.advance(10_000);
    await ending;
  }

  async #send({ url, body, headers, method, signal, secrets: _, ...bounds }: HttpRequest): Promise<PlatformAnswer> {
    const form = Object.fromEntries(new URLSearchParams(String(body)));
    const what = form.grant_type ?? url.pathname.split('/').at(-1)!;
    this.#asked.push(what);
    this.#story.requests.push({ [method]: url.href, form, headers, ...bounds });
    signal!.throwIfAborted();
    const aborted = Promise.withResolvers<never>();
    signal!.addEventListener('abort', () => aborted.reject(signal!.reason), { once: true });
    const told = await Promise.race([this.answer(what, form), aborted.promise]);
    const answer = told ?? (what === 'revoke' ? { status: 200, text: '{}' } : this.#tokens());
    return { ...answer, redact: String, header: (name) => answer.headers?.[name] };
  }

  #tokens(): Answer {
    const number = ++this.#issued;
    const refresh = this.givesRefreshToken ? { refresh_token: `r-${number}` } : {};
    const body = { access_token: accessToken(number), ...refresh, expires_in: this.lifeS };
    return { status: 200, text: JSON.stringify(body) };
  }
}

/** Long enough to be shown by its last characters. */
export function accessToken(number: number): string {
  return `access-token-${String(number).padStart(4, '0')}`;
}

const CLIENT = { client_id: 'id', client_secret: 'secret' };

function request(path: string, form: Record<string, string>) {
  return {
    POST: `http://platform.test${path}`,
    form: { ...form, ...CLIENT },
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    deadlineMs: 20_000,
    maxAnswerBytes: 65_536,
  };
}

/** Requests as they stand in a story. */
export const LOGIN = request('/oauth/token', { grant_type: 'password', username: 'user', password: 'pass' });
export const refreshOf = (number: number) =>
  request('/oauth/token', { grant_type: 'refresh_token', refresh_token: `r-${number}` });
export const revocationOf = (number: number) => request('/oauth/revoke', { token: accessToken(number) });

/** A snapshot of a session that has no token, with what is told besides. */
export function withoutToken(besides: Partial<SessionSnapshot>): SessionSnapshot {
  return {
    state: 'renewing',
    usable: false,
    grant: undefined,
    ageMs: undefined,
    expiresInMs: undefined,
    renewsInMs: undefined,
    retryInMs: undefined,
    accessTokenHint: undefined,
    failures: 0,
    lastError: undefined,
    ...besides,
  };
}

/** A snapshot of a session with this token of 1,000 s, so long after it was asked for. */
export function withToken(number: number, ageMs: number, besides: Partial<SessionSnapshot>): SessionSnapshot {
  return withoutToken({
    usable: ageMs < 940_000,
    grant: number === 1 ? 'password' : 'refresh_token',
    ageMs,
    expiresInMs: 1_000_000 - ageMs,
    accessTokenHint: `…${accessToken(number).slice(-4)}`,
    ...besides,
  });
}

/** Makes sessions for the tests of a file; each is ended after its test. */
export function sessionWorlds(): (besides?: Partial<SessionWorld>) => SessionWorld {
  const worlds: SessionWorld[] = [];
  afterEach(async () => {
    for (const world of worlds.splice(0)) await world.end();
  });
  return (besides = {}) => {
    const world = Object.assign(new SessionWorld(), besides);
    worlds.push(world);
    return world;
  };
}
