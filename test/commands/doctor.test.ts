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
import { systemClock } from '../../src/base/clock.ts';
import { freePort } from '../../src/base/port-claim.ts';
import type { Consultation } from '../../src/commands/doctor/finding.ts';
import { checkClock } from '../../src/commands/doctor/machine-clock.ts';
import { checkStateFolder } from '../../src/commands/doctor/state-folder.ts';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../process/agent-process.ts';
import { consult, linesOf } from './doctor-lines.ts';
import { runVerb } from './verb-run.ts';

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

/** root may write everywhere: what it looks at, it looks at as another user. */
function asNobody<Result>(look: () => Result): Result {
  const isRoot = process.geteuid?.() === 0;
  if (isRoot) process.seteuid?.(65534);
  try {
    return look();
  } finally {
    if (isRoot) process.seteuid?.(0);
  }
}

describe('the doctor without a daemon', () => {
  it('finds a sound installation sound, signs in once and takes its token back', async () => {
    const { status, ok, checks } = await consult(agent);
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

  it('looks for the configured client application by its name', async () => {
    const before = sandbox.requests.list().length;
    agent.write(sandbox.url, { tags: TAGS, env: { CLIENT_APPLICATION: SANDBOX_CREDENTIALS.clientApplication } });
    expect(linesOf((await consult(agent)).checks, 'api')[0]!.state).toBe('ok');
    agent.write(sandbox.url, { tags: TAGS });
    const paths = sandbox.requests
      .list()
      .slice(before)
      .map((one) => one.path);
    expect(paths.filter((path) => path.startsWith('/v1/client_applications'))).toEqual(['/v1/client_applications']);
  });

  it('names the asset that may not be seen and the one that may not be written, and fails', async () => {
    sandbox.takePermission({ type: 'Asset', id: 881 });
    sandbox.takePermission({ type: 'Asset', id: 882 }, { types: ['can_update'] });
    const { status, checks } = await consult(agent);
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

  it('says what is wrong with the credentials, once', async () => {
    agent.write(sandbox.url, { tags: TAGS, env: { TECHNICAL_PASSWORD: 'not-the-password' } });
    const before = sandbox.requests.list().filter((one) => one.path === '/oauth/token').length;
    const { status, checks } = await consult(agent);
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

  it('stops at what is not reachable, and does not say the same again', async () => {
    const port = await freePort();
    agent.write(`http://127.0.0.1:${port}`, { tags: TAGS });
    const { status, checks } = await consult(agent);
    expect(status).toBe(1);
    // Something answers, so the way there is open: it is the address that is looked at first.
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
    expect(linesOf((await consult(agent)).checks, 'network.dns')).toMatchObject([{ state: 'failure' }]);
  });

  it('says which broker and which device take no connection', async () => {
    const port = await freePort();
    const sources = `sources:\n  plc1: { modbus: "tcp://127.0.0.1:${port}", unit: 1, every: 1s }\n  broker: { mqtt: "mqtt://user:hidden@127.0.0.1:${port}" }\n`;
    agent.write(sandbox.url, { tags: `${sources}${TAGS}` });
    const { checks } = await consult(agent);
    expect(linesOf(checks, 'modbus')).toMatchObject([{ state: 'failure', message: expect.stringContaining('plc1') }]);
    expect(linesOf(checks, 'broker')).toMatchObject([{ state: 'failure', message: expect.stringContaining('broker') }]);
    expect(JSON.stringify(checks)).not.toContain('hidden');
  });

  it('says which folder is not there, or may only be read, and that the drop-in lets the service write there', async () => {
    const folder = join(agent.folder, 'read-only');
    mkdirSync(folder);
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'ro', 'none', folder]);
    try {
      const gone = join(agent.folder, 'gone');
      const sources = `sources:\n  logger: { csv: ${folder} }\n  share: { csv: ${gone} }\n  open: { csv: ${agent.folder} }\n`;
      agent.write(sandbox.url, { tags: `${sources}${TAGS}` });
      const { checks } = await consult(agent);
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

  it('keeps to REQUESTS_PER_MINUTE, and says how many assets it left out', async () => {
    agent.write(sandbox.url, { tags: TAGS, env: { REQUESTS_PER_MINUTE: '12' } });
    const before = sandbox.requests.list().length;
    const { checks } = await consult(agent);
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

  it('prints the lines of a broken configuration and goes on with what it can', async () => {
    agent.write(sandbox.url, { tags: TAGS, env: { POST_INTERVALL: '5s' } });
    const { status, checks } = await consult(agent);
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

describe('single steps', () => {
  it('names what is wrong with the certificate of the platform, and stops there', async () => {
    const certificates = join(import.meta.dirname, '../platform/certificates');
    const read = (name: string) => readFileSync(join(certificates, name), 'utf8');
    for (const [name, words] of [
      ['expired.pem', 'it has expired'],
      ['self-signed.pem', 'signed by itself'],
      ['other-name.pem', 'for another name'],
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
        const { status, checks } = await consult(agent);
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

  it('says that a port is taken before the daemon meets it', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    const { port } = server.address() as { port: number };
    agent.write(sandbox.url, { tags: TAGS, env: { OPS_LISTEN: `127.0.0.1:${port}` } });
    const { checks } = await consult(agent);
    expect(linesOf(checks, 'listener')).toMatchObject([
      { state: 'failure', message: expect.stringContaining('EADDRINUSE'), next: expect.stringContaining('OPS_LISTEN') },
    ]);
    await new Promise((resolve) => server.close(resolve));
    agent.write(sandbox.url, { tags: TAGS });
  });

  it('takes a port that tagferry itself has for no conflict, though that cannot be asked', async () => {
    const probe = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => probe.once('listening', resolve));
    const { port } = probe.address() as { port: number };
    await new Promise((resolve) => probe.close(resolve));
    agent.write(sandbox.url, { tags: TAGS, env: { OPS_LISTEN: `127.0.0.1:${port}` } });
    await agent.start();
    rmSync(join(agent.state, 'control.sock'));
    const { checks } = await consult(agent);
    expect(linesOf(checks, 'listener')).toMatchObject([
      { state: 'ok', message: expect.stringContaining(`held by tagferry itself (process ${agent.pid})`) },
    ]);
    await agent.end('SIGTERM');
    agent.write(sandbox.url, { tags: TAGS });
  });

  it('says so where this user may not write the state folder, and leaves nothing in one that it may write', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'doctor-state-'));
    const state = () => checkStateFolder({ settings: { stateDir: folder }, clock: systemClock } as Consultation);
    expect(state().map(({ state, check }) => `${state} ${check}`)).toContain('ok state.writable');
    expect(readdirSync(folder)).toEqual([]);
    chmodSync(folder, 0o777);
    expect(state()[0]).toMatchObject({
      state: 'warning',
      message: `${folder} is open to others (777); the next start makes it 0700`,
    });
    symlinkSync('/etc/hostname', join(folder, 'inbox.db'));
    expect(state()[0]).toMatchObject({
      state: 'failure',
      message: expect.stringContaining('a start is refused: ') as string,
      next: expect.stringContaining('See who put it there') as string,
    });
    rmSync(join(folder, 'inbox.db'));
    chmodSync(folder, 0);
    const lines = asNobody(state);
    expect(lines.find(({ check }) => check === 'state.writable')).toMatchObject({
      state: 'warning',
      message: `this user may not write to ${folder}`,
      next: 'Run `sudo tagferry doctor`.',
    });
    chmodSync(folder, 0o700);
    rmSync(folder, { recursive: true });
  });

  it('says that a clock in 1970 fails TLS first', async () => {
    const [line] = await checkClock({ clock: { ...systemClock, wallMs: () => 60_000 } } as Consultation);
    expect(line).toMatchObject({
      state: 'failure',
      message: expect.stringContaining('1970'),
      next: expect.stringContaining('TLS'),
    });
  });
});

describe('the doctor beside a daemon', () => {
  it("asks with the daemon's session, without its secrets and without a second login", async () => {
    agent.write(sandbox.url, { tags: TAGS });
    await agent.start();
    const { issued } = sandbox.tokens.counts();
    // An operator's shell: the secrets reached the daemon by another way.
    const env = readFileSync(join(agent.config, 'agent.env'), 'utf8');
    writeFileSync(join(agent.config, 'agent.env'), env.replaceAll(/^(CLIENT_SECRET|TECHNICAL_PASSWORD)=.*\n/gm, ''), {
      mode: 0o600,
    });
    const { status, checks } = await consult(agent);
    expect(checks.filter((line) => line.state === 'failure')).toEqual([]);
    expect(status).toBe(0);
    expect(linesOf(checks, 'daemon')).toMatchObject([{ state: 'ok' }]);
    expect(linesOf(checks, 'sign_in')[0]!.message).toContain('the daemon is signed in');
    expect(linesOf(checks, 'assets')).toMatchObject([{ state: 'ok' }]);
    expect(sandbox.tokens.counts().issued).toBe(issued);
    agent.write(sandbox.url, { tags: TAGS });
  });

  it('prints one line for each step for people', async () => {
    const { status, stdout } = await runVerb(['doctor', '--config', agent.config]);
    expect(status).toBe(0);
    expect(stdout).toMatch(/^ok +configuration +/m);
    expect(stdout).toMatch(/^0 failures, \d+ warnings?, \d+ ok$/m);
  });

  it('writes an archive that tar can read, with nothing secret in it', async () => {
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
