import { describe, expect, it } from 'vitest';
import {
  formatListenAddress,
  isLocalAddress,
  isLoopbackHost,
  readListenAddress,
} from '../../../src/base/listen-address.ts';

describe('listen address', () => {
  it.each([
    ['127.0.0.1:8470', { host: '127.0.0.1', port: 8470 }],
    [':8471', { host: '127.0.0.1', port: 8471 }],
    ['[::1]:8470', { host: '::1', port: 8470 }],
    ['[::]:0', { host: '::', port: 0 }],
    ['*:80', { host: '0.0.0.0', port: 80 }],
    ['gateway.local:8470', { host: 'gateway.local', port: 8470 }],
    ['unix:/run/tagferry/in.sock', { path: '/run/tagferry/in.sock' }],
    ['', undefined],
    ['  ', undefined],
  ])('parses %j as %j', (text, value) => expect(readListenAddress(text)).toEqual({ value }));

  it.each([
    '8470',
    '127.0.0.1',
    '::1:8470',
    '[::1]',
    '[nope]:1',
    'host:65536',
    'host:-1',
    'http://host:80',
    'a b:1',
    'unix:run/x',
    `unix:/${'x'.repeat(107)}`,
  ])('rejects %j with a suggestion', (text) =>
    expect(readListenAddress(text)).toMatchObject({
      reason: expect.any(String),
      instead: expect.stringMatching(/^use /),
    }),
  );

  it('is formatted as it is written in the settings', () => {
    for (const text of ['127.0.0.1:8470', '[::1]:8470', 'unix:/run/x.sock', 'localhost:1']) {
      const reading = readListenAddress(text);
      expect('value' in reading && reading.value && formatListenAddress(reading.value)).toBe(text);
    }
  });
});

describe('loopback check', () => {
  it.each(['127.0.0.1', '127.8.8.8', 'localhost', 'LOCALHOST', '::1', '[::1]', '::ffff:127.0.0.1'])(
    'accepts %s',
    (host) => expect(isLoopbackHost(host)).toBe(true),
  );
  it.each(['0.0.0.0', '::', '10.0.0.1', '127.0.0.1.example.com', 'localhost.example.com', '1270.0.0.1'])(
    'rejects %s',
    (host) => expect(isLoopbackHost(host)).toBe(false),
  );
  it('accepts Unix sockets', () => expect(isLocalAddress({ path: '/x' })).toBe(true));
});
