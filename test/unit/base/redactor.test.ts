import { describe, expect, it } from 'vitest';
import { Redactor } from '../../../src/base/redactor.ts';

const SECRET = 'p&ss=wörd "x" +/%<é>\\';
const TOKEN = 'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJnYXRld2F5In0.c2lnbmF0dXJlLW9mLXRoZS10b2tlbg';

function redactorOf(...secrets: string[]): Redactor {
  const redactor = new Redactor();
  redactor.configure(secrets);
  return redactor;
}

const form = (text: string) => new URLSearchParams([['', text]]).toString().slice(1);
const lower = (text: string) => text.replaceAll(/%[0-9A-F]{2}/g, (code) => code.toLowerCase());
const base64 = (text: string) => Buffer.from(text).toString('base64');
const html = (text: string) =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&#34;');
const unicode = (text: string) =>
  [...text].map((one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0').toUpperCase()}`).join('');

const ENCODINGS: Record<string, (text: string) => string> = {
  'as it is': (text) => text,
  'percent-encoded': encodeURIComponent,
  'percent-encoded in lower case': (text) => lower(encodeURIComponent(text)),
  'form-encoded': form,
  'form-encoded in lower case': (text) => lower(form(text)),
  'escaped in JSON': (text) => JSON.stringify(text).slice(1, -1),
  'escaped in JSON by code points': unicode,
  'escaped in HTML': html,
  'form-encoded inside JSON inside HTML': (text) => html(JSON.stringify(`password=${form(text)}`)),
  'in Base64': base64,
  'in Base64url': (text) => Buffer.from(text).toString('base64url'),
  'in Base64 that is percent-encoded': (text) => encodeURIComponent(base64(text)),
  'in a Basic header': (text) => `Basic ${base64(`client-1:${form(text)}`)}`,
  'in a Basic header, one byte further': (text) => `Basic ${base64(`client-12:${form(text)}`)}`,
  'in a Basic header, two bytes further': (text) => `Basic ${base64(`client-123:${form(text)}`)}`,
};

describe('redactor', () => {
  it.each(Object.entries(ENCODINGS))('removes a secret %s', (_name, encode) => {
    const redactor = redactorOf(SECRET, TOKEN);
    for (const secret of [SECRET, TOKEN]) {
      const echoed = encode(secret);
      const text = redactor.redact(`before (${echoed}) after`);
      expect(text).toMatch(/^before \(.*\*\*\*.*\) after$/s);
      expect(text).not.toContain(echoed.slice(-16));
      expect(text.length).toBeLessThan(60);
    }
  });

  it.each([16, 40, TOKEN.length - 1])('removes a token that was truncated to %d characters', (length) => {
    expect(redactorOf(TOKEN).redact(`invalid token ${TOKEN.slice(0, length)}`)).toBe('invalid token ***');
    const cut = base64(TOKEN).slice(0, length + 8);
    expect(redactorOf(TOKEN).redact(`invalid token ${cut}`)).toBe('invalid token ***');
  });

  it('leaves other text unchanged', () => {
    const text = 'the unit "bar" is unknown: see https://example.com/a%20b?c=d&amp;e \\u00e9 aGVsbG8=';
    expect(redactorOf(SECRET, TOKEN).redact(text)).toBe(text);
    expect(new Redactor().redact(text)).toBe(text);
    expect(redactorOf('abc').redact('abc')).toBe('abc');
  });

  it('preserves the text around and between secrets', () => {
    const redactor = redactorOf('hunter2', 'letmein!');
    expect(redactor.redact('%7Bhunter2, letmein%21%7D hunter2hunter2')).toBe('%7B***, ***%7D ******');
  });

  it('removes secrets from the previous configuration and the most recent tokens', () => {
    const redactor = redactorOf('old-password');
    redactor.configure(['new-password']);
    expect(redactor.redact('old-password new-password')).toBe('*** ***');
    for (let i = 0; i < 1_000; i++) redactor.learn(`token-number-${i}-of-a-long-day`);
    expect(redactor.redact('token-number-998-of-a-long-day and new-password')).toBe('*** and ***');
  });
});
