import { createHash, randomBytes } from 'node:crypto';
import { SIGN_IN_PATH } from '../../contract/tokens.ts';
import type { Answer, Call } from '../http/call.ts';
import type { Router } from '../http/router.ts';
import type { Plant } from '../plant/plant.ts';
import type { Application } from '../plant/records.ts';
import type { SandboxClock } from '../sandbox-clock.ts';
import { sameText } from './client-auth.ts';

export interface CodeGrant {
  user: number;
  application: number;
  redirectUri: string;
  challenge: string | undefined;
  expiresMs: number;
  used: boolean;
  /** The tokens that it was exchanged for. */
  family?: number;
}

/** RFC 6749 section 4.1.2: ten minutes at most. */
const CODE_LIFE_MS = 10 * 60_000;

/** Authorization codes that were given out and not yet exchanged; a used one is remembered until it would have expired. */
export class CodeBook {
  readonly #clock: SandboxClock;
  readonly #codes = new Map<string, CodeGrant>();

  constructor(clock: SandboxClock) {
    this.#clock = clock;
  }

  give(grant: Omit<CodeGrant, 'expiresMs' | 'used'>): string {
    const nowMs = this.#clock.wallMs();
    for (const [code, { expiresMs }] of this.#codes) if (expiresMs <= nowMs) this.#codes.delete(code);
    const code = randomBytes(24).toString('base64url');
    this.#codes.set(code, { ...grant, expiresMs: nowMs + CODE_LIFE_MS, used: false });
    return code;
  }

  /** Takes a code, once; `undefined` where it is unknown, used or old. */
  take(code: string): CodeGrant | undefined {
    const grant = this.#codes.get(code);
    if (!grant || grant.used || grant.expiresMs <= this.#clock.wallMs()) return undefined;
    grant.used = true;
    return grant;
  }

  /** A used code that comes again: RFC 6749 section 4.1.2 wants its tokens to end. */
  replayed(code: string): CodeGrant | undefined {
    const grant = this.#codes.get(code);
    return grant?.used === true ? grant : undefined;
  }

  /** For the state file. */
  snapshot(): [code: string, grant: CodeGrant][] {
    return [...this.#codes];
  }

  restore(codes: ReturnType<CodeBook['snapshot']>): void {
    for (const [code, grant] of codes) this.#codes.set(code, grant);
  }
}

/** RFC 7636 section 4.6, S256: base64url without padding; the padded and the plain base64 forms are taken too. */
export function matchesChallenge(verifier: string, challenge: string): boolean {
  return sameText(createHash('sha256').update(verifier).digest('base64url'), unpadded(challenge));
}

function unpadded(challenge: string): string {
  return challenge.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}

/** What the base64url of a SHA-256 looks like. */
const CHALLENGE = /^[A-Za-z0-9_-]{43}$/;

/** The sign-in page of the identity application (spec 4.1, 5.3, 5.4). */
export function addSignInEndpoints(router: Router, plant: Plant, codes: CodeBook): void {
  const none = { auth: 'none' } as const;
  router.add('GET', SIGN_IN_PATH, (call) => pageAnswer(call.query, plant), none);
  router.add('POST', SIGN_IN_PATH, (call) => signIn(call, plant, codes), none);
}

function pageAnswer(query: URLSearchParams, plant: Plant): Answer {
  const problem = requestProblem(query, plant);
  if (typeof problem === 'string') return html(400, `<p class="bad">${escaped(problem)}</p>`);
  return {
    ...html(200, form(query, problem.application)),
    story: `${problem.application.name} sends somebody to sign in`,
  };
}

function signIn(call: Call, plant: Plant, codes: CodeBook): Answer {
  const fields = new URLSearchParams(call.raw.toString('utf8'));
  const request = requestProblem(fields, plant);
  if (typeof request === 'string') return html(400, `<p class="bad">${escaped(request)}</p>`);
  const redirect = new URL(request.redirectUri);
  const state = fields.get('state');
  if (state !== null) redirect.searchParams.set('state', state);
  if (fields.get('deny') !== null) {
    redirect.searchParams.set('error', 'access_denied');
    return { status: 302, headers: { location: redirect.href }, story: 'a person says no' };
  }
  const user = plant.userByEmail(fields.get('username') ?? '');
  const isRight = user !== undefined && !user.technical && sameText(user.password, fields.get('password') ?? '');
  if (!isRight) {
    const again = html(401, `<p class="bad">E-mail or password is wrong.</p>${form(fields, request.application)}`);
    return { ...again, story: 'somebody signs in with a wrong password' };
  }
  const code = codes.give({
    user: user.id,
    application: request.application.id,
    redirectUri: request.redirectUri,
    challenge: fields.get('code_challenge') ?? undefined,
  });
  redirect.searchParams.set('code', code);
  return { status: 302, headers: { location: redirect.href }, story: `${user.name ?? user.email} signs in` };
}

/** What is wrong with the request in itself; it is never redirected, for the address itself may be what is wrong. */
function requestProblem(
  query: URLSearchParams,
  plant: Plant,
): string | { application: Application; redirectUri: string } {
  if (query.get('response_type') !== 'code') return 'response_type must be code';
  const key = plant.apiKey(query.get('client_id') ?? '');
  const application = key && plant.get('client_applications', key.client_application);
  if (!application) return 'client_id is not known';
  if (application.code_flow !== true) return 'this application is not enabled for the authorization code flow';
  const redirectUri = query.get('redirect_uri');
  if (redirectUri === null || !isRegistered(redirectUri, application.redirect_uris ?? [])) {
    return 'redirect_uri is not registered for this application';
  }
  const method = query.get('code_challenge_method');
  const challenge = query.get('code_challenge');
  if (challenge !== null && method !== 'S256') return 'code_challenge_method must be S256';
  if (challenge !== null && !CHALLENGE.test(unpadded(challenge)))
    return 'code_challenge has 43 characters of base64url';
  return { application, redirectUri };
}

/** Equal to a registered one; on loopback one without a port stands for every port (RFC 8252 section 7.3). */
function isRegistered(redirectUri: string, registered: readonly string[]): boolean {
  if (registered.includes(redirectUri)) return true;
  if (!URL.canParse(redirectUri)) return false;
  const url = new URL(redirectUri);
  if (!['127.0.0.1', 'localhost', '[::1]'].includes(url.hostname) || url.protocol !== 'http:') return false;
  url.port = '';
  return registered.includes(url.href);
}

const CARRIED = ['response_type', 'client_id', 'redirect_uri', 'state', 'code_challenge', 'code_challenge_method'];

function form(query: URLSearchParams, application: Application): string {
  const hidden = CARRIED.flatMap((name) => {
    const value = query.get(name);
    return value === null ? [] : [`<input type="hidden" name="${name}" value="${escaped(value)}">`];
  });
  return `<p><b>${escaped(application.name)}</b> asks to act for you.</p>
<form method="post" action="${SIGN_IN_PATH}">${hidden.join('')}
<label>E-mail <input name="username" type="email" autofocus></label>
<label>Password <input name="password" type="password"></label>
<button>Sign in</button> <button name="deny" value="1" formnovalidate>Deny</button></form>`;
}

function html(status: number, content: string): Answer {
  const text = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Sign in · sandbox</title>
<style>body{font:16px sans-serif;max-width:24rem;margin:4rem auto}label{display:block;margin:.7rem 0}.bad{color:#b00}</style>
<h1>Sandbox</h1>${content}</html>`;
  return {
    status,
    text,
    headers: {
      'content-type': 'text/html; charset=utf-8',
      'cache-control': 'no-store',
      'content-security-policy': "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    },
  };
}

function escaped(text: string): string {
  const names: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
  return text.replaceAll(/[&<>"']/g, (character) => names[character]!);
}
