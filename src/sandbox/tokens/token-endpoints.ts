import { REVOKE_PATH, TOKEN_PATH } from '../../contract/tokens.ts';
import { type Answer, type Call, formBody } from '../http/call.ts';
import { oauthRefusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import type { Application } from '../site/records.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { Strictness } from '../strictness.ts';
import { type Clients, sameText } from './client-auth.ts';
import type { TokenStore } from './token-store.ts';

const NO_STORE = { 'cache-control': 'no-store', pragma: 'no-cache' };

/** The token endpoints on {base_url} (platform 4.1): password and refresh grants, revocation. */
export function addTokenEndpoints(
  router: Router,
  site: SiteModel,
  clients: Clients,
  tokens: TokenStore,
  strict: Strictness,
): void {
  router.add('POST', TOKEN_PATH, (call) => tokenAnswer(call, site, clients, tokens, strict), { auth: 'none' });
  router.add('POST', REVOKE_PATH, (call) => revokeAnswer(call, clients, tokens), { auth: 'none' });
}

function tokenAnswer(call: Call, site: SiteModel, clients: Clients, tokens: TokenStore, strict: Strictness): Answer {
  const form = formBody(call);
  const grant = form.get('grant_type');
  if (grant === null) throw oauthRefusal(400, 'invalid_request', 'grant_type is missing');
  if (grant === 'password') return passwordGrant(form, clients.proved(call, form), site, tokens, strict);
  if (grant === 'refresh_token') return refreshGrant(form, clients.proved(call, form).id, tokens);
  throw oauthRefusal(400, 'unsupported_grant_type', `${grant.slice(0, 60)} is not offered here`);
}

/** Platform 5.2: for devices and machines; a person signs in on the identity host. */
function passwordGrant(
  form: URLSearchParams,
  application: Application,
  site: SiteModel,
  tokens: TokenStore,
  strict: Strictness,
): Answer {
  const username = form.get('username');
  const password = form.get('password');
  if (username === null || password === null) {
    throw oauthRefusal(400, 'invalid_request', 'username and password are needed');
  }
  const user = site.userByEmail(username);
  if (!user || !sameText(user.password, password)) {
    throw oauthRefusal(400, 'invalid_grant', 'user name or password is wrong');
  }
  if (!user.technical) throw oauthRefusal(400, 'invalid_grant', 'the password grant is for technical users only');
  if (strict.has('client-user') && application.technical_user !== user.id) {
    throw oauthRefusal(400, 'invalid_grant', 'the technical user is of another subscription than the key');
  }
  return {
    status: 200,
    body: tokens.issue(user.id, application.id, 'password', true),
    headers: NO_STORE,
    story: `${user.name ?? user.email} signs in with its password`,
  };
}

/** The refresh grant, the same on both hosts. */
export function refreshGrant(form: URLSearchParams, application: number, tokens: TokenStore): Answer {
  const refreshToken = form.get('refresh_token');
  if (refreshToken === null) throw oauthRefusal(400, 'invalid_request', 'refresh_token is missing');
  const body = tokens.refresh(refreshToken, application);
  if (!body) throw oauthRefusal(400, 'invalid_grant', 'the refresh token is unknown, used, ended or expired');
  return { status: 200, body, headers: NO_STORE, story: 'a token is renewed' };
}

/** Response of revoke: not shown; RFC 7009 section 2.2 answers 200 to whatever is no longer a token. */
function revokeAnswer(call: Call, clients: Clients, tokens: TokenStore): Answer {
  const form = formBody(call);
  const client = clients.named(call, form);
  if (client?.proved) return revoked(form, client.application.id, tokens);
  // "client credentials as above or Authorization header" (platform 4.1).
  if (call.bearer === undefined) throw oauthRefusal(401, 'invalid_client', 'client credentials are missing');
  return revokeByBearer(call, form, tokens);
}

/** Revocation with `Authorization: Bearer`: the token that speaks must itself be alive. */
export function revokeByBearer(call: Call, form: URLSearchParams, tokens: TokenStore): Answer {
  const owner = call.bearer === undefined ? 'unknown' : tokens.check(call.bearer);
  if (typeof owner === 'string') {
    throw oauthRefusal(401, 'invalid_token', 'the Authorization header holds no valid access token');
  }
  return revoked(form, owner.application, tokens);
}

function revoked(form: URLSearchParams, application: number, tokens: TokenStore): Answer {
  const token = form.get('token');
  if (token === null) throw oauthRefusal(400, 'invalid_request', 'token is missing');
  const outcome = tokens.revoke(token, application);
  if (outcome === 'foreign') throw oauthRefusal(403, 'unauthorized_client', 'the token belongs to another client');
  const story = outcome === 'revoked' ? 'a token is revoked' : 'a token that was dead already is revoked: no effect';
  return { status: 200, body: {}, headers: NO_STORE, story };
}
