import { createHash } from 'node:crypto';
import { SIGN_IN_PATH } from '../../contract/tokens.ts';
import { type Answer, type Call, pageForm } from '../http/call.ts';
import type { Router } from '../http/router.ts';
import type { Application } from '../site/records.ts';
import type { Stage } from '../stage.ts';
import type { Strictness } from '../strictness.ts';
import { sameText } from '../tokens/client-auth.ts';
import { escaped, html } from './page.ts';

/**
 * Compares the challenge according to RFC 7636 section 4.6 (S256). In addition to base64url without padding, padded
 * base64url and base64 are accepted.
 */
export function matchesChallenge(verifier: string, challenge: string): boolean {
  return sameText(createHash('sha256').update(verifier).digest('base64url'), unpadded(challenge));
}

function unpadded(challenge: string): string {
  return challenge.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}

/** SHA-256 digest in base64url. */
const CHALLENGE = /^[A-Za-z0-9_-]{43}$/;

/** Sign-in page of the identity application (platform 4.1, 5.3, 5.4). */
export function addSignInEndpoints(router: Router, stage: Stage): void {
  const none = { auth: 'none' } as const;
  router.add('GET', SIGN_IN_PATH, (call) => pageAnswer(call.query, stage), none);
  router.add('POST', SIGN_IN_PATH, (call) => signIn(call, stage), none);
}

function pageAnswer(query: URLSearchParams, stage: Stage): Answer {
  const problem = requestProblem(query, stage);
  if (typeof problem === 'string') return html(400, `<p class="bad">${escaped(problem)}</p>`);
  return {
    ...html(200, form(query, problem.application)),
    story: `sign-in page opened for ${problem.application.name}`,
  };
}

function signIn(call: Call, stage: Stage): Answer {
  const fields = pageForm(call);
  const request = requestProblem(fields, stage);
  if (typeof request === 'string') return html(400, `<p class="bad">${escaped(request)}</p>`);
  const redirect = new URL(request.redirectUri);
  const state = fields.get('state');
  if (state !== null) redirect.searchParams.set('state', state);
  if (fields.get('deny') !== null) {
    redirect.searchParams.set('error', 'access_denied');
    return { status: 302, headers: { location: redirect.href }, story: 'sign-in cancelled' };
  }
  const user = stage.site.userByEmail(fields.get('username') ?? '');
  const isRight = user !== undefined && !user.technical && sameText(user.password, fields.get('password') ?? '');
  if (!isRight) {
    const again = html(
      401,
      `<p class="bad">Incorrect e-mail address or password.</p>${form(fields, request.application)}`,
    );
    return { ...again, story: 'sign-in with a wrong password' };
  }
  if (user.confirmed === false) {
    return html(403, '<p class="bad">Confirm your e-mail address first with the link in the message.</p>');
  }
  const code = stage.codes.issue({
    user: user.id,
    application: request.application.id,
    redirectUri: request.redirectUri,
    challenge: fields.get('code_challenge') ?? undefined,
  });
  redirect.searchParams.set('code', code);
  return { status: 302, headers: { location: redirect.href }, story: `${user.name ?? user.email} signed in` };
}

/**
 * Returns the problem with a sign-in request, if any. The response to such a request is never a redirect, because the
 * redirect URI may be invalid.
 */
function requestProblem(
  query: URLSearchParams,
  { site, strict }: Stage,
): string | { application: Application; redirectUri: string } {
  if (query.get('response_type') !== 'code') return 'response_type must be code';
  const key = site.apiKey(query.get('client_id') ?? '');
  const application = key && site.get('client_applications', key.client_application);
  if (!application) return 'client_id is not known';
  if (application.code_flow !== true) return 'this application is not enabled for the authorization code flow';
  const redirectUri = query.get('redirect_uri');
  if (redirectUri === null || !isRegistered(redirectUri, application.redirect_uris ?? [], strict)) {
    return 'redirect_uri is not registered for this application';
  }
  if (strict.has('state') && !query.get('state')) return 'state is missing';
  const method = query.get('code_challenge_method');
  const challenge = query.get('code_challenge');
  if (challenge === null && strict.has('pkce')) return 'code_challenge is missing';
  if (challenge !== null && method !== 'S256') return 'code_challenge_method must be S256';
  if (challenge !== null && !CHALLENGE.test(unpadded(challenge)))
    return 'code_challenge must have 43 characters of base64url';
  return { application, redirectUri };
}

/**
 * Returns whether a redirect URI is registered. A registered loopback address without a port matches any port (RFC 8252
 * section 7.3).
 */
function isRegistered(redirectUri: string, registered: readonly string[], strict: Strictness): boolean {
  if (registered.includes(redirectUri)) return true;
  if (strict.has('redirect')) return false;
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
  return `<p><b>${escaped(application.name)}</b> requests access to your account.</p>
<form method="post" action="${SIGN_IN_PATH}">${hidden.join('')}
<label>E-mail <input name="username" type="email" autofocus></label>
<label>Password <input name="password" type="password"></label>
<button>Sign in</button> <button name="deny" value="1" formnovalidate>Deny</button></form>`;
}
