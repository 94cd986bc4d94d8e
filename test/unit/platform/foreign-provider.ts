import { generateKeyPairSync } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { errors, Provider } from 'oidc-provider';
import { vi } from 'vitest';
import { IDENTITY_REVOKE_PATH, IDENTITY_TOKEN_PATH, SIGN_IN_PATH } from '../../../src/contract/tokens.ts';
import { basicCredentials, formEncode } from '../../../src/platform/grants.ts';

/** Redirect address of a native client, which may use any port (RFC 8252 section 7.3). */
export const NATIVE_REDIRECT = 'http://127.0.0.1:41234/callback';
export const WEB_REDIRECT = 'https://app.example.com/callback';

/** Keys and secrets with characters that form encoding changes, which RFC 6749 appendix A allows. */
export const PERSON_KEY = 'public-key';
export const WEB_CLIENT = { clientId: 'web:key', clientSecret: 'web secret+%41&=:/?' };
export const MACHINE_CLIENT = { clientId: 'machine:key+1', clientSecret: 'p%C3%BC s+e:c=r&t~' };
export const TECHNICAL_USER = { username: 'gateway@example.com', password: 'p&ss=wörd +%' };

/** Offline access requires the user's consent (OpenID Connect Core section 11). */
const DEFAULT_SCOPE = 'scope=openid%20offline_access&prompt=consent';

export interface ForeignProviderOptions {
  /** Whether a refresh returns another refresh token. Default: true. */
  rotate?: boolean;
  /** Whether the bearer form of revocation is supported. Default: true. */
  bearerForm?: boolean;
}

/**
 * `oidc-provider`, an independent authorization server, at the platform's paths. The library implements sign-in pages,
 * codes, PKCE, client authentication, rotation, reuse detection, revocation and all errors. This class adds:
 * - the default scope `openid offline_access`, because the client sends no scope (RFC 6749 section 3.3);
 * - the password grant, as a custom grant;
 * - the bearer form of revocation (platform 4.1), which is not part of RFC 7009: the header is replaced by the authentication
 *   of the client that owns the token;
 * - one API call, `/app/id/v1/assets`, which returns whether an access token is valid.
 */
export class ForeignProvider {
  readonly #options: ForeignProviderOptions;
  #server: Server | undefined;
  #provider!: Provider;
  url = '';
  /** Responses in order, such as `token 200` and `revoke 400`. */
  readonly answered: string[] = [];

  constructor(options: ForeignProviderOptions = {}) {
    this.#options = options;
  }

  /** {base_url} under which the technical user's grants have the same endpoints. */
  get baseUrl(): string {
    return `${this.url}/app/id`;
  }

