import { createHash, timingSafeEqual } from 'node:crypto';

/**
 * A token of the settings as clients show it: `Authorization: Bearer …`; `Token …` (InfluxDB 2); as the password of `Basic …` or the
 * query's `p` (InfluxDB 1), with any user name. Compared by digests of equal length in constant time.
 */
export class SharedToken {
  readonly #digest: Buffer;

  constructor(token: string) {
    this.#digest = digestOf(token);
  }

  /** `inQuery` is the query's `p`, where the endpoint knows one. */
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
