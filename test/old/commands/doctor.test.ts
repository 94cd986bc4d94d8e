import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer as createTlsServer } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { freePort } from '../../../src/base/port-claim.ts';
import type { DoctorContext } from '../../../src/commands/doctor/context.ts';
import { checkClock } from '../../../src/commands/doctor/machine.ts';
import { checkStateFolder } from '../../../src/commands/doctor/state-folder.ts';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { linesOf, runDoctor, runVerb } from './verb-run.ts';

const TAGS = `
tags:
  FT-101: { asset: 881, instrumentation: 4711, values: { flow: { unit: 12 } } }
  FT-102: { asset: 882, values: { flow: { unit: 12 } } }
`;

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

/** Runs a check as another user, because root can write everywhere. */
function asNobody<Result>(look: () => Result): Result {
  const isRoot = process.geteuid?.() === 0;
  if (isRoot) process.seteuid?.(65534);
  try {
    return look();
  } finally {
    if (isRoot) process.seteuid?.(0);
  }
}

describe('doctor without an agent', () => {
  it('passes on a valid installation, signs in once and revokes its token', async () => {
    const { status, ok, checks } = await runDoctor(agent);
    expect(checks.filter((line) => line.state === 'failure')).toEqual([]);
    expect({ status, ok }).toEqual({ status: 0, ok: true });
    for (const check of [
      'configuration',
      'clock',
      'network.tcp',
      'network.http',
      'sign_in',
      'api',
      'assets',
      'revocation',
    ]) {
      expect(linesOf(checks, check)[0]?.state ?? `${check} is missing`).toBe('ok');
    }
    expect(linesOf(checks, 'assets')[0]!.message).toContain('2 assets');
    expect(sandbox.tokens.counts()).toEqual({ issued: 1, revoked: 1, alive: 0 });
    expect(sandbox.values.counts().received).toBe(0);
  });

  it('finds the configured client application by its name', async () => {
    const before = sandbox.requests.list().length;
    agent.write(sandbox.url, { tags: TAGS, env: { CLIENT_APPLICATION: SANDBOX_CREDENTIALS.clientApplication } });
    expect(linesOf((await runDoctor(agent)).checks, 'api')[0]!.state).toBe('ok');
    agent.write(sandbox.url, { tags: TAGS });
    const paths = sandbox.requests
      .list()
      .slice(before)
      .map((one) => one.path);
    expect(paths.filter((path) => path.startsWith('/v1/client_applications'))).toEqual(['/v1/client_applications']);
  });

  it('fails, and identifies the invisible asset and the read-only asset', async () => {
    sandbox.revokePermission({ type: 'Asset', id: 881 });
    sandbox.revokePermission({ type: 'Asset', id: 882 }, { types: ['can_update'] });
    const { status, checks } = await runDoctor(agent);
    expect(status).toBe(1);
    const failures = checks.filter((line) => line.state === 'failure');
    expect(failures.map((line) => line.message)).toEqual([
      expect.stringMatching(/881 .*\(404\)/),
      expect.stringMatching(/882 .*\(403\)/),
    ]);
    for (const line of failures) expect(line.next).toMatch(/can_update/);
    sandbox.grantPermission({ type: 'Asset', id: 881 });
    sandbox.grantPermission({ type: 'Asset', id: 882 });
  });

  it('reports rejected credentials once', async () => {
    agent.write(sandbox.url, { tags: TAGS, env: { TECHNICAL_PASSWORD: 'not-the-password' } });
    const before = sandbox.requests.list().filter((one) => one.path === '/oauth/token').length;
    const { status, checks } = await runDoctor(agent);
    expect(status).toBe(1);
    expect(linesOf(checks, 'sign_in')).toMatchObject([
      {
        state: 'failure',
        message: expect.stringContaining('invalid_grant'),
        next: expect.stringMatching(/TECHNICAL_PASSWORD/),
      },
    ]);
    expect(JSON.stringify(checks)).not.toContain('not-the-password');
    expect(sandbox.requests.list().filter((one) => one.path === '/oauth/token').length).toBe(before + 1);
  });

  it('stops at an unreachable address, and reports it once', async () => {
    const port = await freePort();
    agent.write(`http://127.0.0.1:${port}`, { tags: TAGS });
    const { status, checks } = await runDoctor(agent);
    expect(status).toBe(1);
    // A refused connection proves that the network works, so the hint names the address first.
    expect(linesOf(checks, 'network.tcp')).toMatchObject([
      {
        state: 'failure',
        message: expect.stringContaining('ECONNREFUSED'),
        next: expect.stringContaining('port of PLATFORM_URL'),
      },
    ]);
    expect(linesOf(checks, 'network.http')).toEqual([]);
    expect(linesOf(checks, 'sign_in')).toMatchObject([{ state: 'warning' }]);
    agent.write('https://no-such-host.invalid', { tags: TAGS });
    expect(linesOf((await runDoctor(agent)).checks, 'network.dns')).toMatchObject([{ state: 'failure' }]);
  });

  it('reports a broker and a device that do not accept connections', async () => {
    const port = await freePort();
    const sources = `sources:\n  plc1: { modbus: "tcp://127.0.0.1:${port}", unit: 1, every: 1s }\n  broker: { mqtt: "mqtt://user:hidden@127.0.0.1:${port}" }\n`;
    agent.write(sandbox.url, { tags: `${sources}${TAGS}` });
    const { checks } = await runDoctor(agent);
    expect(linesOf(checks, 'modbus')).toMatchObject([{ state: 'failure', message: expect.stringContaining('plc1') }]);
    expect(linesOf(checks, 'broker')).toMatchObject([{ state: 'failure', message: expect.stringContaining('broker') }]);
    expect(JSON.stringify(checks)).not.toContain('hidden');
  });

  it('reports a missing folder, and a folder that remains read-only without a drop-in', async () => {
    const folder = join(agent.folder, 'read-only');
    mkdirSync(folder);
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'ro', 'none', folder]);
    try {
      const gone = join(agent.folder, 'gone');
      const sources = `sources:\n  logger: { csv: ${folder} }\n  share: { csv: ${gone} }\n  open: { csv: ${agent.folder} }\n`;
      agent.write(sandbox.url, { tags: `${sources}${TAGS}` });
      const { checks } = await runDoctor(agent);
      expect(linesOf(checks, 'csv')).toMatchObject([
        {
          state: 'failure',
          message: expect.stringContaining('read-only'),
          next: expect.stringContaining('csv-folder.conf'),
        },
        {
          state: 'failure',
          message: expect.stringContaining(`folder ${gone}`),
          next: expect.stringContaining('install -d'),
        },
        { state: 'ok', message: expect.stringContaining('read and written') },
      ]);
    } finally {
      execFileSync('umount', [folder]);
      agent.write(sandbox.url, { tags: TAGS });
    }
  });

  it('respects REQUESTS_PER_MINUTE, and reports the number of unchecked assets', async () => {
    agent.write(sandbox.url, { tags: TAGS, env: { REQUESTS_PER_MINUTE: '12' } });
    const before = sandbox.requests.list().length;
    const { checks } = await runDoctor(agent);
    const posts = sandbox.requests
      .list()
      .slice(before)
      .filter(({ path }) => path.endsWith('/values'));
    expect(posts).toHaveLength(1);
    expect(
      linesOf(checks, 'assets')
        .map((line) => line.message)
        .join(),
    ).toMatch(/1 (more|asset|of them|left).*/);
    agent.write(sandbox.url, { tags: TAGS });
  });

  it('prints configuration problems and continues with the valid settings', async () => {
    agent.write(sandbox.url, { tags: TAGS, env: { POST_INTERVALL: '5s' } });
    const { status, checks } = await runDoctor(agent);
    expect(status).toBe(1);
    expect(linesOf(checks, 'configuration')[0]).toMatchObject({
      state: 'failure',
      message: expect.stringMatching(/agent\.env:\d+:\d+: .*POST_INTERVAL/),
    });
    expect(linesOf(checks, 'network.http')).toMatchObject([{ state: 'ok' }]);
    expect(linesOf(checks, 'sign_in')).toMatchObject([{ state: 'warning' }]);
    agent.write(sandbox.url, { tags: TAGS });
  });
});

