import * as crypto from 'node:crypto';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { SharedToken } from '../../../src/base/inbound/shared-token.ts';
import { sign, verifySignature } from '../../../src/webhook/signature.ts';

vi.mock('node:crypto', async (original) => {
  const real = await original<typeof crypto>();
  return { ...real, timingSafeEqual: vi.fn((one: Buffer, other: Buffer) => real.timingSafeEqual(one, other)) };
});

const compare = vi.mocked(crypto.timingSafeEqual);
/** Bytes of both sides at each comparison. */
const compared = () => compare.mock.calls.map(([one, other]) => [one.byteLength, other.byteLength]);
const BODY = Buffer.from('{"event_type":"x"}');
const SECRETS = ['the-first', 'the-second', 'the-third'];

beforeEach(() => {
  compare.mockClear();
});

describe('secret comparison', () => {
  it('does not reveal how much of a signature is correct or which secret it matches', () => {
    const headers = SECRETS.map((secret) => sign(BODY, secret));
    const near = `${headers[0]!.slice(0, -1)}${headers[0]!.endsWith('0') ? '1' : '0'}`;
    for (const sha256 of [...headers, near, `sha256=${'0'.repeat(64)}`]) {
      compare.mockClear();
      expect(verifySignature({ sha256, sha1: undefined }, BODY, SECRETS, false).ok).toBe(headers.includes(sha256));
      // Each secret is compared completely, regardless of earlier results.
      expect(compared()).toEqual([
        [32, 32],
        [32, 32],
        [32, 32],
      ]);
    }
  });

  it('does not reveal how much of a token is correct, or its length', () => {
    const token = new SharedToken('0123456789');
    for (const shown of ['', '0', '012345678x', '0123456789', 'x'.repeat(10_000)]) {
      compare.mockClear();
      expect(token.isShown(`Bearer ${shown}`, null)).toBe(shown === '0123456789');
      expect(compared()).toEqual(shown === '' ? [] : [[32, 32]]);
    }
  });
});
