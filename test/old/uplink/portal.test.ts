import type { IncomingMessage, ServerResponse } from 'node:http';
import { gzipSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { GatewayProcess } from '../../host/gateway-process.ts';
import { runVerb } from '../commands/verb-run.ts';
import { Portal } from './portal.ts';

const ASSETS = [881, 882, 883];
const TAGS = `tags:\n${ASSETS.map((asset) => `  T-${asset}: { asset: ${asset}, values: { flow: {} } }\n`).join('')}`;
const PAGE = '<html><title>Guest WLAN</title><form action="/login"><input name="password"></form></html>';

let sandbox: Sandbox;
let portal: Portal;
let agent: GatewayProcess;
let offered = 0;

beforeEach(async () => {
  offered = 0;
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  portal = new Portal(sandbox.url);
  await portal.start();
  agent = new GatewayProcess(portal.url, { tags: TAGS });
  await agent.start();
});
afterEach(async () => {
  await agent.dispose();
  await portal.stop();
  await sandbox.stop();
});

/** Ten acknowledged values per asset. */
async function push(): Promise<void> {
  const values = ASSETS.flatMap((asset) =>
    Array.from({ length: 10 }, () => ({
      tag: `T-${asset}`,
      key: 'flow',
      value: ++offered,
      timestamp: 1_700_000_000_000 + offered,
    })),
  );
  expect((await agent.push(values)).status).toBe(204);
}

const missing = () => offered - sandbox.values.counts().stored;
const raw = (text: string) => (request: IncomingMessage) => void request.socket.end(text);
const status =
  (code: number, headers: Record<string, string>, body?: string | Buffer) =>
  (_request: IncomingMessage, response: ServerResponse) =>
    void response.writeHead(code, headers).end(body);

/** Responses of portals, proxies and incomplete platforms to posts and logins. */
const ANSWERS: [string, (request: IncomingMessage, response: ServerResponse) => void][] = [
  ['200 with its page', status(200, { 'content-type': 'text/html' }, PAGE)],
  ['200 with errors', status(200, { 'content-type': 'application/json' }, '{"errors":[{"type":"x","message":"y"}]}')],
  ['302 to its login', status(302, { location: 'http://portal.example/login' })],
  ['207', status(207, { 'content-type': 'application/xml' }, '<multistatus/>')],
  ['202', status(202, { 'content-length': '0' })],
  ['200 cut in the middle', raw('HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{"values"')],
  ['HTTP/1.0 without a length', raw('HTTP/1.0 200 OK\r\n\r\n')],
  ['a bomb', status(200, { 'content-encoding': 'gzip' }, gzipSync(Buffer.alloc(16 * 1024 * 1024)))],
  ['an unasked 100', raw('HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}')],
  ['garbage', raw('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n')],
  ['its page with 404', status(404, { 'content-type': 'text/html' }, PAGE)],
];

describe('server in place of the platform', () => {
  it('causes no loss of values, regardless of its responses', async () => {
    for (const [name, answer] of ANSWERS) {
      const before = agent.logged('uplink.away').length;
      portal.answer = answer;
      await push();
      await agent.until(() => agent.logged('uplink.away').length > before, `platform unavailable: ${name}`);
      expect(missing(), name).toBe(ASSETS.length * 10);
      portal.answer = undefined;
      // An operator can shorten the wait; the wait itself is tested elsewhere.
      await runVerb(['session', 'renew', '--config', agent.config]);
      await agent.until(() => missing() === 0, `everything has arrived after: ${name}`);
    }
    expect(agent.logged('uplink.quarantined')).toEqual([]);
    expect(agent.logged('access.held')).toEqual([]);
    // The platform stores the latest value before the agent receives the response.
    await agent.until(
      async () => (await agent.metric('tagferry_values_delivered_total')) === offered,
      'all values are counted',
    );
    expect(sandbox.values.counts().received).toBe(offered);
  });

  it('is identified as such in the log, status and doctor', async () => {
    portal.answer = (request, response) => {
      const isPost = request.url!.endsWith('/values');
      if (isPost) return status(200, { 'content-type': 'text/html' }, PAGE)(request, response);
      return response.destroy();
    };
    await push();
    await agent.until(() => agent.logged('uplink.away').length > 0, 'the platform is unavailable');
    expect(agent.logged('uplink.away').at(-1)).toMatchObject({
      code: '200',
      reason: 'status 200 with a body: Guest WLAN',
    });
    const { uplink } = (await agent.status()) as { uplink: { away: object } };
    const message = 'the response is not from the platform: status 200 with a body: Guest WLAN';
    expect(uplink.away).toMatchObject({ code: '200', message, foreign_answer: true });
    const doctor = await runVerb(['doctor', '--config', agent.config]);
    expect(doctor.stdout).toContain('the response is not from the platform');
    expect(doctor.status).toBe(1);
  });

  it('is not accepted as a token server for login and revocation', async () => {
    await agent.end('SIGTERM');
    portal.answer = status(204, {});
    agent.launch();
    await agent.until(() => agent.logged('ingest.listening').length > 1, 'values are accepted');
    await push();
    const session = async () =>
      ((await agent.status()) as { session: { usable: boolean; last_error?: object } }).session;
    await agent.until(async () => (await session()).last_error !== undefined, 'the login failed');
    expect(await session()).toMatchObject({ usable: false, last_error: { code: 'platform.sign_in_unreadable' } });
    portal.answer = undefined;
    await runVerb(['session', 'renew', '--config', agent.config]);
    await agent.until(() => missing() === 0, 'everything has arrived');
    portal.answer = (request, response) => {
      if (request.url!.endsWith('/revoke'))
        return status(200, { 'content-type': 'text/html' }, PAGE)(request, response);
      return response.destroy();
    };
    expect(await agent.end('SIGTERM')).toBe(0);
    expect(sandbox.tokens.counts().alive).toBe(1);
    portal.answer = undefined;
    await agent.start();
    await agent.until(() => sandbox.tokens.counts().alive === 1, 'the next start reverted it');
  });
});
