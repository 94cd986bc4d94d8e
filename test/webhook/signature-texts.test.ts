/** Every text that may stand in the two signature headers, and what is made of it beside every other. */
import { createHmac } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { type SignatureVerdict, sign, signaturePresent, verifySignature } from '../../src/webhook/signature.ts';

type Algorithm = 'sha256' | 'sha1';

const BODY = new TextEncoder().encode('{"event_type":"threshold_reached"}');
const SECRET = 'the secret';
const hmac = (algorithm: Algorithm, secret = SECRET) => createHmac(algorithm, secret).update(BODY).digest('hex');

/** By name, with whether it signs the body by `SECRET`. */
function textsOf(algorithm: Algorithm): [name: string, text: string | undefined, isRight: boolean][] {
  const digits = hmac(algorithm);
  const right = `${algorithm}=${digits}`;
  const other = algorithm === 'sha1' ? 'sha256' : 'sha1';
  return [
    ['missing', undefined, false],
    ['empty', '', false],
    ['right', right, true],
    ['right in capitals', right.toUpperCase(), true],
    ['right between blanks', ` \t${right} \t`, true],
    ['a blank behind the name', right.replace('=', '= '), false],
    ['a digit short', right.slice(0, -1), false],
    ['a byte short', right.slice(0, -2), false],
    ['a digit more', `${right}0`, false],
    ['a byte more', `${right}00`, false],
    ['without a digit', `${algorithm}=`, false],
    ['without its name', digits, false],
    ['as long, by another name', `${'x'.repeat(algorithm.length)}=${digits}`, false],
    ['by the other name', `${other}=${digits}`, false],
    ['of the other algorithm', `${other}=${hmac(other)}`, false],
    ['of the other algorithm by this name', `${algorithm}=${hmac(other)}`, false],
    ['of another secret', `${algorithm}=${hmac(algorithm, 'another')}`, false],
    ['of an empty secret', `${algorithm}=${hmac(algorithm, '')}`, false],
  ];
}

const SECRETS: [name: string, secrets: string[], hasOurs: boolean][] = [
  ['none', [], false],
  ['an empty one', [''], false],
  ['ours', [SECRET], true],
  ['an empty one and ours', ['', SECRET], true],
  ['ours and the next', [SECRET, 'next'], true],
  ['the one before, ours and an empty one', ['before', SECRET, ''], true],
  ['ours twice', [SECRET, SECRET], true],
  ['one that is longer', [`${SECRET} `], false],
];

describe('a body is signed', () => {
  it('is the HMAC in small digits behind its name', () => {
    expect(sign(BODY, SECRET)).toBe(`sha256=${hmac('sha256')}`);
    expect(sign(new Uint8Array(), '')).toBe('sha256=b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad');
  });

  describe.each(SECRETS)('where the secrets are %s', (_, secrets, hasOurs) => {
    it.each(textsOf('sha256'))('and the SHA-256 is %s, whatever the SHA-1 says', (_name, sha256, is256) => {
      for (const [name, sha1, is1] of textsOf('sha1')) {
        for (const acceptSha1 of [false, true]) {
          const headers = { sha256, sha1 };
          const isThere = sha256 !== undefined || (acceptSha1 && sha1 !== undefined);
          const algorithm = sha256 === undefined ? 'sha1' : 'sha256';
          const expected: SignatureVerdict = !isThere
            ? { ok: false, reason: 'missing' }
            : hasOurs && (algorithm === 'sha1' ? is1 : is256)
              ? { ok: true, algorithm }
              : { ok: false, reason: 'wrong' };
          const which = `SHA-1 ${name}, ${acceptSha1 ? '' : 'not '}accepted`;
          expect(signaturePresent(headers, acceptSha1), which).toBe(isThere);
          expect(verifySignature(headers, BODY, secrets, acceptSha1), which).toEqual(expected);
        }
      }
    });
  });

  it.each(['sha256', 'sha1'] as const)('by none where a letter of its %s is another, and never throws', (algorithm) => {
    const right = `${algorithm}=${hmac(algorithm)}`;
    for (let at = 0; at < right.length; at++) {
      for (const letter of ['g', 'G', '/', ':', '@', '`', ' ', '\n', '=', '٣', '\0']) {
        const text = right.slice(0, at) + letter + right.slice(at + 1);
        if (text === right) continue;
        const headers = { sha256: undefined, sha1: undefined, [algorithm]: text };
        expect(verifySignature(headers, BODY, [SECRET], true), JSON.stringify(text)).toEqual({
          ok: false,
          reason: 'wrong',
        });
      }
    }
  });
});
