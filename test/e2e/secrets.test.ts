import { once } from 'node:events';
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { request, type ServerResponse } from 'node:http';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import mqtt from 'mqtt-packet';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../../src/base/port-claim.ts';
import { AgentProcess } from './harness/agent-process.ts';
import { type Exchange, HttpProxy } from './harness/http-proxy.ts';
import { CREDENTIALS, Platform } from './harness/platform.ts';
import { runVerb } from './harness/verb.ts';

/**
 * One session at the most verbose level, with a platform and brokers that quote secrets in their responses, and with
 * configuration files that contain secrets in the wrong places. All output is then searched for secrets.
 */
const FORMER_PASSWORD = 'p&ss wörd+/="1"';
const FORMER_CLIENT_SECRET = 'former+client/secret=&2';
const INGEST_TOKEN = 'ingest-token-of-the-site';
const OPS_TOKEN = 'ops-token-of-the-site';
const MQTT_PASSWORD = 'mqtt-password-of-the-site';
const NATS_PASSWORD = 'nats-password-of-the-site';
const HEADER_SECRET = 'header-secret-of-the-target';
const MISPLACED = [1, 2, 3, 4, 5, 6].map((n) => `misplaced-secret-${n}`);
/** Secrets that the agent never sends to the platform. */
const LOCAL = [MQTT_PASSWORD, NATS_PASSWORD, HEADER_SECRET, ...MISPLACED];
/** Assets whose posts receive a response that quotes secrets. The posts of `ACCEPTED` are accepted. */
const ASSETS = [881, 882, 883, 884, 885, 886, 887, 888];
const ACCEPTED = 893;
const LOGS = 'logs --no-follow --json --lines 1000';
const VIEWS = ['now', 'held', 'events', 'log', 'tags'].map((view) => `/live/${view}`);
const OPS_PATHS = ['/', '/status', '/healthz', '/metrics', ...VIEWS];

let platform: Platform;
let proxy: HttpProxy;
let agent: AgentProcess;
const stops: (() => unknown)[] = [];
let quotes = 0;
const peerPasswords = new Set<string>();
/** Output by origin. */
const seen = new Map<string, string>();

/** Secrets that are known so far. */
function secrets(): string[] {
  const { technicalPassword, clientSecret } = CREDENTIALS;
  const tokens = proxy.exchanges.flatMap(({ path, status, response }) => {
    if (path !== '/oauth/token' || status !== 200) return [];
    const { access_token, refresh_token } = JSON.parse(response) as Record<string, string>;
    return [access_token!, refresh_token!];
  });
  const webhooks = platform.webhooks().map(({ secret }) => secret);
  const set = [technicalPassword, clientSecret, FORMER_PASSWORD, FORMER_CLIENT_SECRET, INGEST_TOKEN, OPS_TOKEN];
  return [...set, ...tokens, ...webhooks, ...LOCAL];
}

/** Returns the forms in which a text may contain a secret. */
function formsOf(secret: string): string[] {
  const bytes = Buffer.from(secret);
  const base64 = [0, 1, 2].map((offset) => {
    const whole = Buffer.concat([Buffer.alloc(offset), bytes]).toString('base64');
    // The other characters depend on the surrounding text.
    return whole.slice(Math.ceil((offset * 8) / 6), Math.floor(((offset + bytes.length) * 8) / 6));
  });
  const form = new URLSearchParams({ s: secret }).toString().slice(2);
  const plain = [secret, encodeURIComponent(secret), form, JSON.stringify(secret).slice(1, -1), ...base64];
  const url = base64.map((text) => text.replaceAll('+', '-').replaceAll('/', '_'));
  return [...plain, ...url, bytes.toString('hex'), ...(secret.length > 20 ? [secret.slice(0, 16)] : [])];
}

/** Returns the secrets that a text contains. */
function secretsIn(text: string): string[] {
  return secrets().filter((secret) => formsOf(secret).some((form) => text.includes(form)));
}

