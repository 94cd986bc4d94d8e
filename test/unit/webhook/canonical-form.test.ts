import { describe, expect, it } from 'vitest';
import { canonicalise, parseExactly } from '../../../src/webhook/identity.ts';

/** Notations of numbers with their canonical form; `undefined` if they exceed a double. */
const NUMBERS: [text: string, form: string | undefined][] = [
  ['0', '0'],
  ['-0', '0'],
  ['1.0', '1'],
  ['1e2', '100'],
  ['100000000000000000000', '100000000000000000000'],
  ['1e21', '1e+21'],
  ['9007199254740991', '9007199254740991'],
  ['9007199254740992', '9007199254740992'],
  ['9007199254740993', '9007199254740993'],
  ['12345678901234567890', '12345678901234567890'],
  [`1${'0'.repeat(400)}`, `1${'0'.repeat(400)}`],
  ['9007199254740993.0', '9007199254740992'],
  ['1234567890123456.50', '1234567890123456.5'],
  ['0.12345678901234567', '0.12345678901234566'],
  ['9007199254740993e1', '90071992547409940'],
  ['1.2345678901234567890e19', '12345678901234567000'],
  ['5e-324', '5e-324'],
  ['1e-400', '0'],
  ['1e400', undefined],
  ['1234567890123456e400', undefined],
];

describe('canonical form of a number', () => {
  it.each(NUMBERS)('is the same at the top level and in nested values: %s', (text, form) => {
    const within = (around: (inner: string) => string, inner = form) =>
      inner === undefined ? undefined : around(inner);
    expect(canonicalise(text)).toBe(form);
    expect(canonicalise(` [ 1,${text} ,2]`)).toBe(within((inner) => `[1,${inner},2]`));
    expect(canonicalise(`{"b":"1234567890123456","a": ${text}}`)).toBe(
      within((inner) => `{"a":${inner},"b":"1234567890123456"}`),
    );
  });

  it('remains a number if a double can represent it exactly', () => {
    expect(parseExactly('[1234567890123456, 9007199254740991, 0.1234567890123456]')).toEqual([
      1234567890123456, 9007199254740991, 0.1234567890123456,
    ]);
    expect(parseExactly('[1]')).toEqual([1]);
    expect(() => parseExactly('1234567890123456,')).toThrow(SyntaxError);
  });

  it('preserves all digits of a large ID', () => {
    const text = '{"id":9007199254740993,"of":[-12345678901234567890,"9007199254740993",true,null]}';
    expect(JSON.stringify(parseExactly(text))).toBe(text);
    expect(JSON.stringify(parseExactly('{"id":9007199254740991,"n":1.0}'))).toBe('{"id":9007199254740991,"n":1}');
  });
});

describe('canonical form of a value', () => {
  it.each(['{"a":1,"a":1}', '{"a":{"b":1,"b":2}}', '[{"a":1},{"b":1,"b":1}]', '{"\\u0061":1,"a":1}', '{":":1,":":2}'])(
    'is undefined for duplicate members: %s',
    (text) => {
      expect(canonicalise(text)).toBeUndefined();
      expect(canonicalise(` ${text} `)).toBeUndefined();
    },
  );

  it.each(['', ' ', 'a', '{', '{"a":1', '[1,]', '"\\x"', '1 2', 'undefined', '{a:1}', '"\ud800"', '{"\\udc00":1}'])(
    'is undefined for %j',
    (text) => {
      expect(canonicalise(text)).toBeUndefined();
    },
  );

  it.each([
    ['lists', (inner: string, depth: number) => '['.repeat(depth) + inner + ']'.repeat(depth)],
    ['objects', (inner: string, depth: number) => '{"a":'.repeat(depth) + inner + '}'.repeat(depth)],
  ])('allows at most a hundred nested %s', (_, nested) => {
    for (const inner of ['1', '""', 'null', '{}', '[]', '9007199254740993']) {
      expect(canonicalise(nested(inner, 100))).toBe(nested(inner, 100));
      expect(canonicalise(nested(inner, 101))).toBeUndefined();
    }
  });
});
