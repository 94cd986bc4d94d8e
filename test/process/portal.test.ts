import type { IncomingMessage, ServerResponse } from 'node:http';
import { gzipSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { runVerb } from '../commands/verb-run.ts';
import { GatewayProcess } from './gateway-process.ts';
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

/** Ten values of each asset, acknowledged. */
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

/** How a portal, a proxy or half a platform answers posts and logins alike. */
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

describe('what answers in the platform’s place', () => {
  it('takes no value away, however it answers, one after the other', async () => {
    for (const [name, answer] of ANSWERS) {
      const before = agent.logged('uplink.away').length;
      portal.answer = answer;
      await push();
      await agent.until(() => agent.logged('uplink.away').length > before, `away: ${name}`);
      expect(missing(), name).toBe(ASSETS.length * 10);
      portal.answer = undefined;
      // A person may shorten the wait; the wait itself is measured elsewhere.
      await runVerb(['session', 'renew', '--config', agent.config]);
      await agent.until(() => missing() === 0, `everything is there after: ${name}`);
    }
    expect(agent.logged('uplink.quarantined')).toEqual([]);
    expect(agent.logged('access.held')).toEqual([]);
    // The platform has the last of them before the agent has its answer.
    await agent.until(
      async () => (await agent.metric('tagferry_values_delivered_total')) === offered,
      'all are counted',
    );
    expect(sandbox.values.counts().received).toBe(offered);
  });

  it('is told as such by the log, by status and by the doctor', async () => {
    portal.answer = (request, response) => {
      const isPost = request.url!.endsWith('/values');
      if (isPost) return status(200, { 'content-type': 'text/html' }, PAGE)(request, response);
      return response.destroy();
    };
    await push();
    await agent.until(() => agent.logged('uplink.away').length > 0, 'it is away');
    expect(agent.logged('uplink.away').at(-1)).toMatchObject({
      code: '200',
      words: 'status 200 with a body: Guest WLAN',
    });
    const { uplink } = (await agent.status()) as { uplink: { away: object } };
    const message = "something answers in the platform's place: status 200 with a body: Guest WLAN";
    expect(uplink.away).toMatchObject({ code: '200', message, foreign_answer: true });
    const doctor = await runVerb(['doctor', '--config', agent.config]);
    expect(doctor.stdout).toContain("something answers in the platform's place");
    expect(doctor.status).toBe(1);
  });

  it('is no token server: a login and a revocation that a portal answers did not happen', async () => {
    await agent.end('SIGTERM');
    portal.answer = status(204, {});
    agent.launch();
    await agent.until(() => agent.logged('ingest.listening').length > 1, 'values are taken');
    await push();
    const session = async () =>
      ((await agent.status()) as { session: { usable: boolean; last_error?: object } }).session;
    await agent.until(async () => (await session()).last_error !== undefined, 'the login failed');
    expect(await session()).toMatchObject({ usable: false, last_error: { code: 'platform.sign_in_unreadable' } });
    portal.answer = undefined;
    await runVerb(['session', 'renew', '--config', agent.config]);
    await agent.until(() => missing() === 0, 'everything is there');
    portal.answer = (request, response) => {
      if (request.url!.endsWith('/revoke'))
        return status(200, { 'content-type': 'text/html' }, PAGE)(request, response);
      return response.destroy();
    };
    expect(await agent.end('SIGTERM')).toBe(0);
    expect(sandbox.tokens.counts().alive).toBe(1);
    portal.answer = undefined;
    await agent.start();
    await agent.until(() => sandbox.tokens.counts().alive === 1, 'the next start took it back');
  });
});
