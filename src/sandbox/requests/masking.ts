import { createHash } from 'node:crypto';

/**
 * What of an exchange may be shown, written to a file or sent on: no credential leaves the sandbox. What the sandbox itself made at random is
 * replaced by a fingerprint, so that a reader can tell one token from another (the same as in `GET /sandbox/tokens`); what people
 * chose is replaced by `***` alone, for a fingerprint of a short secret gives it away.
 */
const HIDDEN = '***';

/** Members of forms and queries, and of JSON: there `code` is that of a unit or a status. */
const IN_FORMS: ReadonlySet<string> = new Set([
  ...['access_token', 'refresh_token', 'token', 'code', 'client_secret', 'password'],
  ...['client_assertion', 'assertion', 'secret'],
]);
const IN_JSON: ReadonlySet<string> = new Set([...IN_FORMS].filter((name) => name !== 'code'));
const RANDOM: ReadonlySet<string> = new Set(['access_token', 'refresh_token', 'token', 'code']);

/** First 12 hex digits of the SHA-256. */
function fingerprint(token: string): string {
  return createHash('sha256').update(token).digest('hex').slice(0, 12);
}

/** A token that is long enough to be one; anything shorter might be a password at the wrong place. */
function maskedToken(token: string): string {
  return token.length < 32 ? HIDDEN : `${HIDDEN}${fingerprint(token)}`;
}

function masked(name: string, value: string): string {
  return RANDOM.has(name) ? maskedToken(value) : HIDDEN;
}

/** A header's value. Of Basic the client id stays: `Basic sandbox-client:***`. */
export function maskedHeader(name: string, value: string): string {
  const lower = name.toLowerCase();
  if (lower === 'location' || lower === 'referer') return maskedTarget(value);
  if (lower === 'cookie' || lower === 'set-cookie') return HIDDEN;
  if (!/authorization|token|secret|password/.test(lower)) return value;
  const [, scheme, credentials] = /^(\S+)\s+(.+)$/s.exec(value) ?? [];
  if (scheme === undefined || credentials === undefined) return HIDDEN;
  if (/^bearer$/i.test(scheme)) return `${scheme} ${maskedToken(credentials.trim())}`;
  if (!/^basic$/i.test(scheme)) return `${scheme} ${HIDDEN}`;
  const text = Buffer.from(credentials, 'base64').toString('utf8');
  const colon = text.indexOf(':');
  return `${scheme} ${colon < 0 ? '' : text.slice(0, colon)}:${HIDDEN}`;
}

/** Path and query. */
export function maskedTarget(target: string): string {
  const at = target.indexOf('?');
  return at < 0 ? target : `${target.slice(0, at + 1)}${maskedForm(target.slice(at + 1))}`;
}

/** A body as text. Pages for people are not kept: one of them shows a secret once. */
export function maskedBody(body: Buffer, contentType: string): string {
  if (/^text\/html/i.test(contentType)) return `[a page of ${body.length} bytes]`;
  const text = body.toString('utf8');
  if (!/token|secret|password|assertion|code|\\u/i.test(text)) return text;
  if (/^\s*[{[]/.test(text)) return maskedJson(text);
  return maskedForm(text);
}

function maskedForm(text: string): string {
  return text
    .split('&')
    .map((pair) => {
      const at = pair.indexOf('=');
      const name = decoded(at < 0 ? pair : pair.slice(0, at)).toLowerCase();
      return at >= 0 && IN_FORMS.has(name) ? `${pair.slice(0, at)}=${masked(name, decoded(pair.slice(at + 1)))}` : pair;
    })
    .join('&');
}

/** As it came, down to its spaces, where nothing in it is secret; written anew where something is. */
function maskedJson(text: string): string {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return `[${Buffer.byteLength(text)} bytes that are no JSON and may hold a secret]`;
  }
  let isSecret = false;
  const written = JSON.stringify(value, (name, member: unknown) => {
    if (!IN_JSON.has(name.toLowerCase()) || member === null || typeof member === 'object') return member;
    isSecret = true;
    return masked(name.toLowerCase(), String(member));
  });
  return isSecret ? written : text;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return text;
  }
}
