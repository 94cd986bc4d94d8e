import { describe, expect, it } from 'vitest';
import { type LineReceiver, msOfPrecision, parseLineProtocol } from '../../../src/sources/formats/line-protocol.ts';
import { seeded } from './sink-double.ts';

type Heard = [what: string, ...rest: (string | number | undefined)[]];

function hear(text: string, precision: string | null = 'ms'): Heard[] {
  const heard: Heard[] = [];
  const receiver: LineReceiver = {
    value: (measurement, key, value) => heard.push(['number', measurement, key, Number(value)]),
    text: (measurement, key) => heard.push(['wrong', measurement, key]),
    wrong: (measurement, key) => heard.push(['wrong', measurement, key]),
    endOfLine: (timeMs) => heard.push(['line', timeMs]),
  };
  parseLineProtocol(text, msOfPrecision(precision)!, receiver);
  return heard;
}

/** Splits at each unescaped and unquoted separator. Simple, but slow. */
function cut(text: string, mark: string, most = Number.POSITIVE_INFINITY): string[] {
  const parts = [''];
  let quoted = false;
  for (let at = 0; at < text.length; at++) {
    const letter = text[at]!;
    if (letter === '\\' && at + 1 < text.length) parts[parts.length - 1] += letter + text[++at];
    else {
      if (letter === '"') quoted = !quoted;
      if (letter === mark && !quoted && parts.length < most) parts.push('');
      else parts[parts.length - 1] += letter;
    }
  }
  return parts;
}

function hearSlowly(text: string): Heard[] {
  const heard: Heard[] = [];
  for (const line of cut(text, '\n')) {
    if (line === '' || line.startsWith('#')) continue;
    const [series, fields, time] = cut(line, ' ') as [string, string, string | undefined];
    const measurement = cut(series, ',')[0]!.replace(/\\(.)/g, '$1');
    for (const field of cut(fields, ',')) {
      const [key, value] = cut(field, '=', 2) as [string, string];
      const name = key.replace(/\\(.)/g, '$1');
      const truth = { t: 1, true: 1, f: 0, false: 0 }[value.toLowerCase()];
      if (value.startsWith('"')) heard.push(['wrong', measurement, name]);
      else heard.push(['number', measurement, name, truth ?? Number(value.replace(/[iu]$/, ''))]);
    }
    heard.push(['line', time === undefined ? Number.NaN : Number(time)]);
  }
  return heard;
}

