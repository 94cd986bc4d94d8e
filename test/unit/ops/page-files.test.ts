import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { gunzipSync, gzipSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { InboundServer } from '../../../src/base/inbound/inbound-server.ts';
import { PageFiles } from '../../../src/base/inbound/page-files.ts';
import { OPS_LISTENER, OpsServer } from '../../../src/ops/ops-server.ts';
import { inboundServer } from '../doubles/inbound-server.ts';
import { HEALTHY, liveRoutes, noPage } from '../doubles/no-page.ts';

const SECRET = 'what the plant does';
let folder: string;
let inbound: InboundServer;
let server: OpsServer;
let asked: number;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'page-files-'));
  writeFileSync(join(folder, 'index.html'), '<!doctype html>the page');
  writeFileSync(join(folder, 'index.html.gz'), gzipSync('<!doctype html>the page'));
  writeFileSync(join(folder, 'main-0123456789.js'), 'script');
  writeFileSync(join(folder, 'main-0123456789.js.gz'), gzipSync('script'));
  writeFileSync(join(folder, 'private.key'), 'secret');
  asked = 0;
});

afterEach(async () => {
  await inbound.stop();
  rmSync(folder, { recursive: true });
});

async function start(opsToken?: string, host = '127.0.0.1') {
  const live = liveRoutes(() => {
    asked++;
    return { state: SECRET };
  });
  const health = () => HEALTHY;
  const metrics = async () => ({ contentType: 'text/plain', text: '' });
  const page = new PageFiles(pathToFileURL(`${folder}/`));
  inbound = inboundServer(OPS_LISTENER, { address: { host, port: 0 } });
  const sources = { ...noPage, health, readiness: health, status: () => ({}), metrics, page, live };
  server = new OpsServer(sources, inbound, { opsToken, opsHosts: undefined });
  await inbound.start();
  server.start();
}

const get = (path: string, headers: Record<string, string> = {}, method = 'GET') =>
  fetch(`http://127.0.0.1:${server.address!.split(':').at(-1)}${path}`, { headers, method });

describe('page files', () => {
  it('are cached indefinitely, except for the HTML document', async () => {
    await start();
    const page = await get('/');
    expect([page.status, await page.text()]).toEqual([200, '<!doctype html>the page']);
    expect(page.headers.get('cache-control')).toBe('no-cache');
    const script = await get('/page/main-0123456789.js');
    expect([script.status, await script.text()]).toEqual([200, 'script']);
    expect(script.headers.get('cache-control')).toContain('immutable');
  });

  it('are sent precompressed if the browser supports the encoding', async () => {
    await start();
    const gzip = await get('/', { 'Accept-Encoding': 'gzip;q=0.5, br;q=0' });
    expect(gzip.headers.get('content-encoding')).toBe('gzip');
    expect(Number(gzip.headers.get('content-length'))).toBe(gzipSync('<!doctype html>the page').length);
    expect(gunzipSync(gzipSync(await gzip.text())).toString()).toBe('<!doctype html>the page');
    expect((await get('/', { 'Accept-Encoding': 'identity' })).headers.get('content-encoding')).toBeNull();
  });

  it('exclude all other files on the machine', async () => {
    await start();
    const paths = ['/page/', '/page/private.key', '/page/index.html.gz', '/page/..%2f..%2fetc%2fpasswd', '/page/x.js'];
    for (const path of paths) expect([path, (await get(path)).status]).toEqual([path, 404]);
  });

  it('restrict the browser to the page’s own resources', async () => {
    await start();
    const policy = (await get('/')).headers.get('content-security-policy')!;
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("frame-ancestors 'none'");
    expect(policy).not.toMatch(/unsafe|https?:|\*/);
    expect((await get('/')).headers.get('set-cookie')).toBeNull();
  });

  it('are served regardless of the Accept header, and only for read requests', async () => {
    await start();
    expect((await get('/', { Accept: 'application/json' })).headers.get('content-type')).toContain('text/html');
    expect((await get('/status', { Accept: 'text/html' })).headers.get('content-type')).toContain('json');
    for (const method of ['POST', 'PUT', 'DELETE', 'PATCH'])
      for (const path of ['/', '/live/now', '/page/main-0123456789.js'])
        expect([path, (await get(path, {}, method)).status]).toEqual([path, 405]);
  });
});

describe('page viewer', () => {
  it('receives only the token form without a valid token', async () => {
    await start('the-token');
    const page = await get('/');
    expect([page.status, page.headers.get('content-type')]).toEqual([401, 'text/html; charset=utf-8']);
    // With `Basic`, a browser would open its own password prompt.
    expect(page.headers.get('www-authenticate')).toBeNull();
    const headers: Record<string, string>[] = [{}, { Authorization: 'Bearer wrong' }, { Authorization: 'Bearer' }];
    for (const header of headers) {
      const refused = await get('/live/now', header);
      expect([refused.status, refused.headers.get('www-authenticate')]).toEqual([401, 'Bearer realm="tagferry"']);
      expect(await refused.text()).not.toContain(SECRET);
    }
    expect((await get('/live/now?token=the-token')).status).toBe(401);
    expect(asked).toBe(0);
    expect((await get('/', { Authorization: 'Bearer the-token' })).status).toBe(200);
  });

  it('receives only a hint over the network if no token is configured', async () => {
    await start(undefined, '0.0.0.0');
    expect((await get('/')).status).toBe(403);
    const refused = await get('/live/now');
    expect([refused.status, ((await refused.json()) as { hint: string }).hint]).toEqual([
      403,
      expect.stringContaining('OPS_TOKEN'),
    ]);
  });

  it('is rejected if the request originates from another host', async () => {
    await start();
    expect((await get('/live/now', { Origin: 'http://evil.example' })).status).toBe(403);
  });
});
