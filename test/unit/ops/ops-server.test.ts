import { mkdtempSync, rmSync } from 'node:fs';
import { request } from 'node:http';
import { request as tlsRequest } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { InboundServer } from '../../../src/base/inbound/inbound-server.ts';
import type { ListenAddress } from '../../../src/base/listen.ts';
import { OPS_LISTENER, type OpsAccess, OpsServer } from '../../../src/ops/ops-server.ts';
import { type InboundPlace, inboundServer } from '../doubles/inbound-server.ts';
import { HEALTHY, noPage } from '../doubles/no-page.ts';

const LOOPBACK = { host: '127.0.0.1', port: 0 };
let inbound: InboundServer;
let server: OpsServer;

async function start(address: ListenAddress, access: Partial<OpsAccess> = {}, place: InboundPlace = {}) {
  inbound = inboundServer(OPS_LISTENER, { address, ...place });
  server = new OpsServer(
    {
      health: () => HEALTHY,
      readiness: () => HEALTHY,
      status: () => ({ secretOfThePlant: 12.5 }),
      metrics: async () => ({ contentType: 'text/plain', text: 'up 1\n' }),
      ...noPage,
    },
    inbound,
    { opsToken: undefined, opsHosts: undefined, ...access },
  );
  await inbound.start();
  server.start();
}

afterEach(() => inbound.stop());

interface Answer {
  status: number;
  headers: Record<string, unknown>;
  text: string;
}

function get(path: string, headers: Record<string, string> = {}, ca?: string): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const at = server.address!;
    const where = at.startsWith('unix:')
      ? { socketPath: at.slice(5) }
      : { host: '127.0.0.1', port: Number(at.split(':').at(-1)) };
    const send = ca === undefined ? request : tlsRequest;
    send({ ...where, path, headers, agent: false, ...(ca ? { ca, rejectUnauthorized: false } : {}) }, (response) => {
      let text = '';
      response.on('data', (chunk) => {
        text += chunk;
      });
      response.on('end', () => resolve({ status: response.statusCode!, headers: response.headers, text }));
    })
      .on('error', reject)
      .end();
  });
}

const statuses = async (headers: Record<string, string> = {}) => {
  const all: number[] = [];
  for (const path of ['/healthz', '/readyz', '/metrics', '/status']) all.push((await get(path, headers)).status);
  return all;
};

describe('operations listener on loopback', () => {
  it('rejects other host names to prevent DNS rebinding', async () => {
    await start(LOOPBACK);
    expect(await statuses()).toEqual([200, 200, 200, 200]);
    expect(await statuses({ Host: 'evil.example:8472' })).toEqual([421, 421, 421, 421]);
    expect(await statuses({ Host: 'localhost', Origin: 'http://evil.example' })).toEqual([403, 403, 403, 403]);
    const refused = await get('/status', { Host: 'evil.example' });
    expect(refused.text).not.toContain('secretOfThePlant');
    expect(JSON.parse(refused.text).hint).toContain('OPS_HOSTS');
  });

  it('requires OPS_TOKEN, if configured, for status but not for health and metrics', async () => {
    await start(LOOPBACK, { opsToken: 'the-token', opsHosts: ['gw.example.com'] });
    expect(await statuses()).toEqual([200, 200, 200, 401]);
    const { headers } = await get('/status');
    expect(String(headers['www-authenticate'])).toMatch(/Bearer.*Basic/);
    expect((await get('/status', { Authorization: 'Bearer the-token' })).status).toBe(200);
    expect((await get('/status', { Authorization: `Basic ${btoa('any:the-token')}` })).status).toBe(200);
    expect((await get('/status', { Authorization: 'Bearer another' })).status).toBe(401);
    expect((await get('/status?p=the-token')).status).toBe(401);
    const proxied = { Host: 'gw.example.com', Origin: 'https://gw.example.com', Authorization: 'Bearer the-token' };
    expect((await get('/status', proxied)).status).toBe(200);
    server.setAccess({ opsToken: 'another', opsHosts: undefined });
    expect((await get('/status', { Authorization: 'Bearer the-token' })).status).toBe(401);
    expect((await get('/status', { ...proxied, Authorization: 'Bearer another' })).status).toBe(421);
  });
});

describe('operations listener on the network', () => {
  it('rejects remote status requests if OPS_TOKEN is not configured', async () => {
    await start({ host: '0.0.0.0', port: 0 });
    expect(await statuses({ Host: 'gateway-1:8472' })).toEqual([200, 200, 200, 403]);
    expect(JSON.parse((await get('/status')).text).hint).toContain('OPS_TOKEN');
  });

  it('accepts any host name on a Unix socket', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'ops-'));
    await start({ path: join(folder, 'ops.sock') });
    expect(await statuses({ Host: 'gateway.example.com' })).toEqual([200, 200, 200, 200]);
    await inbound.stop();
    rmSync(folder, { recursive: true });
  });

  it('uses HTTPS with its own certificate', async () => {
    const certificates = join(import.meta.dirname, '../../fixtures/certificates');
    const [keyFile, certFile] = [join(certificates, 'server.key'), join(certificates, 'self-signed.pem')];
    await start(LOOPBACK, {}, { tls: { certFile, keyFile, settings: 'OPS_TLS' } });
    expect((await get('/healthz', {}, certFile)).status).toBe(200);
    await expect(get('/healthz')).rejects.toThrow();
  });
});
