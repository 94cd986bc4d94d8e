import { createHash, timingSafeEqual } from 'node:crypto';
import type { Call } from '../http/call.ts';
import { oauthRefusal } from '../http/refusal.ts';
import type { Application } from '../site/records.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { Stage } from '../stage.ts';

/** Compares two texts in constant time. */
export function sameText(a: string, b: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(a), digest(b));
}

/** Client that sent a request, and whether it sent its secret. */
export interface NamedClient {
  application: Application;
  proved: boolean;
}

/**
 * Authenticates a client (platform 5.2) by the credentials in a Basic header or by `client_id` and `client_secret` in
 * the body. A Basic header contains the key, a colon and the secret in Base64; unless the rule `basic-auth` is active,
 * they may be encoded according to RFC 6749 section 2.3.1. Returns undefined without credentials. Throws a 401
 * `invalid_client` if they are invalid, or a 400 if both forms are present.
 */
export function namedClient(call: Call, form: URLSearchParams, { site, strict }: Stage): NamedClient | undefined {
  const basic = basicCredentials(call)?.slice(0, strict.has('basic-auth') ? 1 : 2);
  const inBody = form.get('client_id');
  if (basic && form.get('client_secret') !== null) {
    throw oauthRefusal(400, 'invalid_request', 'client credentials must not be in both the header and the body');
  }
  if (basic && inBody !== null && !basic.some(({ id }) => id === inBody)) {
    throw oauthRefusal(400, 'invalid_request', 'client_id differs from the Authorization header');
  }
  const spellings = basic ?? (inBody === null ? [] : [{ id: inBody, secret: form.get('client_secret') }]);
  if (spellings.length === 0) return undefined;
  // Compare all forms, so that the response time does not reveal which one matches.
  const named = spellings.map((spelling) => clientOf(spelling, site)).filter((client) => client !== undefined);
  if (named[0] === undefined) throw oauthRefusal(401, 'invalid_client', 'incorrect client ID or secret');
  return named[0];
}

/** Like `namedClient`, for grants that require the secret. */
export function provedClient(call: Call, form: URLSearchParams, stage: Stage): Application {
  const client = namedClient(call, form, stage);
  if (!client?.proved) throw oauthRefusal(401, 'invalid_client', 'client credentials are missing');
  return client.application;
}

interface Credentials {
  id: string;
  /** Null if no secret was sent. */
  secret: string | null;
}

function clientOf({ id, secret }: Credentials, site: SiteModel): NamedClient | undefined {
  const key = site.apiKey(id);
  const application = key && site.get('client_applications', key.client_application);
  if (!application || (secret !== null && !sameText(key.client_secret, secret))) return undefined;
  return { application, proved: secret !== null };
}

/**
 * Returns the possible interpretations of a Basic header: first the literal credentials, then the decoded ones. Returns
 * undefined without a header.
 */
function basicCredentials(call: Call): Credentials[] | undefined {
  const match = /^Basic\s+([A-Za-z0-9+/=_-]+)\s*$/i.exec(call.headers.authorization ?? '');
  if (!match) return undefined;
  const text = Buffer.from(match[1]!, 'base64').toString('utf8');
  const colon = text.indexOf(':');
  if (colon < 0) throw oauthRefusal(401, 'invalid_client', 'the Basic header has no colon');
  const id = text.slice(0, colon);
  const secret = text.slice(colon + 1);
  return [
    { id, secret },
    { id: formDecoded(id), secret: formDecoded(secret) },
  ];
}

/** Decodes a form-encoded text. Returns other text unchanged. */
function formDecoded(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return text;
  }
}
