import { request } from 'node:http';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';

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

describe('a web page of another origin', () => {
  it('acts on nothing behind the scenes, and a request of no page does', async () => {
    expect(await call('POST', '/sandbox/faults', {})).not.toBe(403);
    for (const method of ['POST', 'PATCH', 'DELETE']) {
      expect(await call(method, '/sandbox/offline', foreign)).toBe(403);
      expect(await call(method, '/sandbox/offline', { Origin: 'null' })).toBe(403);
    }
    expect(await call('GET', '/sandbox/status', {})).toBe(200);
  });

  it('does not either by a name of its own that it lets point here', async () => {
    const rebound = { Host: 'evil.example:8480', Origin: 'http://evil.example:8480' };
    expect(await call('POST', '/sandbox/offline', rebound)).toBe(421);
    expect(await call('GET', '/sandbox/status', { Host: 'evil.example:8480' })).toBe(421);
    expect(await call('GET', '/sandbox/status', { Origin: `http://${own()}` })).toBe(200);
  });

  it('may ask the platform itself, which knows its callers by their tokens', async () => {
    expect(await call('GET', '/v1/assets/1', foreign)).toBe(401);
  });
});
