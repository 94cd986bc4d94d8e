import { randomBytes } from 'node:crypto';
import { sign as theirSign, verify as theirVerify, verifyWithFallback } from '@octokit/webhooks-methods';
import { describe, expect, it } from 'vitest';
import { sign, verifySignature } from '../../src/webhook/signature.ts';

/** Signatures against a library that nobody here wrote, in both directions. Its scheme is the same (platform 6.1): `sha256=<hex>`. */
const secret = 'a shared secret with spaces and ü';
const verdict = (sha256: string, payload: string, secrets = [secret]) =>
  verifySignature({ sha256, sha1: undefined }, Buffer.from(payload), secrets, false);

const PAYLOADS = [
  '{"event_type":"threshold_reached","occurred_at":"2026-11-21T00:00:00Z","content":{}}',
  '{"description":"Zufluß 入口 🏭"}',
  ' {"spaces" : "count" }\r\n',
  '\u0000',
  randomBytes(200_000).toString('base64'),
];

describe("a foreign library's signatures", () => {
  it('that it makes are right here, for every kind of body', async () => {
    for (const payload of PAYLOADS) {
      expect(verdict(await theirSign(secret, payload), payload)).toEqual({ ok: true, algorithm: 'sha256' });
    }
  });

  it('that are made here are right there, and the same to the letter', async () => {
    for (const payload of PAYLOADS) {
      const ours = sign(Buffer.from(payload), secret);
      expect(await theirVerify(secret, payload, ours)).toBe(true);
      expect(ours).toBe(await theirSign(secret, payload));
    }
  });

  it('are wrong on both sides for another body, another secret and another signature', async () => {
    const [payload, other] = PAYLOADS as [string, string];
    const ours = sign(Buffer.from(payload), secret);
    const changed = ours.slice(0, -1) + (ours.endsWith('0') ? '1' : '0');
    expect(await theirVerify(secret, other, ours)).toBe(false);
    expect(verdict(await theirSign(secret, payload), other).ok).toBe(false);
    expect(await theirVerify('another secret', payload, ours)).toBe(false);
    expect(verdict(await theirSign('another secret', payload), payload).ok).toBe(false);
    expect(await theirVerify(secret, payload, changed)).toBe(false);
    expect(verdict(changed, payload).ok).toBe(false);
  });

  it('by the old secret are right on both sides while a rotation lasts', async () => {
    const payload = PAYLOADS[0]!;
    const old = await theirSign('old', payload);
    expect(await verifyWithFallback('new', payload, old, ['old'])).toBe(true);
    expect(verdict(old, payload, ['new', 'old']).ok).toBe(true);
    expect(verdict(old, payload, ['new']).ok).toBe(false);
  });
});
