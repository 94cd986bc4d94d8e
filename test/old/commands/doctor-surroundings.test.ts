/** Doctor checks that involve a proxy, systemd or the journal. */
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { delimiter, join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { type Line, runDoctor, runVerb } from './verb-run.ts';

const TAGS = 'tags:\n  FT-101: { asset: 881, instrumentation: 4711, values: { flow: { unit: 12 } } }\n';
/** Host name that only the proxy can resolve (RFC 2606). */
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

describe('doctor with a proxy', () => {
  let proxy: Server;
  const asked: string[] = [];

  /** Forwards every request to the sandbox, regardless of the host name. */
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

  it('checks the proxy instead of the platform, and reaches the platform through it', async () => {
    agent.write(PLATFORM, { tags: TAGS, env: { HTTPS_PROXY: address(), WEBHOOK_LISTEN: '' } });
    const { checks } = await runDoctor(agent);
    expect(line(checks, 'proxy.tcp')?.state).toBe('ok');
    expect(line(checks, 'network.dns')).toBeUndefined();
    expect(line(checks, 'network.http')?.state).toBe('ok');
    expect(line(checks, 'sign_in')?.state).toBe('ok');
    expect(new Set(asked)).toEqual(new Set(['platform.example:80']));
  });

  it('reports an unavailable proxy, but not the resulting failures', async () => {
    const port = await new Promise<number>((resolve) => {
      const probe = createServer().listen(0, '127.0.0.1', () => {
        const free = (probe.address() as AddressInfo).port;
        probe.close(() => resolve(free));
      });
    });
    agent.write(PLATFORM, { tags: TAGS, env: { HTTPS_PROXY: `http://someone:a-word@127.0.0.1:${port}` } });
    const { status, checks } = await runDoctor(agent);
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

  it('ignores the proxy if NO_PROXY contains the platform', async () => {
    agent.write(PLATFORM, { tags: TAGS, env: { HTTPS_PROXY: address(), NO_PROXY: '.example' } });
    const { checks } = await runDoctor(agent);
    expect(line(checks, 'proxy.tcp')).toBeUndefined();
    expect(line(checks, 'network.dns')).toMatchObject({
      state: 'failure',
      message: expect.stringContaining('cannot resolve platform.example'),
    });
  });
});

describe('doctor with a systemd service', () => {
  const HEALTHY =
    'LoadState=loaded\nActiveState=active\nSubState=running\nResult=success\nExecMainStatus=0\nNRestarts=0\nInvocationID=b\n';
  const LOOPING =
    'LoadState=loaded\nActiveState=activating\nSubState=auto-restart\nResult=exit-code\nExecMainStatus=1\nNRestarts=12\nInvocationID=a\n';

  /** Substitutes for systemctl and journalctl. */
  function withSystemd(unit: string, journal: string, directory = agent.config): NodeJS.ProcessEnv {
    const folder = join(agent.folder, 'programs');
    mkdirSync(folder, { recursive: true });
    for (const [name, text] of [
      ['systemctl', `${unit}Environment=TAGFERRY_CONFIG=${directory}\n`],
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

  /** Runs `doctor` and `status` without a running agent. */
  const statusOf = (environment: NodeJS.ProcessEnv) =>
    runVerb(['status', '--json', '--config', agent.config], environment);

  it('explains why no agent responds although the unit is active', async () => {
    const { status, checks } = await runDoctor(agent, withSystemd(HEALTHY, ''));
    expect(status).toBe(1);
    expect(line(checks, 'service')).toMatchObject({
      state: 'failure',
      message: expect.stringContaining(`active, but no agent responds at ${join(agent.state, 'control.sock')}`),
      next: expect.stringContaining('systemctl restart tagferry'),
    });
  });

  it('reports recent errors and whether the service starts at boot while the agent is running', async () => {
    await agent.start();
    const quiet = (await runDoctor(agent, withSystemd(HEALTHY, ''))).checks;
    expect([line(quiet, 'service')?.state, line(quiet, 'journal')?.state]).toEqual(['ok', 'ok']);
    const journal = [
      'level=error event=store.full msg="no room"',
      '{"level":"error","event":"store.corrupt","msg":"a corrupt store was set aside"}',
    ];
    const unit = `${HEALTHY.replace('NRestarts=0', 'NRestarts=2')}UnitFileState=disabled\n`;
    const { checks } = await runDoctor(agent, withSystemd(unit, journal.join('\n')));
    await agent.end('SIGTERM');
    expect(line(checks, 'journal')).toMatchObject({
      state: 'warning',
      message: '2 errors in the last 24 hours; latest: store.corrupt: a corrupt store was set aside',
    });
    expect(line(checks, 'service')).toMatchObject({
      state: 'warning',
      message: expect.stringContaining('2 restarts'),
      next: expect.stringContaining('systemctl enable tagferry'),
    });
  });

  it('recommends larger memory limits if commands or the OPC UA reader share them with the agent', async () => {
    const bounded = `${HEALTHY}MemoryHigh=184549376\nMemoryMax=201326592\n`;
    expect(line((await runDoctor(agent, withSystemd(bounded, ''))).checks, 'memory')).toMatchObject({
      state: 'ok',
      message: 'service memory limit: 176 MiB',
    });
    const reactions = 'reactions:\n  - { name: close, on: threshold_reached, do: [ { run: [/bin/true] } ] }\n';
    // Measured by `scripts/prove soak`: agent 118 MB and OPC UA reader 72 MB, near a limit of 192 MB.
    const opcua = `sources:\n  cell: { opcua: "opc.tcp://127.0.0.1:9", security: None }\n${TAGS}`;
    agent.write(sandbox.url, { tags: opcua, reactions });
    expect(line((await runDoctor(agent, withSystemd(bounded, ''))).checks, 'memory')).toMatchObject({
      state: 'warning',
      message: expect.stringContaining('shared with other programs: source cell, reaction close'),
      next: expect.stringContaining('bounds-with-commands.conf'),
    });
    const larger = `${HEALTHY}MemoryHigh=369098752\nMemoryMax=402653184\n`;
    expect(line((await runDoctor(agent, withSystemd(larger, ''))).checks, 'memory')?.state).toBe('ok');
    expect(
      line((await runDoctor(agent, withSystemd(`${HEALTHY}MemoryMax=infinity\n`, ''))).checks, 'memory'),
    ).toBeUndefined();
  });

  it.each([
    ['78', 'configuration rejected', 'tagferry check'],
    ['1', 'exit status 1', 'journalctl'],
  ])('reports a service that failed with %s and the next step', async (code, what, next) => {
    const unit = `LoadState=loaded\nActiveState=failed\nSubState=failed\nResult=exit-code\nExecMainStatus=${code}\nNRestarts=5\n`;
    const { status, checks } = await runDoctor(agent, withSystemd(unit, ''));
    expect(status).toBe(1);
    expect(line(checks, 'service')).toMatchObject({
      state: 'failure',
      message: expect.stringContaining(what),
      next: expect.stringContaining(next),
    });
  });

  const entry = (run: string, fields: Record<string, unknown>) =>
    `${JSON.stringify({ SYSLOG_IDENTIFIER: 'tagferry', PRIORITY: '6', _SYSTEMD_INVOCATION_ID: run, ...fields })}\n`;
  const failedStart = (run: string, error: string) =>
    entry(run, {
      MESSAGE: `level=fatal event=agent.start_failed msg="failed to start" error="${error}" hint="Set another port."`,
      PRIORITY: '2',
    });
  const RESTART = `${JSON.stringify({ SYSLOG_IDENTIFIER: 'systemd', MESSAGE: 'Scheduled restart job', MESSAGE_ID: '5eb03494b6584870a536b337290809b3' })}\n`;

  it('quotes the final error from the latest run and its hint while the service restarts in a loop', async () => {
    const journal = [
      failedStart('older', 'no disk'),
      entry('a', { MESSAGE: 'level=error event=store.full msg="disk full"', PRIORITY: '3' }),
      failedStart('a', 'listen EACCES 0.0.0.0:443'),
      entry('a', { MESSAGE: 'level=info event=agent.stopped msg="tagferry stopped"' }),
    ].join('');
    const systemd = withSystemd(LOOPING, journal);
    const { status, checks } = await runDoctor(agent, systemd);
    expect(status).toBe(1);
    expect(line(checks, 'service')).toMatchObject({
      state: 'failure',
      message: expect.stringMatching(/12 restarts so far.*; latest error: listen EACCES 0\.0\.0\.0:443$/),
      next: 'Set another port.',
    });
    expect(line(checks, 'daemon')).toBeUndefined();
    const { status: exit, stdout, stderr } = await statusOf(systemd);
    expect(JSON.parse(stdout)).toMatchObject({
      state: 'not running',
      service: 'restarting',
      hint: 'Set another port.',
    });
    expect([exit, stderr]).toEqual([1, expect.not.stringContaining('systemctl start')]);
  });

  it.each([
    ['after an automatic restart', RESTART, 'restarting', 'disk full'],
    ['manually, without quoting an earlier error', '', 'active', ''],
  ])('reports a service that has just started, %s', async (_, restart, service, error) => {
    const now = (Number(readFileSync('/proc/uptime', 'utf8').split(' ')[0]) - 5) * 1e6;
    const unit = `${HEALTHY.replace('NRestarts=0', 'NRestarts=3')}ExecMainStartTimestampMonotonic=${Math.round(now)}\n`;
    const journal = `${failedStart('a', 'disk full')}${restart}${entry('b', { MESSAGE: 'level=info msg="tagferry starts"' })}`;
    const report = JSON.parse((await statusOf(withSystemd(unit, journal))).stdout) as Record<string, string>;
    expect(report.service).toBe(service);
    expect(report.message?.includes('disk full')).toBe(error !== '');
  });

  it('ignores a service that uses a different configuration', async () => {
    const systemd = withSystemd(LOOPING, '', '/etc/tagferry');
    const { stdout } = await statusOf(systemd);
    expect(JSON.parse(stdout)).toMatchObject({
      hint: expect.stringContaining(`tagferry run --config ${agent.config}`),
    });
  });

  it('ignores a service that is not installed', async () => {
    const { checks } = await runDoctor(
      agent,
      withSystemd('LoadState=not-found\nActiveState=inactive\n', 'never asked\n'),
    );
    expect([line(checks, 'service'), line(checks, 'journal')]).toEqual([undefined, undefined]);
  });
});
