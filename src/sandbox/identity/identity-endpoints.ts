import { IDENTITY_REVOKE_PATH, IDENTITY_TOKEN_PATH } from '../../contract/tokens.ts';
import { type Answer, type Call, formBody } from '../http/call.ts';
import { oauthRefusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { Clients, NamedClient } from '../tokens/client-auth.ts';
import { refreshGrant, revokeByBearer } from '../tokens/token-endpoints.ts';
import type { TokenStore } from '../tokens/token-store.ts';
import type { CodeRegistry } from './code-registry.ts';
import { matchesChallenge } from './sign-in.ts';

/** Platform 5.4 and 8. */
const VERIFIER = /^[A-Za-z0-9._~-]{43,128}$/;

/** The token endpoints on {web_url} (platform 4.1): code and refresh for people, revocation by the token itself. */
export function addIdentityEndpoints(
  router: Router,
  site: SiteModel,
  clients: Clients,
  tokens: TokenStore,
  codes: CodeRegistry,
): void {
  const none = { auth: 'none' } as const;
  router.add('POST', IDENTITY_TOKEN_PATH, (call) => tokenAnswer(call, clients, tokens, codes), none);
  router.add('POST', IDENTITY_REVOKE_PATH, (call) => revokeAnswer(call, site, tokens), none);
}

function tokenAnswer(call: Call, clients: Clients, tokens: TokenStore, codes: CodeRegistry): Answer {
  const form = formBody(call);
  const grant = form.get('grant_type');
  if (grant === null) throw oauthRefusal(400, 'invalid_request', 'grant_type is missing');
  if (grant === 'authorization_code') return codeGrant(call, form, clients, tokens, codes);
  const client = knownClient(call, form, clients);
  if (grant === 'refresh_token') {
    // Platform 4.1: "client_secret for the web flow only". A public client has none; its refresh token is bound to its id.
    if (!client.proved && tokens.needsSecret(form.get('refresh_token') ?? '')) {
      throw oauthRefusal(401, 'invalid_client', 'client_secret is missing: this token came with it');
    }
    return refreshGrant(form, client.application.id, tokens);
  }
  throw oauthRefusal(400, 'unsupported_grant_type', `${grant.slice(0, 60)} is not offered here`);
}

function knownClient(call: Call, form: URLSearchParams, clients: Clients): NamedClient {
  const client = clients.named(call, form);
  if (!client) throw oauthRefusal(401, 'invalid_client', 'client_id is missing');
  return client;
}

/** A code is burnt by whoever brings it: also without client, without secret, and with a wrong one. */
function codeGrant(
  call: Call,
  form: URLSearchParams,
  clients: Clients,
  tokens: TokenStore,
  codes: CodeRegistry,
): Answer {
  const code = form.get('code');
  if (code === null) throw oauthRefusal(400, 'invalid_request', 'code is missing');
  const verifier = form.get('code_verifier');
  if (verifier !== null && !VERIFIER.test(verifier)) {
    throw oauthRefusal(400, 'invalid_request', 'code_verifier has 43 to 128 characters of A-Z, a-z, 0-9, -._~');
  }
  const replayed = codes.replayed(code);
  const given = codes.take(code);
  const client = knownClient(call, form, clients);
  if (replayed?.family !== undefined && replayed.application === client.application.id) {
    tokens.revokeFamily(replayed.family);
  }
  if (!given || given.application !== client.application.id) {
    throw oauthRefusal(400, 'invalid_grant', 'the code is unknown, used or old');
  }
  if (given.redirectUri !== form.get('redirect_uri')) {
    throw oauthRefusal(400, 'invalid_grant', 'redirect_uri differs from the one at sign-in');
  }
  if (given.challenge === undefined) {
    if (verifier !== null) throw oauthRefusal(400, 'invalid_grant', 'no code_challenge came at sign-in');
    if (!client.proved) throw oauthRefusal(401, 'invalid_client', 'client_secret is missing');
  } else if (verifier === null || !matchesChallenge(verifier, given.challenge)) {
    throw oauthRefusal(400, 'invalid_grant', 'code_verifier does not match code_challenge');
  }
  const body = tokens.issue(given.user, given.application, 'authorization_code', given.challenge === undefined);
  const family = tokens.familyOf(body.access_token);
  if (family !== undefined) given.family = family;
  return {
    status: 200,
    body,
    headers: { 'cache-control': 'no-store', pragma: 'no-cache' },
    story: 'a code is exchanged for tokens',
  };
}

/** Platform 4.1: `Authorization: Bearer`, with PKCE also `client_id`, which must then be the token's. */
function revokeAnswer(call: Call, site: SiteModel, tokens: TokenStore): Answer {
  const form = formBody(call);
  const owner = call.bearer === undefined ? undefined : tokens.check(call.bearer);
  const clientId = form.get('client_id');
  if (clientId !== null && typeof owner === 'object') {
    if (site.apiKey(clientId)?.client_application !== owner.application) {
      throw oauthRefusal(403, 'unauthorized_client', 'the token belongs to another client');
    }
  }
  return revokeByBearer(call, form, tokens);
}