describe('doctor check', () => {
  it("reports the platform's certificate error, and stops", async () => {
    const certificates = join(import.meta.dirname, '../../fixtures/certificates');
    const read = (name: string) => readFileSync(join(certificates, name), 'utf8');
    for (const [name, words] of [
      ['expired.pem', 'it has expired'],
      ['self-signed.pem', 'self-signed'],
      ['other-name.pem', 'for a different host name'],
    ] as const) {
      const server = createTlsServer({ cert: read(name), key: read('server.key') });
      const port = await new Promise<number>((resolve) => {
        server.listen(0, '127.0.0.1', () => resolve((server.address() as { port: number }).port));
      });
      try {
        agent.write(`https://localhost:${port}`, {
          tags: TAGS,
          env: { PLATFORM_CA: join(certificates, 'authority.pem') },
        });
        const { status, checks } = await runDoctor(agent);
        expect(status).toBe(1);
        expect(linesOf(checks, 'network.tls')).toMatchObject([
          { state: 'failure', message: expect.stringContaining(words), next: expect.stringMatching(/./) },
        ]);
        expect(linesOf(checks, 'network.http')).toEqual([]);
      } finally {
        await new Promise((resolve) => server.close(resolve));
      }
    }
    agent.write(sandbox.url, { tags: TAGS });
  });

  it('reports a port that is already in use before agent startup', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    const { port } = server.address() as { port: number };
    agent.write(sandbox.url, { tags: TAGS, env: { OPS_LISTEN: `127.0.0.1:${port}` } });
    const { checks } = await runDoctor(agent);
    expect(linesOf(checks, 'listener')).toMatchObject([
      { state: 'failure', message: expect.stringContaining('EADDRINUSE'), next: expect.stringContaining('OPS_LISTEN') },
    ]);
    await new Promise((resolve) => server.close(resolve));
    agent.write(sandbox.url, { tags: TAGS });
  });

  it('ignores a port used by tagferry itself, even if its agent cannot be queried', async () => {
    const probe = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => probe.once('listening', resolve));
    const { port } = probe.address() as { port: number };
    await new Promise((resolve) => probe.close(resolve));
    agent.write(sandbox.url, { tags: TAGS, env: { OPS_LISTEN: `127.0.0.1:${port}` } });
    await agent.start();
    rmSync(join(agent.state, 'control.sock'));
    const { checks } = await runDoctor(agent);
    expect(linesOf(checks, 'listener')).toMatchObject([
      { state: 'ok', message: expect.stringContaining(`in use by tagferry itself (process ${agent.pid})`) },
    ]);
    await agent.end('SIGTERM');
    agent.write(sandbox.url, { tags: TAGS });
  });

  it('reports an unwritable state folder, and leaves no files in a writable folder', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'doctor-state-'));
    const state = () => checkStateFolder({ settings: { stateDir: folder }, clock: systemClock } as DoctorContext);
    expect(state().map(({ state, check }) => `${state} ${check}`)).toContain('ok state.writable');
    expect(readdirSync(folder)).toEqual([]);
    chmodSync(folder, 0o777);
    expect(state()[0]).toMatchObject({
      state: 'warning',
      message: `other users can access ${folder} (mode 777); the agent will change the mode to 0700 on the next start`,
    });
    symlinkSync('/etc/hostname', join(folder, 'inbox.db'));
    expect(state()[0]).toMatchObject({
      state: 'failure',
      message: expect.stringContaining('the agent cannot start: ') as string,
      next: expect.stringContaining('Check who created the link') as string,
    });
    rmSync(join(folder, 'inbox.db'));
    chmodSync(folder, 0);
    const lines = asNobody(state);
    expect(lines.find(({ check }) => check === 'state.writable')).toMatchObject({
      state: 'warning',
      message: `this user cannot write to ${folder}`,
      next: 'Run `sudo tagferry doctor`.',
    });
    chmodSync(folder, 0o700);
    rmSync(folder, { recursive: true });
  });

  it('reports that TLS fails because the clock is set to 1970', async () => {
    const [line] = await checkClock({ clock: { ...systemClock, wallMs: () => 60_000 } } as DoctorContext);
    expect(line).toMatchObject({
      state: 'failure',
      message: expect.stringContaining('1970'),
      next: expect.stringContaining('TLS'),
    });
  });
});

