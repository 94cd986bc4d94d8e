import { expect, it } from 'vitest';
import { jsonText, plain, visible } from '../../src/base/foreign-text.ts';

const HOSTILE = 'a\u001b[31mb\u202ec\u2066d\u200be\u0085f\u{e0041}g\u007f\u2028h\ufeff';

it('what steers a terminal or reads as what it is not is shown as its escape', () => {
  expect(visible(HOSTILE)).toBe('a\\u001b[31mb\\u202ec\\u2066d\\u200be\\u0085f\\udb40\\udc41g\\u007f\\u2028h\\ufeff');
  expect(visible('one\ntwo\r')).toBe('one\ntwo\\u000d');
  expect(visible('Ventil Größe 100 °C 温度 🙂')).toBe('Ventil Größe 100 °C 温度 🙂');
});

it('text on one line has neither breaks nor marks', () => {
  expect(plain(' tag\n\tname\u202e ')).toBe('tag name\\u202e');
});

it('JSON stays JSON of the same value', () => {
  const value = { text: HOSTILE, list: ['\u202e'] };
  expect(JSON.parse(jsonText(value))).toEqual(value);
  expect(jsonText(value)).not.toMatch(/\p{Cf}/u);
  expect(jsonText({ a: 1 }, 0)).toBe('{"a":1}');
});
