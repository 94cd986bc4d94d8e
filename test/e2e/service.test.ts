// Requires: python3, systemd-notify
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { type AddressInfo, connect, createServer } from 'node:net';
import { join } from 'node:path';
import { createServer as createTlsServer } from 'node:tls';
import Database from 'better-sqlite3';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { freePort } from '../../src/base/port-claim.ts';
import { AgentProcess } from './harness/agent-process.ts';
import { NotifySocket } from './harness/notify-socket.ts';
import { Platform } from './harness/platform.ts';
import { VALUE_TAGS, ValuePlant } from './harness/value-plant.ts';
import { runVerb } from './harness/verb.ts';

let platform: Platform;
let agent: AgentProcess;
let second: AgentProcess | undefined;

beforeEach(async () => {
  platform = await Platform.start();
  agent = new AgentProcess(platform.url, { tags: `tags:\n${VALUE_TAGS}` });
});
afterEach(async () => {
  await second?.dispose();
  second = undefined;
  await agent.dispose();
  await platform.stop();
});

/** Agents that cannot listen on an address and on the path of a socket. Their retries take 10 s, beside the other tests. */
let blocked: { platform: Platform; onAddress: AgentProcess; onFile: AgentProcess; address: string };
const occupied = createServer();

beforeAll(async () => {
  const far = await Platform.start();
  const onAddress = new AgentProcess(far.url, { tags: `tags:\n${VALUE_TAGS}` });
  const onFile = new AgentProcess(far.url);
  await new Promise<void>((resolve) => occupied.listen(0, '127.0.0.1', resolve));
  const address = `127.0.0.1:${(occupied.address() as AddressInfo).port}`;
  blocked = { platform: far, onAddress, onFile, address };
  await onAddress.start({ POST_INTERVAL: '1h' });
  expect((await onAddress.push([{ tag: 'T-881', key: 'a', value: 1 }])).status).toBe(204);
  expect(await onAddress.end('SIGTERM')).toBe(0);
  writeFileSync(onFile.ingest, 'file of another program');
  onFile.launch();
  onAddress.launch({ INGEST_LISTEN: address });
});
afterAll(async () => {
  await blocked.onAddress.dispose();
  await blocked.onFile.dispose();
  await blocked.platform.stop();
  occupied.close();
});

const push = async (value = 1) => (await agent.push([{ tag: 'T-881', key: 'a', value }])).status;
const isEmpty = async () => (await agent.metric('tagferry_buffer_values')) === 0;
const probe = async (path: string) => {
  const { status, text } = await agent.call(agent.ops, path);
  return { code: status, ...(JSON.parse(text) as { problems: string[] }) };
};

