import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect as connectSocket, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect, type MqttClient } from 'mqtt';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { AgentProcess } from './agent-process.ts';
import { NOTHING_WRONG, Published, TOPICS, tagsOf } from './mqtt-values.ts';

/** Debian's Mosquitto, the daemon as a process, a plant that publishes with QoS 1: counted at the platform, by series and number. */
const ALL = Array.from({ length: TOPICS }, (_, topic) => topic);
const ENV = { COMMIT_INTERVAL: '1s', POST_INTERVAL: '100ms' };

let folder: string;
let sandbox: Sandbox;
let mosquitto: ChildProcess;
let agent: AgentProcess;
let plant: MqttClient;
let port: number;

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port: free } = probe.address() as { port: number };
  await new Promise((resolve) => probe.close(resolve));
  return free;
}

async function startMosquitto(listeners: string): Promise<void> {
  const file = join(folder, 'mosquitto.conf');
  writeFileSync(file, `user root\nmax_queued_messages 0\n${listeners}`);
  mosquitto = spawn('/usr/sbin/mosquitto', ['-c', file], { stdio: 'ignore' });
  for (;;) {
    const socket = connectSocket(port, '127.0.0.1');
    const isOpen = await once(socket, 'connect').then(
      () => true,
      () => false,
    );
    socket.destroy();
    if (isOpen) return;
    if (mosquitto.exitCode !== null) throw new Error(`Mosquitto ended with ${mosquitto.exitCode}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-mosquitto-'));
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  port = await freePort();
});
afterEach(async () => {
  plant?.end(true);
  await agent?.dispose();
  mosquitto?.kill('SIGKILL');
  await sandbox.stop();
  rmSync(folder, { recursive: true, force: true });
});

async function connectPlant(): Promise<void> {
  plant = connect(`mqtt://127.0.0.1:${port}`);
  await new Promise<void>((resolve) => plant.once('connect', () => resolve()));
}

describe('with Mosquitto', () => {
  it('values outlive kill -9, SIGTERM and reloads that each add a topic, none lost and none invented', async () => {
    await startMosquitto(`listener ${port} 127.0.0.1\nallow_anonymous true\n`);
    await connectPlant();
    const published = new Published();
    agent = new AgentProcess(sandbox.url, { tags: tagsOf(port, ALL), env: ENV });
    await agent.start();
    await agent.until(() => agent.logged('broker.connected').length > 0, 'the broker is connected');
    // A message that comes shows that the subscriptions stand.
    await agent.until(async () => {
      await plant.publishAsync('site/t0', published.next(0), { qos: 1 });
      return sandbox.values.counts(881).stored > 0;
    }, 'the first value');
    const first = published.count;
    const publishSome = async (count: number) => {
      for (let n = 0; n < count; n++) {
        const topic = published.count % TOPICS;
        await plant.publishAsync(`site/t${topic}`, published.next(topic), { qos: 1 });
      }
    };
    for (const signal of ['SIGKILL', 'SIGTERM', 'SIGKILL'] as const) {
      const publishing = publishSome(150);
      await agent.until(() => published.count > first + 20, 'some were published');
      await agent.end(signal);
      await publishing;
      await agent.start();
    }
    for (const more of [71, 72]) {
      const publishing = publishSome(100);
      agent.write(sandbox.url, { tags: tagsOf(port, [...ALL, more]), env: ENV });
      agent.signal('SIGHUP');
      await publishing;
    }
    await agent.until(
      () => published.compare(sandbox).missing.filter((n) => n >= first).length === 0,
      'all of them',
      60_000,
    );
    const { missing, invented, doubled } = published.compare(sandbox);
    expect({ missing: missing.filter((n) => n >= first), invented, doubled }).toEqual(NOTHING_WRONG);
  });

  it('values come by WebSocket, and outlive a restart of the agent there as well', async () => {
    const plain = await freePort();
    await startMosquitto(
      `listener ${port} 127.0.0.1\nprotocol websockets\nlistener ${plain} 127.0.0.1\nallow_anonymous true\n`,
    );
    plant = connect(`mqtt://127.0.0.1:${plain}`);
    await new Promise<void>((resolve) => plant.once('connect', () => resolve()));
    const published = new Published();
    const tags = tagsOf(port, ALL).replace(`mqtt://127.0.0.1:${port}`, `ws://127.0.0.1:${port}`);
    expect(tags).toContain('ws://');
    agent = new AgentProcess(sandbox.url, { tags, env: ENV });
    await agent.start();
    await agent.until(() => agent.logged('broker.connected').length > 0, 'the broker is connected');
    await agent.until(async () => {
      await plant.publishAsync('site/t0', published.next(0), { qos: 1 });
      return sandbox.values.counts(881).stored > 0;
    }, 'the first value');
    const first = published.count;
    await agent.end('SIGTERM');
    for (let n = 0; n < 100; n++) {
      const topic = published.count % TOPICS;
      await plant.publishAsync(`site/t${topic}`, published.next(topic), { qos: 1 });
    }
    await agent.start();
    await agent.until(
      () => published.compare(sandbox).missing.filter((n) => n >= first).length === 0,
      'all of them',
      60_000,
    );
    const { missing, invented, doubled } = published.compare(sandbox);
    expect({ missing: missing.filter((n) => n >= first), invented, doubled }).toEqual(NOTHING_WRONG);
  });

  it('two thousand tags are one subscription, over TLS with an authority, a certificate and a password of the site', async () => {
    const openssl = (...args: string[]) => execFileSync('openssl', args, { cwd: folder, stdio: 'ignore' });
    const make = (name: string, more: string[]) => {
      openssl(
        'req',
        '-newkey',
        'rsa:2048',
        '-nodes',
        '-keyout',
        `${name}.key`,
        '-out',
        `${name}.csr`,
        '-subj',
        `/CN=${name}`,
      );
      openssl(
        'x509',
        '-req',
        '-in',
        `${name}.csr`,
        '-CA',
        'ca.pem',
        '-CAkey',
        'ca.key',
        '-out',
        `${name}.pem`,
        ...more,
      );
    };
    openssl(
      'req',
      '-x509',
      '-newkey',
      'rsa:2048',
      '-nodes',
      '-keyout',
      'ca.key',
      '-out',
      'ca.pem',
      '-subj',
      '/CN=site',
      '-days',
      '30',
    );
    writeFileSync(join(folder, 'san'), 'subjectAltName=IP:127.0.0.1');
    make('server', ['-days', '30', '-extfile', 'san']);
    make('gateway', ['-days', '12']);
    execFileSync('mosquitto_passwd', ['-b', '-c', join(folder, 'users'), 'gw', 'geheim']);
    const secure = await freePort();
    await startMosquitto(
      `per_listener_settings true\nlistener ${port} 127.0.0.1\nallow_anonymous true\nlistener ${secure} 127.0.0.1\nallow_anonymous false\n` +
        `password_file ${folder}/users\ncafile ${folder}/ca.pem\ncertfile ${folder}/server.pem\nkeyfile ${folder}/server.key\nrequire_certificate true\n`,
    );
    await connectPlant();
    const tags = Array.from({ length: 2_000 }, (_, at) => `  P-${at}: { asset: 881, like: l${at} }\n`).join('');
    const like = Array.from(
      { length: 2_000 },
      (_, at) => `  l${at}: { k${at}: { from: broker, topic: "plant/{tag}/flow", at: /v, time: /t } }\n`,
    ).join('');
    agent = new AgentProcess(sandbox.url, { env: ENV });
    for (const file of ['ca.pem', 'gateway.pem', 'gateway.key']) {
      execFileSync('cp', [join(folder, file), join(agent.config, file)]);
    }
    writeFileSync(join(agent.config, 'password'), 'geheim\n', { mode: 0o600 });
    agent.write(sandbox.url, {
      env: ENV,
      tags:
        `sources: { broker: { mqtt: "mqtts://127.0.0.1:${secure}", username: gw, password_file: password, ca: ca.pem, cert: gateway.pem, key: gateway.key } }\n` +
        `like:\n${like}tags:\n${tags}`,
    });
    await agent.start();
    await agent.until(() => agent.logged('broker.connected').length > 0, 'the broker is connected');
    const startMs = 1_795_219_200_000;
    const rounds = [0, 1, 2];
    await agent.until(async () => {
      await plant.publishAsync('plant/P-0/flow', `{"v":-1,"t":${startMs - 1}}`, { qos: 1 });
      return sandbox.values.counts(881).stored > 0;
    }, 'the first value');
    for (const round of rounds) {
      await Promise.all(
        Array.from({ length: 2_000 }, (_, at) =>
          plant.publishAsync(`plant/P-${at}/flow`, `{"v":${at},"t":${startMs + round}}`, { qos: 1 }),
        ),
      );
    }
    await agent.until(() => sandbox.values.counts(881).stored === 6_001, 'every value, once');
    const wrong = Array.from({ length: 2_000 }, (_, at) =>
      sandbox.values.compare(
        881,
        `k${at}`,
        rounds.map((round) => ({ timestampMs: startMs + round, value: at })),
      ),
    ).filter(({ missing, different }) => missing.length + different.length > 0);
    expect(wrong).toEqual([]);
    expect(agent.output).not.toContain('geheim');
  });
});