describe('doctor with a running agent', () => {
  it("uses the agent's session without its secrets and without a second login", async () => {
    agent.write(sandbox.url, { tags: TAGS });
    await agent.start();
    const { issued } = sandbox.tokens.counts();
    // The operator's shell environment does not contain the agent's secrets.
    const env = readFileSync(join(agent.config, 'agent.env'), 'utf8');
    writeFileSync(join(agent.config, 'agent.env'), env.replaceAll(/^(CLIENT_SECRET|TECHNICAL_PASSWORD)=.*\n/gm, ''), {
      mode: 0o600,
    });
    const { status, checks } = await runDoctor(agent);
    expect(checks.filter((line) => line.state === 'failure')).toEqual([]);
    expect(status).toBe(0);
    expect(linesOf(checks, 'daemon')).toMatchObject([{ state: 'ok' }]);
    expect(linesOf(checks, 'sign_in')[0]!.message).toContain('the agent is signed in');
    expect(linesOf(checks, 'assets')).toMatchObject([{ state: 'ok' }]);
    expect(sandbox.tokens.counts().issued).toBe(issued);
    agent.write(sandbox.url, { tags: TAGS });
  });

  it('prints one line per check', async () => {
    const { status, stdout } = await runVerb(['doctor', '--config', agent.config]);
    expect(status).toBe(0);
    expect(stdout).toMatch(/^ok +configuration +/m);
    expect(stdout).toMatch(/^0 failures, \d+ warnings?, \d+ ok$/m);
  });

  it('writes an archive that tar can read, without secrets', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tagferry-bundle-'));
    try {
      agent.write(sandbox.url, {
        tags: TAGS,
        env: {
          INGEST_TOKEN: 'ingest-token-of-the-site',
          HTTPS_PROXY: 'http://proxy-user:proxy-pass@127.0.0.1:9',
          NO_PROXY: '127.0.0.1',
        },
        reactions: `reactions:\n  - name: post\n    on: "*"\n    do:\n      - post: http://127.0.0.1:1880/x\n        headers: { X-Mark: plain }\n`,
      });
      const env = readFileSync(join(agent.config, 'agent.env'), 'utf8');
      writeFileSync(
        join(agent.config, 'agent.env'),
        `${env}#CLIENT_SECRET=an-older-secret\nCLIENT_SECRT=a-misspelt-secret\n`,
        { mode: 0o600 },
      );
      const file = join(folder, 'support.tar.gz');
      await runVerb(['doctor', '--config', agent.config, '--bundle', file]);
      expect(existsSync(file)).toBe(true);
      expect(statSync(file).mode & 0o777).toBe(0o600);
      execFileSync('tar', ['-xzf', file, '-C', folder]);
      const names = readdirSync(join(folder, 'tagferry-doctor'), { recursive: true }) as string[];
      for (const name of ['doctor.json', 'status.json', 'config/agent.env', 'config/tags.yaml', 'journal.txt']) {
        expect(names).toContain(name);
      }
      const all = names
        .filter((name) => statSync(join(folder, 'tagferry-doctor', name)).isFile())
        .map((name) => readFileSync(join(folder, 'tagferry-doctor', name), 'utf8'))
        .join('\n');
      expect(all).toContain(`PLATFORM_URL=${sandbox.url}`);
      expect(all).toContain('FT-101');
      const tokens = (JSON.parse(agent.file('session.json')) as { tokens: { accessToken: string }[] }).tokens;
      const secrets = [
        SANDBOX_CREDENTIALS.clientSecret,
        SANDBOX_CREDENTIALS.technicalPassword,
        'ingest-token-of-the-site',
        'proxy-pass',
        'an-older-secret',
        'a-misspelt-secret',
        ...tokens.map((token) => token.accessToken),
      ];
      for (const secret of secrets) expect(all).not.toContain(secret);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
