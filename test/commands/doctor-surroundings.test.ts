/** What the doctor says of a proxy on the way, and of what systemd and its journal know. */
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { delimiter, join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../process/agent-process.ts';
import { consult, type Line } from './doctor-lines.ts';

const TAGS = 'tags:\n  FT-101: { asset: 881, instrumentation: 4711, values: { flow: { unit: 12 } } }\n';
/** A name that only the proxy knows (RFC 2606). */
const PLATFORM = 'http://platform.example';

let sandbox: Sandbox;
let agent: AgentProcess;

beforeAll(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new AgentProcess(sandbox.url, { tags: TAGS });
});
afterAll(async () => {
  await agent?.dispose();
  await sandbox?.stop();
});

const line = (checks: readonly Line[], check: string) => checks.find((one) => one.check === check);

describe('a proxy on the way', () => {
  let proxy: Server;
  const asked: string[] = [];

  /** Takes everything to the sandbox, whatever it is called. */
  beforeAll(async () => {
    proxy = createServer((_, answer) => answer.writeHead(501).end());
    proxy.on('connect', (request, client, head) => {
      asked.push(String(request.url));
      const target = connect(Number(new URL(sandbox.url).port), '127.0.0.1', () => {
        client.write('HTTP/1.1 200 Connection Established\r\n\r\n');
        target.write(head);
        target.pipe(client).pipe(target);
      });
      for (const socket of [client, target]) socket.on('error', () => socket.destroy());
    });
    await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  });
  afterAll(() => {
    proxy.closeAllConnections();
    proxy.close();
  });
  const address = () => `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;

  it('is looked at instead of the platform, which only it can find, and everything behind it is found well', async () => {
    agent.write(PLATFORM, { tags: TAGS, env: { HTTPS_PROXY: address(), WEBHOOK_LISTEN: '' } });
    const { checks } = await consult(agent);
    expect(line(checks, 'proxy.tcp')?.state).toBe('ok');
    expect(line(checks, 'network.dns')).toBeUndefined();
    expect(line(checks, 'network.http')?.state).toBe('ok');
    expect(line(checks, 'sign_in')?.state).toBe('ok');
    expect(new Set(asked)).toEqual(new Set(['platform.example:80']));
  });

  it('is named where it does not run, and nothing behind it is blamed', async () => {
    const port = await new Promise<number>((resolve) => {
      const probe = createServer().listen(0, '127.0.0.1', () => {
        const free = (probe.address() as AddressInfo).port;
        probe.close(() => resolve(free));
      });
    });
    agent.write(PLATFORM, { tags: TAGS, env: { HTTPS_PROXY: `http://someone:a-word@127.0.0.1:${port}` } });
    const { status, checks } = await consult(agent);
    expect(status).toBe(1);
    expect(line(checks, 'proxy.tcp')).toMatchObject({
      state: 'failure',
      message: expect.stringContaining(`127.0.0.1 port ${port}`),
      next: expect.stringContaining('HTTPS_PROXY'),
    });
    expect(line(checks, 'network.http')).toBeUndefined();
    expect(line(checks, 'sign_in')?.state).toBe('warning');
    expect(JSON.stringify(checks)).not.toContain('a-word');
  });

  it('is left aside where NO_PROXY names the platform', async () => {
    agent.write(PLATFORM, { tags: TAGS, env: { HTTPS_PROXY: address(), NO_PROXY: '.example' } });
    const { checks } = await consult(agent);
    expect(line(checks, 'proxy.tcp')).toBeUndefined();
    expect(line(checks, 'network.dns')).toMatchObject({
      state: 'failure',
      message: expect.stringContaining('platform.example has no address'),
    });
  });
});

