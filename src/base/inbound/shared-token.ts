import { createHash, timingSafeEqual } from 'node:crypto';

/**
 * Validates a token from the settings. Clients send it as `Authorization: Bearer …` or `Token …` (InfluxDB 2), or with
 * any user name as the password of `Basic …` or the query parameter `p` (InfluxDB 1). Digests of equal length are
 * compared in constant time.
 */
export class SharedToken {
  readonly #digest: Buffer;

  constructor(token: string) {
    this.#digest = digestOf(token);
  }

  /** `inQuery` is the query parameter `p` on endpoints that support it. */
  isShown(authorization: string | undefined, inQuery: string | null): boolean {
    const shown = authorization === undefined ? inQuery : credentialOf(authorization);
    return shown !== null && shown !== undefined && timingSafeEqual(digestOf(shown), this.#digest);
  }
}

function credentialOf(authorization: string): string | undefined {
  const match = /^(bearer|token|basic) +(\S.*)$/i.exec(authorization.trim());
  if (match === null) return undefined;
  const [, scheme, credential] = match;
  if (scheme!.toLowerCase() !== 'basic') return credential!;
  const pair = Buffer.from(credential!, 'base64').toString();
  const colon = pair.indexOf(':');
  return colon < 0 ? undefined : pair.slice(colon + 1);
}

function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
