import { describe, expect, it } from 'vitest';
import { hostRefusal, hostRule } from '../../../src/base/inbound/host-rule.ts';

const LOOPBACK = { host: '127.0.0.1', port: 8472 };
const NETWORK = { host: '0.0.0.0', port: 8472 };

function statusOf(
  address: Parameters<typeof hostRule>[0],
  head: { host?: string; origin?: string; url?: string; twice?: boolean },
  hosts: string[] = [],
): number | undefined {
  const { host, origin, url = '/status', twice = false } = head;
  const rawHeaders = host === undefined ? [] : ['Host', host, ...(twice ? ['host', 'localhost'] : [])];
  const rule = hostRule(address, 'OPS_HOSTS', hosts);
  const headers = { ...(host === undefined ? {} : { host }), ...(origin === undefined ? {} : { origin }) };
  return rule && hostRefusal({ headers, rawHeaders, url }, rule)?.status;
}

describe('request host', () => {
  it.each([
    '127.0.0.1',
    '127.0.0.1:8472',
    '127.8.9.1:1',
    '[::1]',
    '[::1]:8472',
    'localhost',
    'LOCALHOST:80',
    'localhost.',
  ])('is accepted on loopback if it is %s', (host) => expect(statusOf(LOOPBACK, { host })).toBeUndefined());

  it.each([
    'evil.example',
    'evil.example:8472',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    'evil.example.',
    '192.0.2.1',
    '[::2]',
    '::1',
    'localhost@evil.example',
    '128.0.0.1',
  ])('is rejected on loopback if it is %s', (host) => expect(statusOf(LOOPBACK, { host })).toBe(421));

  it('is accepted if omitted in HTTP/1.0 or configured, regardless of case, port and trailing dot', () => {
    expect(statusOf(LOOPBACK, {})).toBeUndefined();
    expect(statusOf(LOOPBACK, { host: '' })).toBeUndefined();
    expect(statusOf(LOOPBACK, { host: 'GW.example.com.:443' }, ['gw.example.com'])).toBeUndefined();
    expect(statusOf({ host: '::1', port: 1 }, { host: 'evil.example' })).toBe(421);
  });

  it('is read from an absolute request target and must be unique', () => {
    expect(statusOf(LOOPBACK, { host: 'localhost', url: 'http://evil.example/status' })).toBe(421);
    expect(statusOf(LOOPBACK, { host: 'localhost', url: 'http://127.0.0.1/status' })).toBeUndefined();
    expect(statusOf(LOOPBACK, { host: 'localhost', twice: true })).toBe(400);
  });

  it('is not checked on network addresses and Unix sockets', () => {
    expect(statusOf(NETWORK, { host: 'gateway.example.com' })).toBeUndefined();
    expect(
      statusOf({ path: '/run/ops.sock' }, { host: 'evil.example', origin: 'http://evil.example' }),
    ).toBeUndefined();
  });
});

describe('request origin', () => {
  it('is rejected unless it matches the listener or a configured host', () => {
    const host = '127.0.0.1:8472';
    expect(statusOf(LOOPBACK, { host, origin: 'http://127.0.0.1:8472' })).toBeUndefined();
    expect(statusOf(LOOPBACK, { host, origin: 'http://localhost:1880' })).toBeUndefined();
    expect(statusOf(LOOPBACK, { host, origin: 'https://evil.example' })).toBe(403);
    expect(statusOf(LOOPBACK, { host, origin: 'null' })).toBe(403);
    expect(statusOf(LOOPBACK, { host, origin: 'https://gw.example.com' }, ['gw.example.com'])).toBeUndefined();
    expect(statusOf(NETWORK, { host: 'gw:8472', origin: 'http://gw:8472' })).toBeUndefined();
    expect(statusOf(NETWORK, { host: 'gw:8472', origin: 'http://evil.example' })).toBe(403);
  });
});