describe('agent under a service manager', () => {
  let socket: NotifySocket;

  beforeEach(async () => {
    socket = await NotifySocket.open(agent);
  });
  afterEach(() => socket.close());

  const states = () => socket.received(/^(READY|RELOADING|STOPPING)=/);

  it('reports READY when it accepts values, RELOADING until a reload ends, and STOPPING', async () => {
    agent.launch({ NOTIFY_SOCKET: socket.path });
    await agent.until(() => states().length > 0, 'the agent reports its state');
    expect(await push()).toBe(204);
    expect((await probe('/readyz')).code).toBe(200);
    expect(socket.received(/^STATUS=./).length).toBeGreaterThan(0);
    expect(agent.hasBeenReady).toBe(true);
    const expected = ['READY=1'];
    expect(states()).toEqual(expected);
    for (const tags of [`tags:\n${VALUE_TAGS}  NEW: { asset: 887 }\n`, 'tags: nonsense\n']) {
      writeFileSync(join(agent.config, 'tags.yaml'), tags);
      agent.signal('SIGHUP');
      expected.push('RELOADING=1', 'READY=1');
      await agent.until(() => states().length === expected.length, 'the agent reports the end of the reload');
      expect(states()).toEqual(expected);
    }
    expect(socket.received(/^MONOTONIC_USEC=\d+$/)).toHaveLength(2);
    expect(agent.logged('config.refused')).toHaveLength(1);
    expect(await agent.end('SIGTERM')).toBe(0);
    await expect.poll(states).toEqual([...expected, 'STOPPING=1']);
  });

  it('notifies the watchdog while its event loop runs, and not while it is blocked', async () => {
    const send = (state: string) =>
      `execFileSync('systemd-notify', ['STATUS=${state}'], { env: { ...process.env, NOTIFY_SOCKET: '${socket.path}' } });`;
    // Pings that were sent before the event loop is blocked arrive during the first pause.
    const block = `import { execFileSync } from 'node:child_process';
      const pause = (ms) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
      process.on('SIGUSR2', () => { pause(500); ${send('blocked')} pause(1000); ${send('released')} });`;
    agent.flags = ['--import', `data:text/javascript,${encodeURIComponent(block)}`];
    await agent.start({ NOTIFY_SOCKET: socket.path, WATCHDOG_USEC: '300000' });
    const pings = () => socket.received(/^WATCHDOG=1$/).length;
    await agent.until(() => pings() >= 3, 'the watchdog is notified');
    agent.signal('SIGUSR2');
    await agent.until(() => socket.received(/^STATUS=released$/).length === 1, 'the event loop is released');
    const lines = socket.received();
    const blocked = lines.slice(lines.indexOf('STATUS=blocked'), lines.indexOf('STATUS=released'));
    // Ten periods. A ping may have been delayed on a busy machine.
    expect(blocked.filter((line) => line === 'WATCHDOG=1').length).toBeLessThan(5);
    const before = pings();
    await agent.until(() => pings() > before + 2, 'the watchdog is notified again');
  });
});

describe('agent startup', () => {
  it('exits with 1 if another agent uses the state folder, and does not disturb it', async () => {
    await agent.start();
    expect(await push(1)).toBe(204);
    second = new AgentProcess(platform.url, { tags: `tags:\n${VALUE_TAGS}`, env: { STATE_DIR: agent.state } });
    second.launch();
    expect(await second.ended()).toBe(1);
    // The second agent names the process that uses the folder.
    expect(JSON.stringify(second.logged('agent.start_failed'))).toContain(String(agent.pid));
    expect(second.hasBeenReady).toBe(false);
    const { stdout } = await runVerb(agent, 'status', '--json');
    expect(JSON.parse(stdout)).toMatchObject({ pid: agent.pid });
    expect(await push(2)).toBe(204);
    await agent.until(() => platform.counts(881).stored === 2, 'both values arrive');
    expect(platform.stored(881, 'a').map(({ value }) => value)).toEqual([1, 2]);
  });

  it('replaces the sockets of a killed agent, and only its user and group can access them', async () => {
    await agent.start();
    await agent.end('SIGKILL');
    expect(existsSync(agent.ingest)).toBe(true);
    await agent.start();
    expect(await push()).toBe(204);
    const modes = [agent.ingest, agent.ops, agent.webhook, join(agent.state, 'control.sock')].map((path) => {
      const status = statSync(path);
      return [status.isSocket(), (status.mode & 0o777).toString(8)];
    });
    expect(modes).toEqual(Array.from({ length: 4 }, () => [true, '660']));
    expect((statSync(agent.state).mode & 0o777).toString(8)).toBe('700');
  });
});

describe('SIGTERM', () => {
  it('ends the agent with 0 while values arrive, and no acknowledged value is missing', async () => {
    await agent.start();
    const plant = new ValuePlant(agent);
    await agent.until(() => platform.counts().stored > 100, 'values arrive');
    expect(await agent.end('SIGTERM')).toBe(0);
    await plant.stop();
    expect(agent.logged('agent.stopped')).toHaveLength(1);
    expect(platform.tokens().alive).toBe(0);
    await agent.start();
    await agent.until(isEmpty, 'the buffer is empty');
    const { acknowledged, ...wrong } = plant.count(platform);
    expect(wrong).toEqual({ missing: 0, invented: 0, different: 0 });
    expect(acknowledged).toBeGreaterThan(0);
  });
});

