/** The canonical form of values made by chance, written in every way that JSON has, against a writer that knows the value. */
import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { canonicalise, parseExactly } from '../../src/webhook/canonical-json.ts';
import { deliveryIdentity, identityOf } from '../../src/webhook/identity.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

/** How a number may be written, and its one form; none where no double and no digits hold it. */
const NUMBERS: [text: string, form: string | undefined][] = [
  ['0', '0'],
  ['-0', '0'],
  ['-0.0', '0'],
  ['1.0', '1'],
  ['1e2', '100'],
  ['1E+2', '100'],
  ['-1.50', '-1.5'],
  ['100000000000000000000', '100000000000000000000'],
  ['1e20', '100000000000000000000'],
  ['1e21', '1e+21'],
  ['123456789012345', '123456789012345'],
  ['1234567890123456', '1234567890123456'],
  ['9007199254740991', '9007199254740991'],
  ['-9007199254740991', '-9007199254740991'],
  // No double is these: their digits stand.
  ['9007199254740992', '9007199254740992'],
  ['9007199254740993', '9007199254740993'],
  ['-9007199254740993', '-9007199254740993'],
  ['12345678901234567890', '12345678901234567890'],
  [`1${'0'.repeat(400)}`, `1${'0'.repeat(400)}`],
  // These are measured and not counted: a double says what they say.
  ['9007199254740993.0', '9007199254740992'],
  ['1234567890123456.50', '1234567890123456.5'],
  ['0.12345678901234567', '0.12345678901234566'],
  ['-0.12345678901234567', '-0.12345678901234566'],
  ['9007199254740993e1', '90071992547409940'],
  ['1.2345678901234567890e19', '12345678901234567000'],
  ['1e-7', '1e-7'],
  ['5e-324', '5e-324'],
  ['1e-400', '0'],
  ['1e400', undefined],
  ['-1e400', undefined],
  ['1234567890123456e400', undefined],
];

describe('a number', () => {
  it.each(NUMBERS)('%s has its one form, by itself and within others', (text, form) => {
    const within = (around: (inner: string) => string, inner = form) =>
      inner === undefined ? undefined : around(inner);
    expect(canonicalise(text)).toBe(form);
    expect(canonicalise(` [ 1,${text} ,2]`)).toBe(within((inner) => `[1,${inner},2]`));
    expect(canonicalise(`{"b":"1234567890123456","a": ${text}}`)).toBe(
      within((inner) => `{"a":${inner},"b":"1234567890123456"}`),
    );
  });

  it('of which a double holds no digit the less is a number to whoever reads it', () => {
    expect(parseExactly('[1234567890123456, 9007199254740991, 0.1234567890123456]')).toEqual([
      1234567890123456, 9007199254740991, 0.1234567890123456,
    ]);
    expect(parseExactly('[1]')).toEqual([1]);
    expect(() => parseExactly('1234567890123456,')).toThrow(SyntaxError);
  });

  it('that is an id keeps its digits where it is written as JSON again', () => {
    const text = '{"id":9007199254740993,"of":[-12345678901234567890,"9007199254740993",true,null]}';
    expect(JSON.stringify(parseExactly(text))).toBe(text);
    expect(JSON.stringify(parseExactly('{"id":9007199254740991,"n":1.0}'))).toBe('{"id":9007199254740991,"n":1}');
  });
});

type Value = null | boolean | number | string | Value[] | Map<string, Value>;

const LETTERS = ['a', 'b', '"', '\\', '/', ':', '{', '}', ',', ' ', '\n', '\u0000', '\u007f', 'é', '€', '😀', '\u2028'];

/** A value, and one way of many in which JSON writes it. */
class Chance {
  readonly #clock: ManualClock;

  constructor(seed: number) {
    this.#clock = new ManualClock(0, seed);
  }

