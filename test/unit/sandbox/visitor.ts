import { SANDBOX_CREDENTIALS, type Sandbox } from '../../../src/sandbox/sandbox.ts';

export interface Reply {
  status: number;
  headers: Headers;
  text: string;
  // biome-ignore lint/suspicious/noExplicitAny: a foreign answer, looked into member by member
  body: any;
}

/** Client with plain `fetch`, independent of the agent's client. */
export class Visitor {
  readonly url: string;
  token = '';

  constructor(sandbox: Sandbox) {
    this.url = sandbox.url;
  }

  static async signedIn(sandbox: Sandbox): Promise<Visitor> {
    const visitor = new Visitor(sandbox);
    visitor.token = (await visitor.login()).body.access_token;
    return visitor;
  }

  /** Returns a visitor with a user token. */
  static asPerson(sandbox: Sandbox, email: string = SANDBOX_CREDENTIALS.userEmail): Visitor {
    const visitor = new Visitor(sandbox);
    visitor.token = sandbox.tokens.issue(sandbox.user(email).id, 3, 'authorization_code').access_token;
    return visitor;
  }

  login(): Promise<Reply> {
    return this.form('/oauth/token', {
      grant_type: 'password',
      username: SANDBOX_CREDENTIALS.technicalUsername,
      password: SANDBOX_CREDENTIALS.technicalPassword,
    });
  }

  /** Sends a form to a token endpoint, by default with client credentials in a Basic header. */
  form(path: string, fields: Record<string, string>, headers: Record<string, string> = basic()): Promise<Reply> {
    return this.#send(path, { method: 'POST', headers, body: new URLSearchParams(fields), redirect: 'manual' });
  }

  get(path: string): Promise<Reply> {
    return this.call('GET', path);
  }

  call(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<Reply> {
    const content = body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) };
    return this.#send(path, {
      method,
      headers: { authorization: `Bearer ${this.token}`, 'content-type': 'application/json', ...headers },
      ...content,
    });
  }

  post(
    asset: number,
    key: string,
    points: { timestamp?: string; value: unknown }[],
    more: object = {},
  ): Promise<Reply> {
    return this.call('POST', `/v1/assets/${asset}/values`, { values: [{ key, ...more, data: points }] });
  }

  async #send(path: string, init: RequestInit): Promise<Reply> {
    const response = await fetch(`${this.url}${path}`, init);
    const text = await response.text();
    let body: unknown;
    try {
      body = JSON.parse(text);
    } catch {
      body = undefined;
    }
    return { status: response.status, headers: response.headers, text, body };
  }
}

export function basic(
  id: string = SANDBOX_CREDENTIALS.clientId,
  secret: string = SANDBOX_CREDENTIALS.clientSecret,
): Record<string, string> {
  return { authorization: `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}` };
}
