import { createHash, timingSafeEqual } from 'node:crypto';
import type { Call } from '../http/call.ts';
import { oauthRefusal } from '../http/refusal.ts';
import type { Application } from '../site/records.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { Strictness } from '../strictness.ts';

/** Whether two texts are equal, in a time that tells nothing about where they differ. */
export function sameText(a: string, b: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(a), digest(b));
}

/** The client named by the call, and whether it has proved itself with its secret. */
export interface NamedClient {
  application: Application;
  proved: boolean;
}

/** Authenticates clients (platform 5.2). */
export class Clients {
  readonly #site: SiteModel;
  readonly #strict: Strictness;

  constructor(site: SiteModel, strict: Strictness) {
    this.#site = site;
    this.#strict = strict;
  }

  /**
   * Credentials in a Basic header, which is the base64 of key, colon and secret as they are (also as RFC 6749 section 2.3.1 encodes
   * them, unless the rule `basic-auth` is in force), or as `client_id` and `client_secret` in the body. Returns undefined if there are
   * none. Throws 401 `invalid_client` if they are wrong, 400 if both forms are present.
   */
  named(call: Call, form: URLSearchParams): NamedClient | undefined {
    return namedClient(call, form, this.#site, this.#strict.has('basic-auth'));
  }

  /** The same for grants that require the secret. */
  proved(call: Call, form: URLSearchParams): Application {
    const client = this.named(call, form);
    if (!client?.proved) throw oauthRefusal(401, 'invalid_client', 'client credentials are missing');
    return client.application;
  }
}

function namedClient(call: Call, form: URLSearchParams, site: SiteModel, isLiteral: boolean): NamedClient | undefined {
  const basic = basicCredentials(call)?.slice(0, isLiteral ? 1 : 2);
  const inBody = form.get('client_id');
  if (basic && form.get('client_secret') !== null) {
    throw oauthRefusal(400, 'invalid_request', 'client credentials came in the header and in the body');
  }
  if (basic && inBody !== null && !basic.some(({ id }) => id === inBody)) {
    throw oauthRefusal(400, 'invalid_request', 'client_id differs from the Authorization header');
  }
  const spellings = basic ?? (inBody === null ? [] : [{ id: inBody, secret: form.get('client_secret') }]);
  if (spellings.length === 0) return undefined;
  // Every spelling is compared, whichever fits: the time tells nothing.
  const named = spellings.map((spelling) => clientOf(spelling, site)).filter((client) => client !== undefined);
  if (named[0] === undefined) throw oauthRefusal(401, 'invalid_client', 'client id or secret is wrong');
  return named[0];
}

interface Credentials {
  id: string;
  /** `null` where none came. */
  secret: string | null;
}

function clientOf({ id, secret }: Credentials, site: SiteModel): NamedClient | undefined {
  const key = site.apiKey(id);
  const application = key && site.get('client_applications', key.client_application);
  if (!application || (secret !== null && !sameText(key.client_secret, secret))) return undefined;
  return { application, proved: secret !== null };
}

/** What a Basic header may mean, as it stands first. `undefined` where there is no such header. */
function basicCredentials(call: Call): Credentials[] | undefined {
  const match = /^Basic\s+([A-Za-z0-9+/=_-]+)\s*$/i.exec(call.headers.authorization ?? '');
  if (!match) return undefined;
  const text = Buffer.from(match[1]!, 'base64').toString('utf8');
  const colon = text.indexOf(':');
  if (colon < 0) throw oauthRefusal(401, 'invalid_client', 'the Basic header holds no colon');
  const id = text.slice(0, colon);
  const secret = text.slice(colon + 1);
  return [
    { id, secret },
    { id: formDecoded(id), secret: formDecoded(secret) },
  ];
}

/** As it is where it is no form encoding. */
function formDecoded(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return text;
  }
}