function quoting(marker: string, quoted: readonly string[]): string {
  const base64 = (secret: string) => Buffer.from(`user:${secret}`).toString('base64');
  return [marker, ...quoted.flatMap((secret) => [secret, encodeURIComponent(secret), base64(secret)])].join(' ');
}

function respond(response: ServerResponse, status: number, body: string, type = 'application/json'): void {
  response.writeHead(status, { 'content-type': type }).end(body);
}

const errors = (message: string) => JSON.stringify({ errors: [{ type: 'invalid', message, attribute: message }] });

/** Responses to the posts of one asset each. */
const RESPONSES: readonly ((response: ServerResponse, text: string) => void)[] = [
  (response, text) => respond(response, 400, errors(text)),
  (response, text) => respond(response, 403, errors(text)),
  (response, text) => respond(response, 503, errors(text)),
  (response, text) => respond(response, 400, `<pre>${'.'.repeat(250)}</pre><p>${text}</p>`, 'text/html'),
  (response, text) => respond(response, 200, JSON.stringify({ quoted: text })),
  (response, text) => void response.writeHead(302, { location: `http://other/${encodeURIComponent(text)}` }).end(),
  (response, text) => respond(response, 404, errors(text)),
  (response, text) => respond(response, 400, JSON.stringify({ errors: [{ type: text, attribute: text }] })),
];

function answer({ path, headers, body }: Exchange, response: ServerResponse): boolean {
  if (path === '/oauth/token' && new URLSearchParams(body).get('password') === FORMER_PASSWORD) {
    const text = `quoted-sign-in ${headers.authorization} ${body} ${JSON.stringify(FORMER_PASSWORD)}`;
    respond(response, 401, JSON.stringify({ error: 'invalid_grant', error_description: text }));
    return true;
  }
  const index = ASSETS.indexOf(Number(/^\/v1\/assets\/(\d+)\/values/.exec(path)?.[1]));
  if (index < 0) return false;
  quotes++;
  RESPONSES[index]!(
    response,
    quoting(
      `quoted-${ASSETS[index]}`,
      secrets().filter((secret) => !LOCAL.includes(secret)),
    ),
  );
  return true;
}

async function listen(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  stops.push(() => server.close());
  return (server.address() as AddressInfo).port;
}

/** MQTT broker that rejects each client and quotes its password. */
function startMqtt(): Promise<number> {
  const server = createServer((socket) => {
    const parser = mqtt.parser({ protocolVersion: 5 });
    parser.on('packet', (packet) => {
      if (packet.cmd !== 'connect') return;
      peerPasswords.add(String(packet.password));
      const properties = { reasonString: quoting('quoted-mqtt', [String(packet.password)]) };
      const connack = { cmd: 'connack', sessionPresent: false, reasonCode: 0x87, properties } as const;
      socket.end(mqtt.generate(connack, { protocolVersion: 5 }));
    });
    socket.on('error', () => {}).on('data', (bytes) => parser.parse(bytes));
  });
  return listen(server);
}

/** NATS server that rejects each client and quotes its password. */
function startNats(): Promise<number> {
  const server = createServer((socket) => {
    socket
      .on('error', () => {})
      .on('data', (bytes) => {
        const connect = /CONNECT (\{.*\})/.exec(bytes.toString())?.[1];
        if (connect === undefined) return;
        const { pass } = JSON.parse(connect) as { pass: string };
        peerPasswords.add(pass);
        socket.end(`-ERR '${quoting('quoted-nats', [pass])}'\r\n`);
      });
    socket.write('INFO {"server_id":"S","version":"2.11.0","max_payload":1048576}\r\n');
  });
  return listen(server);
}

/** File of a process in /proc; empty if the process has exited. */
function ofProcess(pid: number | string, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'latin1');
  } catch {
    return '';
  }
}