describe('listeners', () => {
  const TOKEN = 'ops-token-of-the-site';
  const EVENT = { body: '{}', headers: { 'Content-Type': 'application/json' } };

  /** Expects 503 with this reason from /readyz and from the listeners at these paths, and no details without a token. */
  async function expectUnavailable(code: string, listeners: readonly ('ingest' | 'webhook')[]): Promise<void> {
    for (const name of listeners) {
      const path = name === 'ingest' ? '/v1/values' : '/webhook';
      const { status, text, headers } = await agent.call(agent[name], path, EVENT);
      expect([name, status]).toEqual([name, 503]);
      expect(JSON.parse(text).error).toContain(code);
      expect(text).not.toContain(agent.state);
      expect(Number(headers['retry-after'])).toBeGreaterThan(0);
    }
    expect(await probe('/readyz')).toMatchObject({ code: 503, problems: [code] });
  }

  it('respond with 503 and the reason during startup, decommissioning and shutdown, without closing connections', async () => {
    agent.write(platform.url, { tags: `tags:\n${VALUE_TAGS}`, env: { OPS_TOKEN: TOKEN } });
    mkdirSync(agent.state, { mode: 0o700 });
    // The store thread receives messages once the file exists.
    const release = join(agent.folder, 'release');
    const wait = `import { existsSync } from 'node:fs';
      import { Worker } from 'node:worker_threads';
      const { postMessage } = Worker.prototype;
      Worker.prototype.postMessage = function post(...args) {
        if (existsSync('${release}')) postMessage.apply(this, args);
        else setTimeout(() => post.apply(this, args), 20);
      };`;
    agent.flags = ['--import', `data:text/javascript,${encodeURIComponent(wait)}`];
    // Like a `buffer` command that uses the state folder.
    const command = new Database(join(agent.state, 'tagferry.lock'));
    command.exec('BEGIN EXCLUSIVE');
    agent.launch();
    const isOpen = (path: string) => agent.call(path, '/').then(Boolean, () => false);
    const sockets = [agent.ingest, agent.webhook, agent.ops];
    await agent.until(async () => (await Promise.all(sockets.map(isOpen))).every(Boolean), 'the listeners are open');
    // From here on, a refused connection fails the test.
    await expectUnavailable('agent.starting', ['ingest', 'webhook']);
    const connection = connect(agent.ingest);
    onTestFinished(() => void connection.destroy());
    let received = '';
    connection.setEncoding('utf8').on('data', (text: string) => {
      received += text;
    });
    const body = JSON.stringify({ values: [{ tag: 'T-881', key: 'a', value: 1 }] });
    const head = `POST /v1/values HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${body.length}`;
    const statusOnSameConnection = async () => {
      received = '';
      connection.write(`${head}\r\n\r\n${body}`);
      await agent.until(() => received.includes('\r\n\r\n'), 'the response arrives');
      return Number(received.split(' ')[1]);
    };
    expect(await statusOnSameConnection()).toBe(503);
    writeFileSync(release, '');
    await agent.until(() => agent.logged('store.unavailable').length > 0, 'startup is suspended');
    await expectUnavailable('store.unavailable', ['ingest', 'webhook']);
    const full = await agent.call(agent.ops, '/readyz', { headers: { Authorization: `Bearer ${TOKEN}` } });
    expect(JSON.parse(full.text).problems).toEqual([expect.stringContaining(agent.state)]);

    command.close();
    await agent.until(async () => (await probe('/readyz')).code === 200, 'values are accepted');
    expect([await push(), await statusOnSameConnection()]).toEqual([204, 204]);
    // No webhook is registered.
    expect((await agent.call(agent.webhook, '/webhook', EVENT)).text).toContain('no_secret');
    await agent.until(() => agent.hasBeenReady, 'the agent is ready');
    await agent.until(isEmpty, 'the buffer is empty');

    const fault = platform.addFault({ method: 'POST', path: '/v1/assets/*', status: 503 });
    expect(await push()).toBe(204);
    const socketPath = join(agent.state, 'control.sock');
    const decommission = request({ socketPath, path: '/decommission/run', method: 'POST' });
    decommission.on('error', () => {}).end('{"timeout_ms":600000}');
    await agent.until(async () => (await push()) === 503, 'values are rejected');
    await expectUnavailable('decommission.started', ['ingest']);
    expect(await statusOnSameConnection()).toBe(503);
    decommission.destroy();
    await agent.until(async () => (await push()) === 204, 'values are accepted again');
    expect([await statusOnSameConnection(), (await probe('/readyz')).code]).toEqual([204, 200]);

    platform.removeFault(fault);
    platform.addFault({ path: '/oauth/revoke', latencyMs: 2_000 });
    agent.signal('SIGTERM');
    const isStopping = async () => (await agent.call(agent.webhook, '/webhook', EVENT)).text.includes('agent.stopping');
    await agent.until(isStopping, 'values and events are rejected');
    await expectUnavailable('agent.stopping', ['ingest', 'webhook']);
    expect(await statusOnSameConnection()).toBe(503);
    expect(await agent.ended()).toBe(0);
    expect(agent.logged('agent.stop_failed')).toEqual([]);
  });
});

