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
import { ManualClock } from '../doubles/manual-clock.ts';
import { HEALTHY, liveRoutes, noPage } from '../doubles/no-page.ts';

const LOOPBACK = { host: '127.0.0.1', port: 0 };
let inbound: InboundServer;
let server: OpsServer;

async function start(
  address: ListenAddress,
  access: Partial<OpsAccess> = {},
  { live = noPage.live, clock = noPage.clock, ...place }: InboundPlace & Partial<typeof noPage> = {},
) {
  inbound = inboundServer(OPS_LISTENER, { address, ...place });
  server = new OpsServer(
    {
      health: () => HEALTHY,
      readiness: () => HEALTHY,
      status: () => ({ secretOfThePlant: 12.5 }),
      metrics: async () => ({ contentType: 'text/plain', text: 'up 1\n' }),
      ...noPage,
      live,
      clock,
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

describe('data of the page', () => {
  const VIEWS = ['now', 'history', 'tags', 'tag', 'held'];
  const VIEWS_OF_ALL = ['events', 'assets', 'log', 'doctor'];
  const statusesOf = async (views: readonly string[], headers = {}) => {
    const answers = await Promise.all(views.map((view) => get(`/live/${view}`, headers)));
    return [...new Set(answers.map(({ status }) => status))];
  };
  const withToken = { Authorization: 'Bearer the-token' };

  it('requires OPS_TOKEN if it is configured', async () => {
    let computed = 0;
    const live = liveRoutes(() => ({ computed: ++computed }));
    await start(LOOPBACK, { opsToken: 'the-token' }, { live });
    expect(await statusesOf([...VIEWS, ...VIEWS_OF_ALL])).toEqual([401]);
    expect(await statusesOf([...VIEWS, ...VIEWS_OF_ALL], { Authorization: 'Bearer another' })).toEqual([401]);
    expect(computed).toBe(0);
    expect((await get('/live/now')).headers['www-authenticate']).toBe('Bearer realm="tagferry"');
    expect(await statusesOf([...VIEWS, ...VIEWS_OF_ALL], withToken)).toEqual([200]);
  });

  it('contains no events, assets, log lines and checks without OPS_TOKEN', async () => {
    const seen: string[] = [];
    const live = liveRoutes(({ sight }) => {
      seen.push(sight);
      return {};
    });
    await start(LOOPBACK, {}, { live });
    expect(await statusesOf(VIEWS)).toEqual([200]);
    expect(await statusesOf(VIEWS_OF_ALL)).toEqual([403]);
    expect(seen).toEqual(VIEWS.map(() => 'status'));
    expect(await statusesOf(['stream', 'constructor', 'now/', ''])).toEqual([404]);
  });

  it('is computed once per second and subject, regardless of the number of viewers', async () => {
    const clock = new ManualClock();
    let computed = 0;
    const live = liveRoutes(({ of, after }) => ({ computed: ++computed, of, after }));
    await start(LOOPBACK, {}, { live, clock });
    const numbers = async (path: string) => {
      const answers = await Promise.all(Array.from({ length: 10 }, () => get(path)));
      return [...new Set(answers.map(({ text }) => (JSON.parse(text) as { computed: number }).computed))];
    };
    expect(await numbers('/live/now')).toEqual([1]);
    expect(await numbers('/live/now')).toEqual([1]);
    expect(await numbers('/live/tag?of=FT-101%2Fflow&after=a.7')).toEqual([2]);
    expect(JSON.parse((await get('/live/tag?of=FT-101%2Fflow&after=a.7')).text)).toMatchObject({
      of: 'FT-101/flow',
      after: 'a.7',
    });
    await clock.advance(1_000);
    expect(await numbers('/live/now')).toEqual([3]);
  });

  it('is requested from a slow store once at a time', async () => {
    const clock = new ManualClock();
    const pending: ((data: object) => void)[] = [];
    const live = liveRoutes(() => new Promise<object>((resolve) => pending.push(resolve)));
    await start(LOOPBACK, {}, { live, clock });
    const answers = [get('/live/held'), get('/live/held')];
    await expect.poll(() => pending.length).toBe(1);
    await clock.advance(60_000);
    answers.push(get('/live/held'));
    expect((await get('/healthz')).status).toBe(200);
    pending[0]!({ rows: 1 });
    for (const answer of answers) expect(JSON.parse((await answer).text)).toEqual({ rows: 1 });
    expect(pending).toHaveLength(1);
  });

  it('is stored for a limited number of subjects, and available for all', async () => {
    let computed = 0;
    const live = liveRoutes(() => ({ computed: ++computed }));
    await start(LOOPBACK, {}, { live, clock: new ManualClock() });
    const numberOf = async (of: number) => {
      const { status, text } = await get(`/live/tag?of=${of}`);
      expect(status).toBe(200);
      return (JSON.parse(text) as { computed: number }).computed;
    };
    for (let n = 1; n <= 200; n++) expect(await numberOf(n)).toBe(n);
    expect(await numberOf(200)).toBe(200);
    expect(await numberOf(1)).toBe(201);
  });

  it('reports a failure, and recovers one second later', async () => {
    const clock = new ManualClock();
    let isFailing = true;
    const live = liveRoutes(async () => {
      if (isFailing) throw new Error('the disk is not readable');
      return {};
    });
    await start(LOOPBACK, {}, { live, clock });
    const failed = await get('/live/held');
    expect([failed.status, JSON.parse(failed.text)]).toEqual([503, { error: 'the disk is not readable' }]);
    isFailing = false;
    await clock.advance(1_000);
    expect((await get('/live/held')).status).toBe(200);
  });

  it('is compressed if the browser supports it', async () => {
    const live = liveRoutes(() => ({ text: 'x'.repeat(10_000) }));
    await start(LOOPBACK, {}, { live });
    const plain = await get('/live/now');
    const gzip = await get('/live/now', { 'Accept-Encoding': 'gzip, br' });
    expect(plain.headers['content-encoding']).toBeUndefined();
    expect(gzip.headers['content-encoding']).toBe('gzip');
    expect(Number(gzip.headers['content-length'])).toBeLessThan(plain.text.length / 10);
  });
});
