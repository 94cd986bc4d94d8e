import { request } from 'node:http';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';

let sandbox: Sandbox;

beforeEach(async () => {
  sandbox = new Sandbox();
  await sandbox.start();
});
afterEach(() => sandbox.stop());

function call(method: string, path: string, headers: Record<string, string>): Promise<number> {
  return new Promise((resolve, reject) => {
    const all = { 'Content-Type': 'text/plain', ...headers };
    request(`${sandbox.url}${path}`, { method, headers: all, agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode!);
    })
      .on('error', reject)
      .end();
  });
}

const own = () => new URL(sandbox.url).host;
const foreign = { Origin: 'http://evil.example' };

describe('web page from another origin', () => {
  it('cannot use the admin API, unlike a request without an origin', async () => {
    expect(await call('POST', '/sandbox/faults', {})).not.toBe(403);
    for (const method of ['POST', 'PATCH', 'DELETE']) {
      expect(await call(method, '/sandbox/offline', foreign)).toBe(403);
      expect(await call(method, '/sandbox/offline', { Origin: 'null' })).toBe(403);
    }
    expect(await call('GET', '/sandbox/status', {})).toBe(200);
  });

  it('cannot use the admin API through a host name that resolves to this machine', async () => {
    const rebound = { Host: 'evil.example:8480', Origin: 'http://evil.example:8480' };
    expect(await call('POST', '/sandbox/offline', rebound)).toBe(421);
    expect(await call('GET', '/sandbox/status', { Host: 'evil.example:8480' })).toBe(421);
    expect(await call('GET', '/sandbox/status', { Origin: `http://${own()}` })).toBe(200);
  });

  it('can use the platform API, which requires tokens', async () => {
    expect(await call('GET', '/v1/assets/1', foreign)).toBe(401);
  });
});
