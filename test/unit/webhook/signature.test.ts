import { createHmac, randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { sign, verifySignature } from '../../../src/webhook/signature.ts';

const body = new TextEncoder().encode('{"event_type":"threshold_reached"}');
const secret = 'a shared secret with spaces and ü';

const hmac = (digest: 'sha256' | 'sha1', key: string, input: Uint8Array) =>
  createHmac(digest, key).update(input).digest('hex');

describe('webhook signature', () => {
  it('is the HMAC of RFC 2104, as in test case 2 of RFC 4231', () => {
    expect(sign(new TextEncoder().encode('what do ya want for nothing?'), 'Jefe')).toBe(
      'sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843',
    );
    for (const length of [0, 1, 64, 1000, 100_000]) {
      const input = randomBytes(length);
      const theirs = hmac('sha256', secret, input);
      expect(sign(input, secret)).toBe(`sha256=${theirs}`);
      const headers = { sha256: `sha256=${theirs}`, sha1: undefined };
      expect(verifySignature(headers, input, [secret], false)).toEqual({ ok: true, algorithm: 'sha256' });
    }
  });

  it('is valid with any of several secrets', () => {
    const headers = { sha256: sign(body, 'old'), sha1: undefined };
    for (const secrets of [['old'], ['new', 'old'], ['old', 'new']]) {
      expect(verifySignature(headers, body, secrets, false).ok).toBe(true);
    }
    expect(verifySignature(headers, body, ['new'], false)).toEqual({ ok: false, reason: 'wrong' });
    expect(verifySignature(headers, body, [], false)).toEqual({ ok: false, reason: 'wrong' });
  });

  it('is invalid with an empty secret, even if the configured secret is empty', () => {
    const forged = `sha256=${hmac('sha256', secret, body)}`;
    expect(verifySignature({ sha256: forged, sha1: undefined }, body, [''], false).ok).toBe(false);
    expect(verifySignature({ sha256: sign(body, ''), sha1: undefined }, body, [''], false).ok).toBe(false);
  });

  it('is valid with SHA-1 only if accepted by configuration and without SHA-256', () => {
    const sha1 = `sha1=${hmac('sha1', secret, body)}`;
    expect(verifySignature({ sha256: undefined, sha1 }, body, [secret], false)).toEqual({
      ok: false,
      reason: 'missing',
    });
    expect(verifySignature({ sha256: undefined, sha1 }, body, [secret], true)).toEqual({ ok: true, algorithm: 'sha1' });
    const wrong = `sha256=${'0'.repeat(64)}`;
    expect(verifySignature({ sha256: wrong, sha1 }, body, [secret], true)).toEqual({ ok: false, reason: 'wrong' });
    expect(verifySignature({ sha256: '', sha1 }, body, [secret], true)).toEqual({ ok: false, reason: 'wrong' });
  });

  it.each([
    '',
    'sha256=',
    'sha256=zz',
    `sha256=${'0'.repeat(63)}`,
    `sha256=${'0'.repeat(65)}`,
    `sha1=${'0'.repeat(64)}`,
    '0'.repeat(64),
    `sha256=${'0'.repeat(64)}, sha256=${'0'.repeat(64)}`,
    'ü'.repeat(71),
  ])('is invalid, without an exception, if it is %j', (sha256) => {
    expect(verifySignature({ sha256, sha1: undefined }, body, [secret], true)).toEqual({ ok: false, reason: 'wrong' });
  });

  it('is invalid if one bit of the body or the signature differs', () => {
    const right = sign(body, secret);
    for (let i = 0; i < body.length; i++) {
      const other = Uint8Array.from(body);
      other[i]! ^= 1 << (i % 8);
      expect(verifySignature({ sha256: right, sha1: undefined }, other, [secret], false).ok).toBe(false);
    }
    for (let i = 7; i < right.length; i++) {
      const other = right.slice(0, i) + (right[i] === '0' ? '1' : '0') + right.slice(i + 1);
      expect(verifySignature({ sha256: other, sha1: undefined }, body, [secret], false).ok).toBe(false);
    }
  });

  it('may contain upper-case hexadecimal digits', () => {
    const right = sign(body, secret);
    const loud = `sha256=${right.slice(7).toUpperCase()}`;
    expect(verifySignature({ sha256: loud, sha1: undefined }, body, [secret], false).ok).toBe(true);
  });
});