function childrenOf(pid: number): number[] {
  const isChild = new RegExp(`\\) \\S ${pid} `);
  const children = readdirSync('/proc').filter((name) => /^\d+$/.test(name) && isChild.test(ofProcess(name, 'stat')));
  return children.flatMap((child) => [Number(child), ...childrenOf(Number(child))]);
}

/** Returns a response of the operations listener, or the first parts of an endless one. */
function read(path: string): Promise<string> {
  const headers = { Authorization: `Bearer ${OPS_TOKEN}` };
  return new Promise((resolve, reject) => {
    const outgoing = request({ socketPath: agent.ops, path, headers, agent: false }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk;
        if (text.split('\n\n').length > 5) response.destroy();
      });
      response.on('error', () => {}).on('close', () => resolve(text));
    });
    outgoing.on('error', reject).end();
  });
}

async function push(asset: number, value: number): Promise<void> {
  const body = JSON.stringify({ values: [{ tag: `T-${asset}`, key: 'flow', value }] });
  const headers = { 'Content-Type': 'application/json', Authorization: `Bearer ${INGEST_TOKEN}` };
  expect((await agent.call(agent.ingest, '/v1/values', { body, headers })).status).toBe(204);
}

async function runAll(...verbs: string[][]): Promise<void> {
  for (const verb of verbs) {
    const { stdout, stderr } = await runVerb(agent, ...verb);
    seen.set(verb.join(' '), stdout + stderr);
  }
}

beforeAll(async () => {
  platform = await Platform.start();
  proxy = await HttpProxy.start(platform.url);
  proxy.answer = answer;
  const [mqttPort, natsPort, port] = [await startMqtt(), await startNats(), await freePort()];
  const tags = `
sources:
  mqtt: { mqtt: "mqtt://127.0.0.1:${mqttPort}", version: 5, username: gw, password_file: mqtt-password }
  nats: { nats: "nats://gw:${NATS_PASSWORD}@127.0.0.1:${natsPort}" }
  program: { exec: [/bin/sh, -c, 'exec sleep 600'] }
tags:
  M: { asset: 881, values: { m: { unit: 12, from: mqtt, topic: site/m } } }
  N: { asset: 881, values: { n: { unit: 12, from: nats, subject: site.n } } }
  P: { asset: 881, values: { p: { unit: 12, from: program } } }
${[...ASSETS, ACCEPTED].map((asset) => `  T-${asset}: { asset: ${asset}, values: { flow: { unit: 12 } } }`).join('\n')}
`;
  const reactions = `
reactions:
  - name: quote
    on: value
    if: { tag: T-${ACCEPTED}, key: flow, above: 10 }
    do:
      - run: [/bin/sh, -c, env]
      - post: http://127.0.0.1:${port}/unknown
        headers: { Authorization: "Bearer ${HEADER_SECRET}" }
`;
  const env = {
    LOG_LEVEL: 'trace',
    OPS_TOKEN,
    POST_INTERVAL: '100ms',
    WEBHOOK_LISTEN: `127.0.0.1:${port}`,
    WEBHOOK_URL: `http://127.0.0.1:${port}/webhook`,
  };
  const files = { tags, reactions, env };
  const former = { CLIENT_SECRET: `'${FORMER_CLIENT_SECRET}'`, TECHNICAL_PASSWORD: `'${FORMER_PASSWORD}'` };
  agent = new AgentProcess(proxy.url, { ...files, env: { ...env, ...former } });
  writeFileSync(join(agent.config, 'mqtt-password'), MQTT_PASSWORD, { mode: 0o600 });
  // A secret in the environment, which commands must not inherit.
  await agent.start({ INGEST_TOKEN });
  await agent.until(() => agent.logged('session.refused').length > 0, 'the sign-in is rejected');
  agent.write(proxy.url, files);
  agent.signal('SIGHUP');
  await agent.registered();
  for (const asset of ASSETS) {
    const before = quotes;
    await push(asset, 1);
    await agent.until(() => quotes > before, `the platform responds to a post of ${asset}`);
    // Accepted posts prevent an outage.
    await push(ACCEPTED, asset);
  }
  await agent.until(() => agent.logged('reaction.failed').length > 0, 'the reaction has failed');
  await agent.until(() => agent.logged('reaction.output').length > 0, 'the command has printed its environment');
  await agent.until(() => peerPasswords.size === 2, 'the brokers have rejected the agent');
  await agent.until(() => agent.output.includes('quoted-881'), 'the log quotes the platform');
  await agent.until(() => agent.output.includes('quoted-nats'), 'the log quotes the NATS server');
  const bundle = join(agent.folder, 'bundle.tar.gz');
  await runAll(
    ['session', 'renew'],
    ['session', 'show'],
    ['buffer', 'quarantine'],
    ['sources', 'ls'],
    ['webhook', 'ls'],
  );
  const program = () => childrenOf(agent.pid).some((pid) => ofProcess(pid, 'cmdline').startsWith('sleep'));
  await agent.until(program, 'the program of the source is running');
  const processes = childrenOf(agent.pid).map((pid) => ofProcess(pid, 'cmdline') + ofProcess(pid, 'environ'));
  seen.set('processes', [ofProcess(agent.pid, 'cmdline'), ...processes].join('\n'));
  agent.write(proxy.url, {
    tags: `${tags
      .replace('password_file: mqtt-password', `pasword: ${MISPLACED[0]}`)
      .replace(`${NATS_PASSWORD}@127.0.0.1:${natsPort}`, `${MISPLACED[1]}@127.0.0.1:99999`)}`,
    reactions: reactions.replace(`${HEADER_SECRET}"`, `${MISPLACED[2]}" "`),
    env: {
      ...env,
      OPS_TOKEN: `${OPS_TOKEN} ${MISPLACED[3]}`,
      IDENTITY_URL: `https://gw:${MISPLACED[4]}@127.0.0.1:99999`,
      TECHNICAL_PASSWROD: MISPLACED[5]!,
    },
  });
  await runAll(['reload'], ['check'], ['status'], ['status', '--json'], LOGS.split(' '));
  const doctor = await runVerb(agent, 'doctor', '--bundle', bundle);
  seen.set('doctor', doctor.stdout + doctor.stderr);
  seen.set('bundle', gunzipSync(readFileSync(bundle)).toString('latin1'));
  for (const path of OPS_PATHS) seen.set(path, await read(path));
  seen.set('log', agent.output);
});
afterAll(async () => {
  await agent.dispose();
  await proxy.stop();
  await platform.stop();
  for (const stop of stops) await stop();
});

