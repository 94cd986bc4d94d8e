import { expect, it } from 'vitest';
import { jsonText, plain, visible } from '../../../src/base/foreign-text.ts';

const HOSTILE = 'a\u001b[31mb\u202ec\u2066d\u200be\u0085f\u{e0041}g\u007f\u2028h\ufeff';

it('external text shows control and misleading characters as escape sequences', () => {
  expect(visible(HOSTILE)).toBe('a\\u001b[31mb\\u202ec\\u2066d\\u200be\\u0085f\\udb40\\udc41g\\u007f\\u2028h\\ufeff');
  expect(visible('one\ntwo\r')).toBe('one\ntwo\\u000d');
  expect(visible('Ventil Größe 100 °C 温度 🙂')).toBe('Ventil Größe 100 °C 温度 🙂');
});

it('external text formatted for one line contains no line breaks', () => {
  expect(plain(' tag\n\tname\u202e ')).toBe('tag name\\u202e');
});

it('escaped JSON has the same value as the original', () => {
  const value = { text: HOSTILE, list: ['\u202e'] };
  expect(JSON.parse(jsonText(value))).toEqual(value);
  expect(jsonText(value)).not.toMatch(/\p{Cf}/u);
  expect(jsonText({ a: 1 }, 0)).toBe('{"a":1}');
});
