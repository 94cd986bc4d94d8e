import { randomBytes } from 'node:crypto';
import { sign as theirSign, verify as theirVerify } from '@octokit/webhooks-methods';
import { describe, expect, it } from 'vitest';
import { sign, verifySignature } from '../../../src/webhook/signature.ts';

/** Compares signatures with those of an independent library with the same scheme (platform 6.1), in both directions. */
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

describe('signatures from another library', () => {
  it('are valid for all types of body', async () => {
    for (const payload of PAYLOADS) {
      expect(verdict(await theirSign(secret, payload), payload)).toEqual({ ok: true, algorithm: 'sha256' });
    }
  });

  it('are identical to those of the agent', async () => {
    for (const payload of PAYLOADS) {
      const ours = sign(Buffer.from(payload), secret);
      expect(await theirVerify(secret, payload, ours)).toBe(true);
      expect(ours).toBe(await theirSign(secret, payload));
    }
  });
});