/** Returns the secrets in each of these outputs. */
function found(...origins: string[]): Record<string, string[]> {
  const texts = origins.map((origin) => [origin, seen.get(origin) ?? ''] as const);
  for (const [origin, text] of texts) expect(text, origin).not.toBe('');
  return Object.fromEntries(
    texts.map(([origin, text]) => [origin, secretsIn(text)]).filter(([, secret]) => secret!.length > 0),
  );
}

describe('agent with peers that quote secrets', () => {
  it('reveals no secret in its log at any level', () => {
    expect(found('log', LOGS)).toEqual({});
    // Otherwise, the log would not quote the peers at all.
    expect(seen.get('log')).toContain('***');
    expect(agent.logged('reaction.output')).not.toEqual([]);
  });

  it('reveals no secret on its operations listener', () => {
    expect(found(...OPS_PATHS)).toEqual({});
  });

  it('reveals no secret in the output of commands', () => {
    expect(found('session renew', 'session show', 'buffer quarantine', 'sources ls', 'webhook ls')).toEqual({});
    expect(found('status', 'status --json', 'doctor')).toEqual({});
  });

  it('reveals no secret in the support archive', () => {
    expect(found('bundle')).toEqual({});
  });

  it('reveals no secret in the problems of rejected files', () => {
    expect(found('check', 'reload')).toEqual({});
    for (const file of ['agent.env:', 'tags.yaml:', 'reactions.yaml:']) expect(seen.get('check')).toContain(file);
  });

  it('reveals no secret in its command line or to its child processes', () => {
    expect(found('processes')).toEqual({});
    expect(seen.get('processes')).toContain('PATH=');
  });

  it('stores its state in files that only its user can read', () => {
    const entries = readdirSync(agent.state, { recursive: true, withFileTypes: true });
    const paths = entries.filter((entry) => !entry.isSocket()).map(({ parentPath, name }) => join(parentPath, name));
    expect(paths.length).toBeGreaterThan(0);
    expect([agent.state, ...paths].filter((path) => (statSync(path).mode & 0o077) !== 0)).toEqual([]);
  });

  it('opens no debugger on SIGUSR1', async () => {
    agent.signal('SIGUSR1');
    for (let n = 0; n < 5; n++) expect((await agent.call(agent.ops, '/metrics')).status).toBe(200);
    expect(agent.output).not.toMatch(/debugger|inspector/i);
  });
});

