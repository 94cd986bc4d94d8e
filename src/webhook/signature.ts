import { createHmac, timingSafeEqual } from 'node:crypto';

/** Signature headers of a delivery (platform 6.1). */
export interface SignatureHeaders {
  sha256: string | undefined;
  sha1: string | undefined;
}

export type SignatureVerdict = { ok: true; algorithm: 'sha256' | 'sha1' } | { ok: false; reason: 'missing' | 'wrong' };

const DIGEST_BYTES = { sha256: 32, sha1: 20 } as const;

/** Returns the value of `X-Hub-Signature-Sha256` for a body (platform 6.1). */
export function sign(body: Uint8Array, secret: string): string {
  return `sha256=${createHmac('sha256', secret).update(body).digest('hex')}`;
}

/** Returns whether a signature header is present. */
export function signaturePresent(headers: SignatureHeaders, acceptSha1: boolean): boolean {
  return headers.sha256 !== undefined || (acceptSha1 && headers.sha1 !== undefined);
}

/**
 * Verifies the signature of a body with all valid secrets (two during a rotation). Takes constant time, without an
 * early exit. SHA-1 is used only if it is accepted and the SHA-256 header is missing.
 */
export function verifySignature(
  headers: SignatureHeaders,
  body: Uint8Array,
  secrets: readonly string[],
  acceptSha1: boolean,
): SignatureVerdict {
  if (!signaturePresent(headers, acceptSha1)) return { ok: false, reason: 'missing' };
  const algorithm = headers.sha256 === undefined ? 'sha1' : 'sha256';
  const given = parseSignature(headers[algorithm] ?? '', algorithm);
  if (!given) return { ok: false, reason: 'wrong' };
  let matches = 0;
  for (const secret of secrets) {
    // Ignore an empty secret, because anyone could compute the signature.
    if (secret === '') continue;
    const expected = createHmac(algorithm, secret).update(body).digest();
    matches += timingSafeEqual(expected, given) ? 1 : 0;
  }
  return matches > 0 ? { ok: true, algorithm } : { ok: false, reason: 'wrong' };
}

function parseSignature(header: string, algorithm: 'sha256' | 'sha1'): Buffer | undefined {
  const prefix = `${algorithm}=`;
  const hex = header.trim().toLowerCase();
  if (!hex.startsWith(prefix)) return undefined;
  const digits = hex.slice(prefix.length);
  if (digits.length !== DIGEST_BYTES[algorithm] * 2 || !/^[0-9a-f]+$/.test(digits)) return undefined;
  return Buffer.from(digits, 'hex');
}
