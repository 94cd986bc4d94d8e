import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { canonicalise, deliveryIdentity, IDENTITY_BYTES, identityOf } from '../../../src/webhook/identity.ts';
import { readEvent } from '../../../src/webhook/received-event.ts';

const bytes = (text: string) => new TextEncoder().encode(text);
const hex = (identity: Uint8Array) => Buffer.from(identity).toString('hex');

describe('canonical JSON (RFC 8785)', () => {
  it('matches the example in section 3.2.2', () => {
    const input = String.raw`{
      "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
      "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
      "literals": [null, true, false]
    }`;
    const expected = String.raw`{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`;
    expect(canonicalise(input)).toBe(expected);
    expect(Buffer.from(expected).toString('hex').slice(0, 40)).toBe('7b226c69746572616c73223a5b6e756c6c2c7472');
  });

  it('orders members as in section 3.2.3', () => {
    const input = String.raw`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh",
      "1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`;
    const order = [...canonicalise(input)!.matchAll(/:"([^"]+)"/g)].map((match) => match[1]);
    expect(order).toEqual([
      'Carriage Return',
      'One',
      'Control',
      'Latin Small Letter O With Diaeresis',
      'Euro Sign',
      'Emoji: Grinning Face',
      'Hebrew Letter Dalet With Dagesh',
    ]);
  });

  it.each([
    ['0000000000000000', '0'],
    ['8000000000000000', '0'],
    ['0000000000000001', '5e-324'],
    ['7fefffffffffffff', '1.7976931348623157e+308'],
    ['4340000000000000', '9007199254740992'],
    ['44b52d02c7e14af5', '9.999999999999997e+22'],
    ['44b52d02c7e14af6', '1e+23'],
    ['444b1ae4d6e2ef50', '1e+21'],
    ['3eb0c6f7a0b5ed8d', '0.000001'],
    ['41b3de4355555555', '333333333.3333333'],
  ])('formats the number %s from appendix B', (ieee, expected) => {
    const number = Buffer.from(ieee, 'hex').readDoubleBE();
    const literal = Object.is(number, -0) ? '-0.0' : number.toExponential(20);
    expect(canonicalise(`[${literal}]`)).toBe(`[${expected}]`);
  });
});

describe('event identity', () => {
  it('is independent of member order, white space and escapes', () => {
    const pushed =
      '{"event_type":"asset_updated","occurred_at":"2026-11-21T00:00:00Z","content":{"asset":{"id":1,"href":"ä/b"}}}';
    const listed = String.raw`{ "content": {"asset":{"href":"\u00e4\/b","id":1.0}}, "occurred_at":"2026-11-21T00:00:00Z", "event_type":"asset_updated" }`;
    expect(hex(identityOf(bytes(listed)))).toBe(hex(identityOf(bytes(pushed))));
  });

  it('is the truncated SHA-256 of the canonical form', () => {
    const digest = createHash('sha256').update('{"a":1,"b":2}').digest('hex');
    expect(hex(identityOf(bytes('{"b":2,"a":1}')))).toBe(digest.slice(0, IDENTITY_BYTES * 2));
  });

  it.each([
    ['array order', '[1,2]', '[2,1]'],
    ['a string versus a number', '{"a":1}', '{"a":"1"}'],
    ['null versus a missing member', '{"a":null}', '{}'],
    ['integers beyond 2^53', '{"id":9007199254740993}', '{"id":9007199254740992}'],
    ['lone surrogates', String.raw`"\ud800"`, String.raw`"\ud801"`],
    ['numbers beyond a double', '[1e400]', '[1e500]'],
    ['a member named __proto__', '{"__proto__":{"a":1}}', '{}'],
    ['a colon inside a string', '{"a":"b:c\\":"}', '{"a":"b:c"}'],
    ['control characters', '\u0000', ''],
  ])('depends on %s', (_what, one, other) => {
    expect(hex(identityOf(bytes(one)))).not.toBe(hex(identityOf(bytes(other))));
  });

  it('distinguishes invalid UTF-8', () => {
    expect(hex(identityOf(Uint8Array.of(0x22, 0xff, 0x22)))).not.toBe(hex(identityOf(Uint8Array.of(0x22, 0xfe, 0x22))));
  });

  it('is independent of member order in events with large integers', () => {
    const one = identityOf(bytes('{"id":9007199254740993,"b":1}'));
    expect(hex(identityOf(bytes('{"b":1,"id":9007199254740993}')))).toBe(hex(one));
  });

  it('is computed from the raw bytes of deeply nested JSON', () => {
    const deep = bytes('['.repeat(500_000) + ']'.repeat(500_000));
    expect(identityOf(deep)).toHaveLength(IDENTITY_BYTES);
    expect(readEvent(deep, 0).unrecognised).toBe(true);
    const objects = bytes(`${'{"content":'.repeat(50_000)}1${'}'.repeat(50_000)}`);
    expect(readEvent(objects, 0).unrecognised).toBe(true);
  });

  it('of a delivery depends on its registration', () => {
    expect(hex(deliveryIdentity('a', 1))).not.toBe(hex(deliveryIdentity('b', 1)));
    expect(hex(deliveryIdentity('a', 1))).not.toBe(hex(deliveryIdentity('a', 11)));
  });
});