describe('the service and its journal', () => {
  const HEALTHY =
    'LoadState=loaded\nActiveState=active\nSubState=running\nResult=success\nExecMainStatus=0\nNRestarts=0\n';

  /** Programs that say what systemd's would. */
  function withSystemd(unit: string, journal: string): NodeJS.ProcessEnv {
    const folder = join(agent.folder, 'programs');
    mkdirSync(folder, { recursive: true });
    for (const [name, text] of [
      ['systemctl', unit],
      ['journalctl', journal],
    ] as const) {
      writeFileSync(join(folder, `${name}.txt`), text);
      writeFileSync(join(folder, name), `#!/bin/sh\ncat ${folder}/${name}.txt\n`);
      chmodSync(join(folder, name), 0o755);
    }
    return { PATH: `${folder}${delimiter}${process.env.PATH}` };
  }

  beforeAll(() => agent.write(sandbox.url, { tags: TAGS }));
  afterEach(() => agent.write(sandbox.url, { tags: TAGS }));

  it('say nothing bad of a quiet day', async () => {
    const { checks } = await consult(agent, withSystemd(HEALTHY, ''));
    expect(line(checks, 'service')).toMatchObject({
      state: 'ok',
      message: expect.stringContaining('active (running)'),
    });
    expect(line(checks, 'journal')?.state).toBe('ok');
  });

  it('ask for larger bounds of memory where commands, or the program that reads OPC UA, share those of the agent', async () => {
    const bounded = `${HEALTHY}MemoryHigh=184549376\nMemoryMax=201326592\n`;
    expect(line((await consult(agent, withSystemd(bounded, ''))).checks, 'memory')).toMatchObject({
      state: 'ok',
      message: 'the service may take 176 MB',
    });
    const reactions = 'reactions:\n  - { name: close, on: threshold_reached, do: [ { run: [/bin/true] } ] }\n';
    // `scripts/prove soak`: 118 MB of the agent and 72 MB of the program that reads OPC UA were more than 192 MB.
    const opcua = `sources:\n  cell: { opcua: "opc.tcp://127.0.0.1:9", security: None }\n${TAGS}`;
    agent.write(sandbox.url, { tags: opcua, reactions });
    expect(line((await consult(agent, withSystemd(bounded, ''))).checks, 'memory')).toMatchObject({
      state: 'warning',
      message: expect.stringContaining('which other programs share: source cell, reaction close'),
      next: expect.stringContaining('bounds-with-commands.conf'),
    });
    const larger = `${HEALTHY}MemoryHigh=369098752\nMemoryMax=402653184\n`;
    expect(line((await consult(agent, withSystemd(larger, ''))).checks, 'memory')?.state).toBe('ok');
    expect(
      line((await consult(agent, withSystemd(`${HEALTHY}MemoryMax=infinity\n`, ''))).checks, 'memory'),
    ).toBeUndefined();
  });

  it('tell how many errors the day had, and the last in its own words', async () => {
    const journal = `${JSON.stringify({ event: 'store.full', msg: 'no room' })}\n${JSON.stringify({ level: 'error', event: 'store.corrupt', msg: 'a corrupt store was set aside' })}\n`;
    const { checks } = await consult(agent, withSystemd(HEALTHY.replace('NRestarts=0', 'NRestarts=2'), journal));
    expect(line(checks, 'journal')).toMatchObject({
      state: 'warning',
      message: expect.stringContaining(
        '2 errors in the last day; the last: store.corrupt: a corrupt store was set aside',
      ),
    });
    expect(line(checks, 'service')).toMatchObject({ state: 'warning', message: expect.stringContaining('2 times') });
  });

  it.each([
    ['78', 'exit-code', 'tagferry check'],
    ['1', 'exit-code', 'journalctl'],
  ])('lead from a service that failed with %s to the next step', async (code, result, next) => {
    const unit = `LoadState=loaded\nActiveState=failed\nSubState=failed\nResult=${result}\nExecMainStatus=${code}\nNRestarts=5\n`;
    const { status, checks } = await consult(agent, withSystemd(unit, ''));
    expect(status).toBe(1);
    expect(line(checks, 'service')).toMatchObject({ state: 'failure', next: expect.stringContaining(next) });
  });

  const entry = (text: string, by = 'tagferry') =>
    `${JSON.stringify({ MESSAGE: text, SYSLOG_IDENTIFIER: by, _PID: '7' })}\n`;

  it('tell of a service that ends again and again what it said last, and that is a failure', async () => {
    const failed = JSON.stringify({
      event: 'agent.start_failed',
      msg: 'tagferry cannot start',
      error: 'listen EACCES 0.0.0.0:443',
      hint: 'Take another port.',
    });
    const journal = [
      entry('an older life'),
      entry(failed),
      entry('tagferry: listen EACCES'),
      entry('tagferry.service: Main process exited, code=exited, status=1/FAILURE', 'systemd'),
      entry('tagferry.service: Scheduled restart job, restart counter is at 12.', 'systemd'),
    ];
    const unit =
      'LoadState=loaded\nActiveState=activating\nSubState=auto-restart\nResult=exit-code\nExecMainStatus=1\nNRestarts=12\n';
    const { status, checks } = await consult(agent, withSystemd(unit, journal.join('')));
    expect(status).toBe(1);
    expect(line(checks, 'service')).toMatchObject({
      state: 'failure',
      message: expect.stringMatching(/restarted 12 times; it ended with: tagferry: listen EACCES/),
      next: expect.stringContaining('again and again'),
    });
  });

  it('count a service as ending again that has run only for a moment since its last start', async () => {
    const now = (Number(readFileSync('/proc/uptime', 'utf8').split(' ')[0]) - 5) * 1e6;
    const unit = `${HEALTHY.replace('NRestarts=0', 'NRestarts=3')}ExecMainStartTimestampMonotonic=${Math.round(now)}\n`;
    const { checks } = await consult(agent, withSystemd(unit, ''));
    expect(line(checks, 'service')?.state).toBe('failure');
  });

  it('are passed over where the unit is not installed', async () => {
    const { checks } = await consult(
      agent,
      withSystemd('LoadState=not-found\nActiveState=inactive\n', 'never asked\n'),
    );
    expect([line(checks, 'service'), line(checks, 'journal')]).toEqual([undefined, undefined]);
  });
});