  async start(): Promise<void> {
    const server = createServer((request, response) => void this.#answer(request, response));
    this.#server = server;
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    // The library warns that its sign-in pages are for development only.
    const warn = vi.spyOn(console, 'warn').mockImplementation(() => {});
    this.#provider = new Provider(this.url, configuration(this.#options.rotate ?? true));
    this.#registerPasswordGrant();
    this.#handle = this.#provider.callback();
    warn.mockRestore();
  }

  async stop(): Promise<void> {
    this.#server?.closeAllConnections();
    await new Promise((resolve) => this.#server?.close(resolve));
  }

  #handle: (request: IncomingMessage, response: ServerResponse) => Promise<void> = async () => {};

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { url = '', headers } = request;
    const bearer = /^Bearer (\S+)$/.exec(headers.authorization ?? '')?.[1];
    if (url === '/app/id/v1/assets') {
      const token = bearer === undefined ? undefined : await this.#provider.AccessToken.find(bearer);
      const status = token?.isValid ? 200 : 401;
      response.writeHead(status, { 'content-type': 'application/json' }).end('{}');
      return;
    }
    if (url.startsWith(`${SIGN_IN_PATH}?`)) request.url = `${url}&${DEFAULT_SCOPE}`;
    if (url === IDENTITY_REVOKE_PATH) {
      response.once('finish', () => this.answered.push(`revoke ${response.statusCode}`));
      if (bearer !== undefined && this.#options.bearerForm !== false) await this.#authenticateOwner(headers, bearer);
    }
    if (url === IDENTITY_TOKEN_PATH) response.once('finish', () => this.answered.push(`token ${response.statusCode}`));
    await this.#handle(request, response);
  }

  /** Authenticates a client with a secret by the token. A public client sends its id in the form. */
  async #authenticateOwner(headers: IncomingMessage['headers'], bearer: string): Promise<void> {
    const token = await this.#provider.AccessToken.find(bearer);
    const client = token && (await this.#provider.Client.find(token.clientId));
    if (client?.clientSecret)
      headers.authorization = basicCredentials(formEncode(client.clientId), formEncode(client.clientSecret));
    else delete headers.authorization;
  }

  #registerPasswordGrant(): void {
    const { AccessToken, Grant, RefreshToken } = this.#provider;
    const handler: Parameters<Provider['registerGrantType']>[1] = async (ctx) => {
      const { client, params } = ctx.oidc;
      const { username, password } = TECHNICAL_USER;
      if (params.username !== username || params.password !== password) throw new errors.InvalidGrant('wrong password');
      const accountId = username;
      const grantId = await new Grant({ clientId: client.clientId, accountId }).save();
      const access = new AccessToken({ accountId, client, grantId, gty: 'password' });
      const refresh = new RefreshToken({ accountId, client, grantId, gty: 'password', rotations: 0 });
      ctx.body = {
        access_token: await access.save(),
        token_type: access.tokenType,
        expires_in: access.expiration,
        refresh_token: await refresh.save(),
      };
    };
    this.#provider.registerGrantType('password', handler, ['username', 'password']);
  }
}

const isOwner = (_ctx: unknown, client: { clientId: string }, token: { clientId: string }) =>
  token.clientId === client.clientId;

function configuration(rotate: boolean): Record<string, unknown> {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const codes = { grant_types: ['authorization_code', 'refresh_token'], response_types: ['code'] };
  return {
    clients: [
      {
        ...codes,
        client_id: PERSON_KEY,
        token_endpoint_auth_method: 'none',
        application_type: 'native',
        redirect_uris: ['http://127.0.0.1/callback'],
      },
      {
        ...codes,
        client_id: WEB_CLIENT.clientId,
        client_secret: WEB_CLIENT.clientSecret,
        token_endpoint_auth_method: 'client_secret_post',
        redirect_uris: [WEB_REDIRECT],
      },
      {
        client_id: MACHINE_CLIENT.clientId,
        client_secret: MACHINE_CLIENT.clientSecret,
        token_endpoint_auth_method: 'client_secret_basic',
        grant_types: ['password', 'refresh_token'],
        response_types: [],
        redirect_uris: [],
      },
    ],
    clientDefaults: { id_token_signed_response_alg: 'ES256' },
    jwks: { keys: [{ ...privateKey.export({ format: 'jwk' }), use: 'sig', alg: 'ES256' }] },
    cookies: { keys: ['not a secret'] },
    routes: { authorization: SIGN_IN_PATH, token: IDENTITY_TOKEN_PATH, revocation: IDENTITY_REVOKE_PATH },
    features: { devInteractions: { enabled: true }, revocation: { enabled: true, allowedPolicy: isOwner } },
    findAccount: (_ctx: unknown, accountId: string) => ({ accountId, claims: async () => ({ sub: accountId }) }),
    rotateRefreshToken: rotate,
    revokeGrantPolicy: () => true,
    ttl: {
      AccessToken: 660,
      AuthorizationCode: 60,
      Grant: 86_400,
      IdToken: 660,
      Interaction: 600,
      RefreshToken: 86_400,
      Session: 600,
    },
  };
}

/** Follows redirects with cookies, signs in and consents like a browser, until a redirect to another origin. */
export async function signInByBrowser(address: URL, says: 'yes' | 'no' = 'yes'): Promise<URL> {
  const cookies = new Map<string, string>();
  let next: { url: URL; body?: URLSearchParams } = { url: address };
  for (let steps = 0; steps < 20; steps++) {
    const { url, body } = next;
    if (url.origin !== address.origin) return url;
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join('; ');
    const answer = await fetch(url, {
      method: body ? 'POST' : 'GET',
      body: body ?? null,
      headers: { cookie, accept: 'text/html' },
      redirect: 'manual',
    });
    for (const line of answer.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(line)!;
      cookies.set(name!, value!);
    }
    const location = answer.headers.get('location');
    const page = await answer.text();
    if (location !== null) next = { url: new URL(location, url) };
    else if (answer.status !== 200) throw new Error(`the sign-in page responded ${answer.status}: ${page}`);
    else next = says === 'no' ? { url: new URL(`${url}/abort`) } : submitted(page, url);
  }
  throw new Error('the sign-in does not end');
}

/** Returns the completed form of a page. */
function submitted(page: string, url: URL): { url: URL; body: URLSearchParams } {
  const action = /<form [^>]*action="([^"]+)"/.exec(page)?.[1];
  const prompt = /name="prompt" value="(\w+)"/.exec(page)?.[1];
  if (!action || !prompt) throw new Error(`no form on the page: ${page}`);
  const body = new URLSearchParams({ prompt });
  if (prompt === 'login') {
    body.set('login', 'person@example.com');
    body.set('password', 'any');
  }
  return { url: new URL(action, url), body };
}
