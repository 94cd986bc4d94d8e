import { createHash, timingSafeEqual } from 'node:crypto';
import type { Call } from '../http/call.ts';
import { oauthRefusal } from '../http/refusal.ts';
import type { Plant } from '../plant/plant.ts';
import type { Application } from '../plant/records.ts';

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

/**
 * Client credentials both ways (spec 5.2): Basic with key and secret, percent-encoded as RFC 6749 section 2.3.1 has it,
 * or `client_id` and `client_secret` in the body. 401 `invalid_client` where they are wrong; both ways at once is 400.
 */
export function namedClient(call: Call, form: URLSearchParams, plant: Plant): NamedClient | undefined {
  const basic = basicCredentials(call);
  const inBody = form.get('client_id');
  if (basic && form.get('client_secret') !== null) {
    throw oauthRefusal(400, 'invalid_request', 'client credentials came in the header and in the body');
  }
  if (basic && inBody !== null && inBody !== basic.id) {
    throw oauthRefusal(400, 'invalid_request', 'client_id differs from the Authorization header');
  }
  const id = basic?.id ?? inBody;
  if (id === null || id === undefined) return undefined;
  const secret = basic?.secret ?? form.get('client_secret');
  const key = plant.apiKey(id);
  const application = key && plant.get('client_applications', key.client_application);
  if (!application || (secret !== null && !sameText(key.client_secret, secret))) {
    throw oauthRefusal(401, 'invalid_client', 'client id or secret is wrong');
  }
  return { application, proved: secret !== null };
}

/** The same, for grants that need the secret. */
export function provedClient(call: Call, form: URLSearchParams, plant: Plant): Application {
  const client = namedClient(call, form, plant);
  if (!client?.proved) throw oauthRefusal(401, 'invalid_client', 'client credentials are missing');
  return client.application;
}

function basicCredentials(call: Call): { id: string; secret: string } | undefined {
  const match = /^Basic\s+([A-Za-z0-9+/=_-]+)\s*$/i.exec(call.headers.authorization ?? '');
  if (!match) return undefined;
  const text = Buffer.from(match[1]!, 'base64').toString('utf8');
  const colon = text.indexOf(':');
  if (colon < 0) throw oauthRefusal(401, 'invalid_client', 'the Basic header holds no colon');
  return { id: formDecode(text.slice(0, colon)), secret: formDecode(text.slice(colon + 1)) };
}

/** Clients that do not encode are understood too, as long as what they send is no broken encoding. */
function formDecode(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return text;
  }
}