describe('state of the agent', () => {
  interface Check {
    check: string;
    state: string;
  }
  /** Exit statuses of status and doctor, and whether doctor reports a failure of the network. */
  async function verbs() {
    const [status, doctor] = await Promise.all([
      runVerb(agent, 'status', '--json'),
      runVerb(agent, 'doctor', '--json'),
    ]);
    const { checks } = JSON.parse(doctor.stdout) as { checks: Check[] };
    const failed = checks.filter(({ state }) => state === 'failure').map(({ check }) => check);
    return {
      status: status.status,
      doctor: doctor.status,
      network: failed.some((check) => check.startsWith('network')),
    };
  }
  const probes = async () => [(await probe('/healthz')).code, (await probe('/readyz')).code];

  it('is reported by status, doctor, /healthz and /readyz while it runs, without a platform, and when stopped', async () => {
    await agent.start();
    expect(await agent.status()).toMatchObject({ pid: agent.pid, uplink: { away: null } });
    expect([await verbs(), await probes()]).toEqual([{ status: 0, doctor: 0, network: false }, [200, 200]]);

    await platform.fail();
    expect(await push()).toBe(204);
    await agent.until(() => agent.logged('uplink.away').length > 0, 'the agent detects the outage');
    expect((await agent.status()).uplink).toMatchObject({ away: expect.anything() });
    expect(await agent.metric('tagferry_platform_unavailable_seconds')).toBeGreaterThan(0);
    expect([await verbs(), await probes()]).toEqual([{ status: 0, doctor: 1, network: true }, [200, 200]]);
    await platform.recover();
    await agent.until(isEmpty, 'the buffer is empty');
    expect(await agent.metric('tagferry_platform_unavailable_seconds')).toBe(0);

    // No file system has this much space.
    writeFileSync(join(agent.config, 'agent.env'), 'BUFFER_MIN_FREE=1000000GB\n', { flag: 'a' });
    expect(await runVerb(agent, 'reload')).toMatchObject({ status: 0 });
    await agent.until(async () => (await push()) === 503, 'values are rejected');
    expect(await probes()).toEqual([503, 503]);
    expect((await probe('/healthz')).problems.length).toBeGreaterThan(0);

    expect(await agent.end('SIGTERM')).toBe(0);
    expect(await verbs()).toMatchObject({ status: 1, network: false });
    // doctor signs in itself if no agent is running.
    expect(platform.tokens().alive).toBe(0);
    expect(await runVerb(agent, 'no-such-verb')).toMatchObject({ status: 2 });
  });

  it('includes certificates of the platform and the listeners that expire soon', async () => {
    const [cert, key] = [join(agent.config, 'soon.pem'), join(agent.config, 'soon.key')];
    const subject = ['-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1'];
    const options = ['-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '3', '-keyout', key, '-out', cert];
    execFileSync('openssl', ['req', ...options, ...subject], { stdio: 'ignore' });
    const tls = { cert: readFileSync(cert), key: readFileSync(key) };
    const front = createTlsServer(tls, (socket) => {
      socket.pipe(connect(Number(new URL(platform.url).port), '127.0.0.1').on('error', () => {})).pipe(socket);
      socket.on('error', () => {});
    });
    await new Promise<void>((resolve) => front.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void front.close());
    const address = `https://127.0.0.1:${(front.address() as AddressInfo).port}`;
    const ingest = {
      INGEST_LISTEN: `127.0.0.1:${await freePort()}`,
      INGEST_TOKEN: 'a-token-of-more-than-sixteen-letters',
    };
    const env = { PLATFORM_CA: cert, INGEST_TLS_CERT: cert, INGEST_TLS_KEY: key, ...ingest };
    agent.write(address, { tags: `tags:\n${VALUE_TAGS}`, env });
    expect((await runVerb(agent, 'doctor')).stdout).toMatch(/ingest\s+certificate\s+expires\s+in\s+2\s+days/);
    await agent.start();
    await agent.until(() => agent.logged('session.valid').length > 0, 'the agent is signed in');
    const { certificates } = (await agent.status()) as { certificates: { use: string }[] };
    expect(certificates.map(({ use }) => use).sort()).toEqual(['ingest', 'platform']);
    const ends = await agent.metric('tagferry_certificate_expiry_timestamp_seconds{use="platform"}');
    expect(Math.round((ends - Date.now() / 1000) / 86_400)).toBe(3);
    const { notes } = JSON.parse((await agent.call(agent.ops, '/healthz')).text) as { notes: string[] };
    expect(notes.join()).toMatch(/ingest certificate expires in 2 days/);
    const [found, screen] = [await runVerb(agent, 'doctor'), await runVerb(agent, 'status')];
    expect(found.stdout).toMatch(/warning\s+network\.tls/);
    for (const use of ['ingest', 'platform']) {
      expect(screen.stdout).toMatch(new RegExp(`${use}\\s+certificate\\s+expires\\s+in\\s+2\\s+days`));
    }
  });

  it.each(['a request without OPS_TOKEN', 'a request from the network if OPS_TOKEN is not set'])(
    'is reported to %s only as states, event codes and counts',
    async (who) => {
      const headers = { Authorization: 'Bearer ops-token-of-the-site' };
      const [port, isNetwork] = [await freePort(), who.includes('network')];
      const env = isNetwork ? { OPS_LISTEN: `0.0.0.0:${port}` } : { OPS_TOKEN: 'ops-token-of-the-site' };
      agent.write(platform.url, { tags: `tags:\n${VALUE_TAGS}`, env });
      await agent.start();
      writeFileSync(join(agent.config, 'agent.env'), 'BUFFER_MIN_FREE=1000000GB\n', { flag: 'a' });
      expect(await runVerb(agent, 'reload')).toMatchObject({ status: 0 });
      await agent.until(async () => (await push()) === 503, 'values are rejected');
      platform.addFault({ path: '/oauth/token', status: 401 });
      expect(await runVerb(agent, 'session', 'renew')).toMatchObject({ status: 1 });
      writeFileSync(join(agent.config, 'tags.yaml'), 'tags: { T-1: { aset: 1 } }\n');
      expect(await runVerb(agent, 'reload')).toMatchObject({ status: 1 });

      for (const path of ['/healthz', '/readyz']) {
        const { status, text } = isNetwork
          ? await fetch(`http://127.0.0.1:${port}${path}`).then(async (r) => ({
              status: r.status,
              text: await r.text(),
            }))
          : await agent.call(agent.ops, path);
        expect(status).toBe(503);
        expect(JSON.parse(text)).toEqual({
          status: 'unavailable',
          problems: ['store.refused'],
          notes: ['config.refused'],
          session: {
            state: expect.stringMatching(/^(waiting|renewing)$/),
            usable: true,
            failures: expect.any(Number),
            last_error: { code: 'platform.sign_in_refused' },
          },
        });
        if (isNetwork) continue;
        const full = await agent.call(agent.ops, path, { headers });
        expect(full.status).toBe(503);
        expect(JSON.parse(full.text)).toMatchObject({
          problems: [expect.stringContaining('new values are rejected')],
          notes: [expect.stringContaining('tags.yaml:1')],
          session: { access_token: expect.any(String), last_error: { message: expect.stringContaining('401') } },
        });
      }
    },
  );
});

describe('log that cannot be written', () => {
  const DROPPED = 'tagferry_log_lines_dropped_total';
  const isRunning = () =>
    push().then(
      (status) => status === 204,
      () => false,
    );

  async function delivers(): Promise<void> {
    const { stored } = platform.counts();
    expect(await push()).toBe(204);
    await agent.until(() => platform.counts().stored > stored, 'the value is on the platform');
  }

  it.each([
    ['a full file system', 'exec > /dev/full 2>&1'],
    ['a closed pipe', 'exec > >(:) 2>&1; wait $!'],
  ])('stops neither the agent nor its values: %s', async (_name, redirect) => {
    agent.surroundings = ['bash', '-c', `${redirect}; exec "$0" "$@"`];
    agent.launch();
    await agent.until(isRunning, 'the agent is running');
    await agent.until(async () => (await agent.metric(DROPPED)) > 0, 'log lines are dropped');
    await delivers();
    writeFileSync(join(agent.config, 'tags.yaml'), 'tags: nonsense\n');
    const dropped = await agent.metric(DROPPED);
    agent.signal('SIGHUP');
    await agent.until(
      async () => (await agent.metric(DROPPED)) > dropped,
      'the rejected reload is dropped from the log',
    );
    await delivers();
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it('continues when there is space, with the number of dropped lines', async () => {
    const file = join(agent.folder, 'log');
    const maxMb = 64;
    writeFileSync(file, '');
    // The file is sparse and has its maximum size. A log that is rotated has space again.
    truncateSync(file, maxMb * 2 ** 20);
    agent.surroundings = ['bash', '-c', `ulimit -f ${maxMb * 1024}; exec "$0" "$@" >> "${file}"`];
    agent.launch();
    await agent.until(isRunning, 'the agent is running');
    await agent.until(async () => (await agent.metric(DROPPED)) > 0, 'log lines are dropped');
    truncateSync(file);
    const lines = () =>
      readFileSync(file, 'utf8')
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line) as Record<string, unknown>);
    agent.signal('SIGHUP');
    await agent.until(() => lines().some(({ event }) => event === 'config.reloaded'), 'the log continues');
    expect(lines()[0]).toMatchObject({ event: 'log.lines_dropped', level: 'warn', lines: await agent.metric(DROPPED) });
    await delivers();
  });
});

describe('agent whose address is in use', () => {
  it('exits with 1 and names the address, and keeps the values of the previous run', async () => {
    const { platform: far, onAddress, onFile, address } = blocked;
    expect(await Promise.all([onAddress.ended(), onFile.ended()])).toEqual([1, 1]);
    expect(JSON.stringify(onAddress.logged('agent.start_failed'))).toContain(address);
    expect(JSON.stringify(onFile.logged('agent.start_failed'))).toContain(onFile.ingest);
    expect(readFileSync(onFile.ingest, 'utf8')).toBe('file of another program');
    await onAddress.start();
    await onAddress.until(() => far.counts(881).stored === 1, 'the value arrives');
  });
});