describe('address with an unescaped password', () => {
  const MARKS = ['/', '@', '?', '#'];
  /** Contains no part that occurs elsewhere. */
  const REST = 'ssWORD';
  const user = (mark: string) => `gw:pa${mark}${REST}@127.0.0.1`;
  /** Addresses without a host, without `//`, or with a second one. */
  const incomplete = [`mqtt://gw:${REST}`, `gw:${REST}@host`, `mqtt:gw:${REST}@host`, `mqtt://a,mqtt://gw:${REST}`];
  const sources = MARKS.flatMap((mark, at) => [
    `  i${at}: { mqtt: "${incomplete[at]}" }\n`,
    `  m${at}: { mqtt: "mqtt://${user(mark)}:1883" }\n`,
    `  n${at}: { nats: "nats://${user(mark)}:4222" }\n`,
    `  o${at}: { opcua: "opc.tcp://${user(mark)}:4840" }\n`,
  ]);
  const rules = MARKS.map(
    (mark, at) => `  - { name: r${at}, on: threshold_reached, do: [{ post: "http://${user(mark)}/" }] }\n`,
  );
  const wrong = {
    tags: `sources:\n${sources.join('')}tags: {}\n`,
    reactions: `reactions:\n${rules.join('')}`,
    env: { IDENTITY_URL: `https://${user('@')}`, WEBHOOK_URL: `https://${user('?')}`, HTTPS_PROXY: user('#') },
  };
  const platformUrl = `https://${user('/')}`;
  let other: AgentProcess;

  beforeEach(() => {
    other = new AgentProcess(platform.url);
  });
  afterEach(() => other.dispose());

  it('is masked by commands and by a reload, and its correction is shown', async () => {
    await other.start();
    other.write(platformUrl, wrong);
    const outputs = [other.output];
    const reload = await runVerb(other, 'reload');
    const reports = [['check'], ['doctor'], ['status'], ['status', '--json']];
    const [check, ...others] = await Promise.all(reports.map((words) => runVerb(other, ...words)));
    for (const { stdout, stderr } of [reload, check!, ...others]) outputs.push(stdout, stderr);
    for (const path of ['/status', '/healthz']) outputs.push((await other.call(other.ops, path)).text);
    outputs.push(other.output);
    expect(other.logged('config.refused')).not.toEqual([]);
    expect(outputs.filter((text) => text.includes(REST))).toEqual([]);
    const mistakes = (check!.stdout + check!.stderr)
      .split('\n')
      .filter((line) => line.includes('gw') || line.includes('***@'));
    expect(mistakes.length).toBeGreaterThanOrEqual(3 * MARKS.length);
    expect(mistakes.join('\n')).toContain('%2F');
  });

  it('is masked when the agent cannot start', async () => {
    other.write(platformUrl, wrong);
    other.launch();
    expect(await other.ended()).toBe(78);
    expect(other.output).toContain('***@127.0.0.1');
    expect(other.output).not.toContain(REST);
  });
});
