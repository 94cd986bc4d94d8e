import { IDENTITY_REVOKE_PATH, IDENTITY_TOKEN_PATH, REVOKE_PATH, TOKEN_PATH } from '../../contract/tokens.ts';
import { type Answer, type Call, formBody } from '../http/call.ts';
import { oauthRefusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import { matchesChallenge } from '../identity/sign-in.ts';
import type { Stage } from '../stage.ts';
import { type NamedClient, namedClient, provedClient, sameText } from './client-auth.ts';

const NO_STORE = { 'cache-control': 'no-store', pragma: 'no-cache' };

/** Format of a PKCE code verifier (platform 5.4 and 8). */
const VERIFIER = /^[A-Za-z0-9._~-]{43,128}$/;

type Handler = (call: Call, form: URLSearchParams, stage: Stage) => Answer;

/** Grants on {base_url} and {web_url} (platform 4.1). */
const PLATFORM_GRANTS: Readonly<Record<string, Handler>> = {
  password: passwordGrant,
  refresh_token: (call, form, stage) => refreshGrant(form, provedClient(call, form, stage).id, stage),
};
const IDENTITY_GRANTS: Readonly<Record<string, Handler>> = {
  authorization_code: codeGrant,
  refresh_token: personRefresh,
};

/** Adds the token and revocation endpoints on both hosts (platform 4.1). */
export function addTokenEndpoints(router: Router, stage: Stage): void {
  const add = (path: string, handle: Handler) =>
    router.add('POST', path, (call) => handle(call, formBody(call), stage), { auth: 'none' });
  add(TOKEN_PATH, granted(PLATFORM_GRANTS));
  add(IDENTITY_TOKEN_PATH, granted(IDENTITY_GRANTS));
  add(REVOKE_PATH, revokeByClient);
  add(IDENTITY_REVOKE_PATH, revokeByPerson);
}

function granted(grants: Readonly<Record<string, Handler>>): Handler {
  return (call, form, stage) => {
    const grant = form.get('grant_type');
    if (grant === null) throw oauthRefusal(400, 'invalid_request', 'grant_type is missing');
    const handle = Object.hasOwn(grants, grant) ? grants[grant] : undefined;
    if (!handle) throw oauthRefusal(400, 'unsupported_grant_type', `${grant.slice(0, 60)} is not supported`);
    return handle(call, form, stage);
  };
}

/** Processes a password grant, which is available only to technical users (platform 5.2). */
function passwordGrant(call: Call, form: URLSearchParams, stage: Stage): Answer {
  const application = provedClient(call, form, stage);
  const username = form.get('username');
  const password = form.get('password');
  if (username === null || password === null) {
    throw oauthRefusal(400, 'invalid_request', 'username and password are required');
  }
  const user = stage.site.userByEmail(username);
  if (!user || !sameText(user.password, password)) {
    throw oauthRefusal(400, 'invalid_grant', 'incorrect user name or password');
  }
  if (!user.technical) throw oauthRefusal(400, 'invalid_grant', 'only technical users can use the password grant');
  if (stage.strict.has('client-user') && application.technical_user !== user.id) {
    throw oauthRefusal(400, 'invalid_grant', 'the technical user and the API key belong to different subscriptions');
  }
  return {
    status: 200,
    body: stage.tokens.issue(user.id, application.id, 'password', true),
    headers: NO_STORE,
    story: `${user.name ?? user.email} signed in with its password`,
  };
}

function refreshGrant(form: URLSearchParams, application: number, { tokens }: Stage): Answer {
  const refreshToken = form.get('refresh_token');
  if (refreshToken === null) throw oauthRefusal(400, 'invalid_request', 'refresh_token is missing');
  const body = tokens.refresh(refreshToken, application);
  if (!body) throw oauthRefusal(400, 'invalid_grant', 'the refresh token is unknown, used, revoked or expired');
  return { status: 200, body, headers: NO_STORE, story: 'token renewed' };
}

/**
 * Processes a refresh of a person's token. Platform 4.1: "client_secret for the web flow only". A public client has no
 * secret; its refresh token is bound to the client ID.
 */
function personRefresh(call: Call, form: URLSearchParams, stage: Stage): Answer {
  const client = knownClient(call, form, stage);
  if (!client.proved && stage.tokens.needsSecret(form.get('refresh_token') ?? '')) {
    throw oauthRefusal(401, 'invalid_client', 'client_secret is missing: the token was issued with it');
  }
  return refreshGrant(form, client.application.id, stage);
}

function knownClient(call: Call, form: URLSearchParams, stage: Stage): NamedClient {
  const client = namedClient(call, form, stage);
  if (!client) throw oauthRefusal(401, 'invalid_client', 'client_id is missing');
  return client;
}

/** Every attempt consumes the code, even if the client is missing or its secret is missing or invalid. */
function codeGrant(call: Call, form: URLSearchParams, stage: Stage): Answer {
  const { codes, tokens } = stage;
  const code = form.get('code');
  if (code === null) throw oauthRefusal(400, 'invalid_request', 'code is missing');
  const verifier = form.get('code_verifier');
  if (verifier !== null && !VERIFIER.test(verifier)) {
    throw oauthRefusal(400, 'invalid_request', 'code_verifier must have 43 to 128 characters of A-Z, a-z, 0-9, -._~');
  }
  const replayed = codes.replayed(code);
  const given = codes.redeem(code);
  const client = knownClient(call, form, stage);
  if (replayed?.family !== undefined && replayed.application === client.application.id) {
    tokens.revokeFamily(replayed.family);
  }
  if (!given || given.application !== client.application.id) {
    throw oauthRefusal(400, 'invalid_grant', 'the code is unknown, used or expired');
  }
  if (given.redirectUri !== form.get('redirect_uri')) {
    throw oauthRefusal(400, 'invalid_grant', 'redirect_uri differs from the one at sign-in');
  }
  if (given.challenge === undefined) {
    if (verifier !== null) throw oauthRefusal(400, 'invalid_grant', 'the sign-in had no code_challenge');
    if (!client.proved) throw oauthRefusal(401, 'invalid_client', 'client_secret is missing');
  } else if (verifier === null || !matchesChallenge(verifier, given.challenge)) {
    throw oauthRefusal(400, 'invalid_grant', 'code_verifier does not match code_challenge');
  }
  const body = tokens.issue(given.user, given.application, 'authorization_code', given.challenge === undefined);
  codes.exchanged(given, tokens.familyOf(body.access_token));
  return { status: 200, body, headers: NO_STORE, story: 'code exchanged for tokens' };
}

/** Processes a revocation with client credentials or `Authorization: Bearer` (platform 4.1). */
function revokeByClient(call: Call, form: URLSearchParams, stage: Stage): Answer {
  const client = namedClient(call, form, stage);
  if (client?.proved) return revoked(form, client.application.id, stage);
  if (call.bearer === undefined) throw oauthRefusal(401, 'invalid_client', 'client credentials are missing');
  return revoked(form, bearerApplication(call, stage), stage);
}

/** Platform 4.1: `Authorization: Bearer`; with PKCE also `client_id`, which must match the token. */
function revokeByPerson(call: Call, form: URLSearchParams, stage: Stage): Answer {
  const application = bearerApplication(call, stage);
  const clientId = form.get('client_id');
  if (clientId !== null && stage.site.apiKey(clientId)?.client_application !== application) {
    throw oauthRefusal(403, 'unauthorized_client', 'the token belongs to another client');
  }
  return revoked(form, application, stage);
}

function bearerApplication(call: Call, { tokens }: Stage): number {
  const owner = call.bearer === undefined ? 'unknown' : tokens.check(call.bearer);
  if (typeof owner === 'object') return owner.application;
  throw oauthRefusal(401, 'invalid_token', 'the Authorization header has no valid access token');
}

/** The specification does not show the response. RFC 7009 section 2.2 requires 200 for an invalid token. */
function revoked(form: URLSearchParams, application: number, { tokens }: Stage): Answer {
  const token = form.get('token');
  if (token === null) throw oauthRefusal(400, 'invalid_request', 'token is missing');
  const outcome = tokens.revoke(token, application);
  if (outcome === 'foreign') throw oauthRefusal(403, 'unauthorized_client', 'the token belongs to another client');
  const story = outcome === 'revoked' ? 'token revoked' : 'token was already invalid, nothing revoked';
  return { status: 200, body: {}, headers: NO_STORE, story };
}
