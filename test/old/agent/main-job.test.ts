import { spawn } from 'node:child_process';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../../src/sandbox/sandbox.ts';
import { MAIN } from '../../built-agent.ts';
import { type AgentFiles, AgentProcess } from '../../e2e/harness/agent-process.ts';

const TAGS = `
tags:
  FT-101: { asset: 881, instrumentation: 4711, values: { flow: { unit: 12, group: process } } }
  FT-102: { asset: 882, instrumentation: 4712, values: { flow: { unit: 12 } } }
`;

let sandbox: Sandbox;
let agent: AgentProcess | undefined;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
});
afterEach(async () => {
  await agent?.dispose();
  agent = undefined;
  await sandbox.stop();
});

async function startAgent(files: AgentFiles = {}): Promise<AgentProcess> {
  agent = new AgentProcess(sandbox.url, { tags: TAGS, ...files });
  await agent.start();
  return agent;
}

const value = (tag: string, number: number, timestamp = Date.now()) => ({ tag, key: 'flow', value: number, timestamp });

describe('agent', () => {
  it('posts a pushed value to the platform and revokes its token at shutdown', async () => {
    const agent = await startAgent();
    const timestamp = Date.UTC(2026, 10, 21, 1, 2, 3, 4);
    expect((await agent.push([{ ...value('FT-101', 12.5, timestamp), status: 'good' }])).status).toBe(204);
    await agent.until(() => sandbox.values.counts(881, 'flow').stored === 1, 'the value is on the platform');
    expect(sandbox.values.list(881, 'flow')).toMatchObject([
      { timestampMs: timestamp, value: 12.5, status: 'good', group: 'process' },
    ]);
    expect(sandbox.tokens.counts().alive).toBe(1);
    const health = JSON.parse((await agent.call(agent.ops, '/healthz')).text);
    expect(health).toMatchObject({ status: 'ok', problems: [], session: { state: 'valid', grant: 'password' } });
    expect(health.session.renews_in_seconds).toBeGreaterThan(0);
    expect(await agent.metric('tagferry_session_info{state="valid",grant="password"}')).toBe(1);
    expect(await agent.metric('tagferry_session_renewals_total{grant="password"}')).toBe(1);
    expect(await agent.end('SIGTERM')).toBe(0);
    expect(sandbox.tokens.counts().alive).toBe(0);
  });

  it('stops during its first login without becoming ready, and leaves no token', async () => {
    sandbox.faults.add({ path: '/oauth/token', latencyMs: 3_000 });
    agent = new AgentProcess(sandbox.url, { tags: TAGS });
    agent.launch();
    await agent.until(() => agent!.logged('ops.listening').length === 1, 'everything except the login is ready');
    expect(await agent.end('SIGTERM')).toBe(0);
    expect(agent.logged('agent.stopped')).toHaveLength(1);
    expect(agent.logged('agent.ready')).toEqual([]);
    expect(sandbox.tokens.counts().alive).toBe(0);
  });

  it('accepts values as JSON, NDJSON and line protocol, and reports invalid ones', async () => {
    const agent = await startAgent();
    const post = (path: string, type: string, body: string) =>
      agent.call(agent.ingest, path, { body, headers: { 'Content-Type': type } });
    const line = JSON.stringify(value('FT-101', 1, 1_700_000_001_000));
    expect(
      (
        await post(
          '/v1/values',
          'application/x-ndjson',
          `${line}\n${JSON.stringify(value('FT-101', 2, 1_700_000_002_000))}\n`,
        )
      ).status,
    ).toBe(204);
    expect((await post('/write?precision=ms', 'text/plain', 'FT-102 flow=3 3000\n')).status).toBe(204);
    expect((await post('/api/v2/write?precision=s', 'text/plain', 'FT-102 flow=4i 4\n')).status).toBe(204);
    const wrong = await agent.push([
      value('FT-101', 5),
      { tag: 'FT-999', key: 'flow', value: 1 },
      { tag: 'FT-101', key: 'flw', value: 1 },
    ]);
    expect(wrong.status).toBe(422);
    expect(JSON.parse(wrong.text).problems.map((one: { index: number }) => one.index)).toEqual([1, 2]);
    expect((await post('/v1/values', 'application/json', '{"values":')).status).toBe(400);
    expect((await post('/v1/values', 'application/json', `{"values":[${' '.repeat(9 * 1024 * 1024)}]}`)).status).toBe(
      413,
    );
    await agent.until(() => sandbox.values.counts().stored === 4, 'all four values are on the platform');
    expect(await agent.metric('tagferry_values_ingested_total')).toBe(4);
  });

  it('resumes without loss when the platform recovers', async () => {
    const agent = await startAgent();
    await sandbox.goOffline('refuse');
    const sent: { timestampMs: number; value: number }[] = [];
    for (let i = 0; i < 40; i++) {
      const timestampMs = 1_700_000_000_000 + i;
      expect((await agent.push([value('FT-101', i, timestampMs), value('FT-102', i, timestampMs)])).status).toBe(204);
      sent.push({ timestampMs, value: i });
    }
    expect((await agent.metric('tagferry_buffer_values')) as number).toBe(80);
    await sandbox.goOnline();
    await agent.until(async () => (await agent.metric('tagferry_buffer_values')) === 0, 'the buffer is empty', 80_000);
    for (const asset of [881, 882]) {
      expect(sandbox.values.compare(asset, 'flow', sent)).toEqual({ missing: [], invented: [], different: [] });
    }
  });

  it('prevents a second agent from using its state folder, and identifies the owner', async () => {
    const agent = await startAgent();
    const before = stateFiles(agent);
    const second = spawn(process.execPath, [MAIN, 'run', '--config', agent.config], {
      cwd: join(import.meta.dirname, '../../..'),
      env: { ...process.env, INGEST_LISTEN: '', OPS_LISTEN: '', WEBHOOK_LISTEN: '' },
    });
    let output = '';
    for (const stream of [second.stdout, second.stderr]) stream.on('data', (chunk) => (output += chunk));
    const status = await new Promise((resolve) => second.once('exit', resolve));
    expect(status).toBe(1);
    expect(output).toContain(String(agent.pid));
    expect(before['session.json']).toBeDefined();
    expect(stateFiles(agent)).toEqual(before);
  });

  it('exits with 78 and reports every problem if its configuration is invalid', async () => {
    agent = new AgentProcess(sandbox.url, { env: { POST_INTERVALL: '5s', COMMIT_INTERVAL: 'soon' } });
    agent.launch();
    expect(await agent.ended()).toBe(78);
    expect(agent.output).toMatch(/agent\.env:\d+:\d+: .*POST_INTERVAL/);
    expect(agent.output).toMatch(/agent\.env:\d+:\d+: .*COMMIT_INTERVAL/);
  });

  it('keeps secrets out of its log, status and world-readable files', async () => {
    const agent = await startAgent({ env: { LOG_LEVEL: 'trace' } });
    await agent.push([value('FT-101', 1)]);
    await agent.until(() => sandbox.values.counts().stored === 1, 'the value is on the platform');
    const told =
      agent.output + (await agent.call(agent.ops, '/status')).text + (await agent.call(agent.ops, '/metrics')).text;
    for (const secret of [SANDBOX_CREDENTIALS.clientSecret, SANDBOX_CREDENTIALS.technicalPassword])
      expect(told).not.toContain(secret);
    const { access_token: token } = JSON.parse(JSON.stringify({ access_token: tokenAtRest(agent) }));
    expect(token.length).toBeGreaterThan(10);
    expect(told).not.toContain(token);
    expect(statSync(agent.state).mode & 0o077).toBe(0);
    for (const name of readdirSync(agent.state))
      expect(`${name} ${statSync(join(agent.state, name)).mode & 0o007}`).toBe(`${name} 0`);
  });

  it('reloads on SIGHUP, and keeps the previous configuration if the new one has a problem', async () => {
    const agent = await startAgent();
    agent.write(sandbox.url, { tags: 'tags: { FT-300: { asset: 883, values: { flow: { unit: 12 } } } }\n' });
    agent.signal('SIGHUP');
    await agent.until(() => agent.logged('config.reloaded').length === 1, 'the configuration was read again');
    expect((await agent.push([value('FT-300', 1)])).status).toBe(204);
    expect((await agent.push([value('FT-101', 1)])).status).toBe(422);
    agent.write(sandbox.url, { tags: 'tags: [nonsense\n' });
    agent.signal('SIGHUP');
    await agent.until(() => agent.logged('config.refused').length === 1, 'the new configuration was rejected');
    expect((await agent.push([value('FT-300', 2)])).status).toBe(204);
  });

  it('applies a changed INGEST_TOKEN', async () => {
    const agent = await startAgent({ env: { INGEST_TOKEN: 'the-first-token' } });
    const push = async (token: string) => {
      const headers = { 'Content-Type': 'application/json', Authorization: `Bearer ${token}` };
      return (await agent.call(agent.ingest, '/v1/values', { body: '{"values":[]}', headers })).status;
    };
    expect(await push('the-second-token')).toBe(401);
    agent.write(sandbox.url, { tags: TAGS, env: { INGEST_TOKEN: 'the-second-token' } });
    agent.signal('SIGHUP');
    await agent.until(() => agent.logged('config.reloaded').length === 1, 'the configuration was read again');
    expect(await push('the-first-token')).toBe(401);
    expect(await push('the-second-token')).not.toBe(401);
    expect(agent.logged('config.restart_needed')).toEqual([]);
  });

  it('applies larger limits and a smaller post size on reload', async () => {
    const narrow = { BUFFER_MAX_BYTES: '400kB', BUFFER_FULL: 'refuse-new' };
    const agent = await startAgent({ env: narrow });
    await sandbox.goOffline('refuse');
    let sent = 0;
    const push = () => {
      const from = sent;
      const values = Array.from({ length: 1000 }, (_, i) =>
        value('FT-101', Math.sin(from + i), 1_700_000_000_000 + from + i),
      );
      return agent.push(values);
    };
    while ((await push()).status === 204) sent += 1000;
    expect((await push()).status).toBe(503);
    const health = async () => (await agent.call(agent.ops, '/healthz')).status;
    expect(await health()).toBe(503);
    const wide = { ...narrow, BUFFER_MAX_BYTES: '4MB', POST_MAX_VALUES: '250', OPS_LISTEN: '' };
    agent.write(sandbox.url, { tags: TAGS, env: wide });
    agent.signal('SIGHUP');
    await agent.until(() => agent.logged('config.reloaded').length === 1, 'the configuration was read again');
    await agent.until(
      () => agent.logged('config.restart_needed').length === 1,
      'the settings that require a restart are reported',
    );
    expect(agent.logged('config.restart_needed')[0]).toMatchObject({ keys: ['OPS_LISTEN'] });
    expect((await push()).status).toBe(204);
    expect(await health()).toBe(200);
    sent += 1000;
    // Goes online only now, because a fast machine would otherwise post the backlog before it reads the smaller
    // POST_MAX_VALUES.
    await sandbox.goOnline();
    const delivered = () => agent.metric('tagferry_values_delivered_total');
    await agent.until(async () => (await delivered()) === sent, 'everything is on the platform');
    // A pending post is repeated unchanged.
    expect(await agent.metric('tagferry_posts_total{outcome="delivered"}')).toBeGreaterThan((sent - 5_000) / 250);
  });
});

/** Returns every file of the state folder with its bytes. */
function stateFiles(agent: AgentProcess): Record<string, string> {
  const files = readdirSync(agent.state, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return Object.fromEntries(
    files.map(({ parentPath, name }) => [name, readFileSync(join(parentPath, name), 'latin1')]),
  );
}

function tokenAtRest(agent: AgentProcess): string {
  const body = JSON.parse(readFileSync(join(agent.state, 'session.json'), 'utf8')) as {
    tokens: { accessToken: string }[];
  };
  return body.tokens[0]!.accessToken;
}