describe('line protocol parser', () => {
  it('returns the same results as a simple reference parser for ten thousand random bodies', () => {
    const random = seeded(42);
    const below = (bound: number) => Math.floor(random() * bound);
    const pick = <T>(list: readonly T[]): T => list[below(list.length)]!;
    const name = (specials: string) =>
      Array.from({ length: 1 + below(8) }, (_, at) => {
        const letter = pick(['a', 'b', 'Z', '9', '_', '-', 'é', '"', '/', ...specials]);
        return specials.includes(letter) ? `\\${letter}` : at === 0 && letter === '"' ? 'q' : letter.replace('"', 'x');
      }).join('');
    const value = () =>
      pick([
        () => String(below(1000) / 10),
        () => `-${below(10 ** 9)}i`,
        () => `${below(10 ** 6)}u`,
        () => `${random() * 10 ** below(20)}`,
        () => `${random()}e-${below(30)}`,
        () => pick(['t', 'T', 'true', 'True', 'TRUE', 'f', 'F', 'false', 'False', 'FALSE']),
        () => `"${pick(['', 'a b', 'x,y=1', '\\"', '\\\\', '# no comment', 'two\nlines', 'é'])}"`,
      ])();
    for (let round = 0; round < 10_000; round++) {
      const lines = Array.from({ length: 1 + below(5) }, () => {
        if (random() < 0.1) return pick(['', '# a comment, with=everything "']);
        const measurement = random() < 0.5 ? 'FT-101' : name(', ');
        const tags = Array.from({ length: below(3) }, () => `,${name(',= ')}=${name(',= ')}`).join('');
        const fields = Array.from({ length: 1 + below(3) }, () => `${name(',= ')}=${value()}`).join(',');
        return `${measurement}${tags} ${fields}${random() < 0.7 ? ` ${below(2 ** 41)}` : ''}`;
      });
      const text = lines.join('\n') + (random() < 0.5 ? '\n' : '');
      // The simple parser would treat the quote in a comment as a string.
      expect([text, hear(text)]).toEqual([text, hearSlowly(text.replaceAll('everything "', 'everything'))]);
    }
  });

  it('accepts CRLF line endings, and spaces around every part', () => {
    expect(hear('a b=1 5\r\n\r\n  c,t=v   d=2,e=3\t 6  \r\n# x\r\nf g=4\r')).toEqual([
      ['number', 'a', 'b', 1],
      ['line', 5],
      ['number', 'c', 'd', 2],
      ['number', 'c', 'e', 3],
      ['line', 6],
      ['number', 'f', 'g', 4],
      ['line', Number.NaN],
    ]);
  });

  it('distinguishes between measurements and keys with a common prefix', () => {
    expect(hear('a b=1\nab b=2\na,x=y bb=3\na\\ c b\\=1=4')).toEqual([
      ['number', 'a', 'b', 1],
      ['line', Number.NaN],
      ['number', 'ab', 'b', 2],
      ['line', Number.NaN],
      ['number', 'a', 'bb', 3],
      ['line', Number.NaN],
      ['number', 'a c', 'b=1', 4],
      ['line', Number.NaN],
    ]);
  });

  it.each([
    ['ns', '1795219200123999999', 1795219200123],
    [null, '1795219200123999999', 1795219200123],
    ['us', '1795219200123999', 1795219200123],
    ['ms', '1795219200123', 1795219200123],
    ['s', '1795219200', 1795219200000],
    ['m', '29920320', 1795219200000],
    ['h', '498672', 1795219200000],
    ['ns', '999999', 0],
    ['ns', '-1', -1],
    ['s', '0', 0],
  ])('reads a time in %s', (precision, time, timeMs) => {
    expect(hear(`a b=1 ${time}`, precision).at(-1)).toEqual(['line', timeMs]);
  });

  it.each([
    '1.5x',
    'abc',
    'NaN',
    'Inf',
    '--1',
    '1e',
    '1e400',
    '.',
    '-',
    '1.5i',
    '-1u',
    'i',
    '9007199254740993i',
    'tRuE',
    '0x10',
    '1_000',
  ])('reports %s as an unsupported value', (value) => {
    expect(hear(`a b=${value}`)).toEqual([
      ['wrong', 'a', 'b'],
      ['line', Number.NaN],
    ]);
  });

  it.each([
    'a',
    'a ',
    ' ,x=1 b=1',
    'a,x b=1',
    'a,x= b=1',
    'a,=1 b=1',
    'a,x=1=2 b=1',
    'a b',
    'a b=',
    'a =1',
    'a b=1,',
    'a b=1,,c=2',
    'a b=1 x',
    'a b=1 5 6',
    'a b=1 5x',
    'a b="x',
    'a b="x"y',
    'a b=1 1.5',
    'a b=1\nb',
    'a,x=1',
    'a b=1 -',
    'a b=1 123456789012345678901',
  ])('rejects %j', (text) => {
    expect(() => hear(text)).toThrow(expect.objectContaining({ code: 'intake.unreadable' }));
  });

  it('reads the largest exact integers without rounding', () => {
    expect(hear('a b=9007199254740991i,c=-9007199254740991i,d=18446744073709551615u')).toEqual([
      ['number', 'a', 'b', 9007199254740991],
      ['number', 'a', 'c', -9007199254740991],
      ['wrong', 'a', 'd'],
      ['line', Number.NaN],
    ]);
  });
});