  below(count: number): number {
    return Math.floor(this.#clock.random() * count);
  }

  text(): string {
    return Array.from({ length: this.below(5) }, () => LETTERS[this.below(LETTERS.length)]!).join('');
  }

  value(depth: number): Value {
    const kind = this.below(depth > 0 ? 7 : 5);
    if (kind === 0) return [null, true, false][this.below(3)]!;
    if (kind === 1) return this.below(2_000) / [1, 8][this.below(2)]!;
    if (kind < 5) return this.text();
    const parts = Array.from({ length: this.below(4) }, () => this.value(depth - 1));
    return kind === 5 ? parts : new Map(parts.map((part) => [this.text(), part]));
  }

  written(value: Value): string {
    const gap = () => ['', '', ' ', '\n\t', '\r '][this.below(5)]!;
    const list = (parts: string[]) => parts.map((part) => `${gap()}${part}${gap()}`).join(',') || gap();
    if (typeof value === 'string') return this.#writtenText(value);
    if (typeof value === 'number') return this.below(2) ? String(value) : `${value.toExponential()}`;
    if (Array.isArray(value)) return `[${list(value.map((part) => this.written(part)))}]`;
    if (!(value instanceof Map)) return String(value);
    const members = [...value].map(
      ([name, part]) => `${this.#writtenText(name)}${gap()}:${gap()}${this.written(part)}`,
    );
    return `{${list(this.below(2) ? members : members.toReversed())}}`;
  }

  #writtenText(text: string): string {
    const escaped = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
    const plain = (letter: string) => JSON.stringify(letter).slice(1, -1);
    const letters = [...text].map((letter) => (this.below(3) ? plain(letter) : letter.split('').map(escaped).join('')));
    return `"${letters.join('')}"`;
  }
}

function formOf(value: Value): string {
  if (Array.isArray(value)) return `[${value.map(formOf).join()}]`;
  if (!(value instanceof Map)) return JSON.stringify(value);
  // By code units, which is how JavaScript compares texts.
  const members = [...value].sort(([one], [other]) => (one < other ? -1 : 1));
  return `{${members.map(([name, part]) => `${JSON.stringify(name)}:${formOf(part)}`).join()}}`;
}

describe('a value', () => {
  it.each([1, 2, 3])('has one form, however it is written (seed %i)', (seed) => {
    const chance = new Chance(seed);
    for (let round = 0; round < 150; round++) {
      const value = chance.value(4);
      for (let way = 0; way < 2; way++) {
        const text = chance.written(value);
        expect(canonicalise(text), text).toBe(formOf(value));
      }
    }
  });

  it.each(['{"a":1,"a":1}', '{"a":{"b":1,"b":2}}', '[{"a":1},{"b":1,"b":1}]', '{"\\u0061":1,"a":1}', '{":":1,":":2}'])(
    'has none where two members have one name: %s',
    (text) => {
      expect(canonicalise(text)).toBeUndefined();
      expect(canonicalise(` ${text} `)).toBeUndefined();
    },
  );

  it.each(['', ' ', 'a', '{', '{"a":1', '[1,]', '"\\x"', '1 2', 'undefined', '{a:1}', '"\ud800"', '{"\\udc00":1}'])(
    'has none where the text is %j',
    (text) => {
      expect(canonicalise(text)).toBeUndefined();
    },
  );

  it.each([
    ['lists', (inner: string, depth: number) => '['.repeat(depth) + inner + ']'.repeat(depth)],
    ['objects', (inner: string, depth: number) => '{"a":'.repeat(depth) + inner + '}'.repeat(depth)],
  ])('may lie a hundred %s deep and no deeper', (_, nested) => {
    for (const inner of ['1', '""', 'null', '{}', '[]', '9007199254740993']) {
      expect(canonicalise(nested(inner, 100))).toBe(nested(inner, 100));
      expect(canonicalise(nested(inner, 101))).toBeUndefined();
    }
  });
});

describe('the identity', () => {
  const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex');
  const cut = (of: string | Uint8Array) => createHash('sha256').update(of).digest('hex').slice(0, 24);

  it('of a body is the hash of its form, where it has one, else of its bytes; an inbox that an earlier version wrote knows it', () => {
    expect(hex(identityOf(Buffer.from('{ "b": [1.0], "a": "\\u00e4" }')))).toBe(cut('{"a":"ä","b":[1]}'));
    expect(hex(identityOf(Buffer.from('\ufeff{}')))).toBe(cut('{}'));
    expect(hex(identityOf(Buffer.from(' no JSON')))).toBe(cut(' no JSON'));
    expect(hex(identityOf(Buffer.from('{"a":1,"a":2}')))).toBe(cut('{"a":1,"a":2}'));
    expect(hex(identityOf(Uint8Array.of(0x22, 0xff, 0x22)))).toBe(cut(Uint8Array.of(0x22, 0xff, 0x22)));
    expect(hex(identityOf(new Uint8Array()))).toBe('e3b0c44298fc1c149afbf4c8');
    expect(hex(identityOf(Buffer.from('{"a":1}')))).toBe('015abd7f5cc57a2dd94b7590');
  });

  it('of a delivery is that of its number within its registration', () => {
    expect(hex(deliveryIdentity('here', 7))).toBe(cut('\0delivery\0here\u00007'));
  });
});
