import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { connect, type MqttClient } from 'mqtt';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../../../src/base/port-claim.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { Mosquitto } from '../../e2e/harness/mosquitto.ts';
import { NOTHING_WRONG, Published, TOPICS, tagsOf } from '../../e2e/harness/mqtt-values.ts';
import { RecordingProxy } from '../../e2e/harness/recording-proxy.ts';

/**
 * Debian's Mosquitto, the agent as a process, and a plant that publishes with QoS 1. Values are counted on the platform
 * by series and number.
 */
const ALL = Array.from({ length: TOPICS }, (_, topic) => topic);
const ENV = { COMMIT_INTERVAL: '1s', POST_INTERVAL: '100ms' };
/** Plugin from Debian's package, whose permissions can deny a subscription. */
const PLUGIN = execFileSync('sh', ['-c', 'ls /usr/lib/*/mosquitto_dynamic_security.so'], { encoding: 'utf8' }).trim();
const START_MS = 1_795_219_200_000;

let sandbox: Sandbox;
let broker: Mosquitto;
let ways: RecordingProxy[];
let agents: AgentProcess[];
let plant: MqttClient;
/** Rejects after the plant's broker has exited. */
let gone: Promise<never>;
let published: Published;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  broker = await Mosquitto.make();
  agents = [];
  ways = [];
  published = new Published();
});
afterEach(async () => {
  plant?.end(true);
  for (const agent of agents) await agent.dispose();
  for (const way of ways) await way.stop();
  await broker.dispose();
  await sandbox.stop();
});

function agentOf(tags: string, env: Record<string, string> = ENV): AgentProcess {
  const agent = new AgentProcess(sandbox.url, { tags, env });
  agents.push(agent);
  return agent;
}

/** Observes a connection to the broker. Returns the observer and its port. */
async function wayToBroker(): Promise<{ way: RecordingProxy; port: number }> {
  const way = new RecordingProxy(broker.port);
  ways.push(way);
  return { way, port: await way.start() };
}

async function connectPlant(port = broker.port, login = ''): Promise<void> {
  // Lost messages are not repeated: each number is published once.
  plant = connect(`mqtt://${login}127.0.0.1:${port}`, { reconnectPeriod: 0, protocolVersion: 5 });
  plant.on('error', () => {});
  gone = new Promise((_, reject) => plant.once('close', () => reject(new Error('the broker is gone'))));
  gone.catch(() => {});
  await new Promise<void>((resolve) => plant.once('connect', () => resolve()));
}

/** Resolves when the broker has the message; rejects when the broker exits. */
const say = (topic: number, text: string) =>
  Promise.race([plant.publishAsync(`site/t${topic}`, text, { qos: 1 }), gone]);

/** Publishes a number of values to the topics in turn; ends early if the broker exits. */
async function publishSome(count: number): Promise<void> {
  for (let n = 0; n < count; n++) {
    const topic = published.count % TOPICS;
    try {
      await say(topic, published.next(topic));
    } catch {
      return;
    }
  }
}

/** Waits for a message, which proves that the subscriptions are active. Returns the first number to count. */
async function untilHeard(agent: AgentProcess): Promise<number> {
  await agent.until(() => agent.logged('broker.connected').length > 0, 'the broker is connected');
  await agent.until(async () => {
    await say(0, published.next(0));
    return sandbox.values.counts(881).stored > 0;
  }, 'the first value has arrived');
  return published.count;
}

/** Checks that all numbers from the given one on have arrived, each once, and no others. */
async function expectAll(agent: AgentProcess, first: number): Promise<void> {
  const missing = () => published.compare(sandbox).missing.filter((n) => n >= first);
  await agent.until(() => missing().length === 0, 'all values have arrived');
  const { invented, doubled } = published.compare(sandbox);
  expect({ missing: missing(), invented, doubled }).toEqual(NOTHING_WRONG);
}

interface Member {
  way: RecordingProxy;
  agent: AgentProcess;
}

/** Agents that share the messages, each over a separate connection; none is started. */
async function groupOf(count: number, ...more: string[]): Promise<Member[]> {
  const members: Member[] = [];
  while (members.length < count) {
    const { way, port } = await wayToBroker();
    const source = ['share: gateways', ...more].join(', ');
    members.push({ way, agent: agentOf(tagsOf(port, ALL, source, ', at: /v, time: /t')) });
  }
  return members;
}

/** Publishes numbers with times, because two agents may assign the same arrival time. Returns the first number. */
async function timed(count: number): Promise<number> {
  const first = published.count;
  for (let n = 0; n < count; n++) {
    const topic = published.count % TOPICS;
    const number = published.next(topic);
    await say(topic, `{"v":${number},"t":${START_MS + Number(number)}}`);
  }
  return first;
}

/** Two running members of a group that have each received a share of the messages. */
async function pairThatShares(...more: string[]): Promise<[Member, Member]> {
  const [one, other] = (await groupOf(2, ...more)) as [Member, Member];
  await one.agent.start();
  await other.agent.start();
  await other.agent.until(async () => {
    await timed(10);
    return one.way.confirmed.size > 0 && other.way.confirmed.size > 0;
  }, 'both agents are receiving values');
  return [one, other];
}

/** Configuration in which `gw` may subscribe to these topics by their exact names, and `plant` may publish. */
function rightsOf(topics: readonly string[]): string {
  const rights = join(broker.folder, 'rights.json');
  execFileSync('mosquitto_ctrl', ['dynsec', 'init', rights, 'admin', 'geheim'], { stdio: 'ignore' });
  const made = JSON.parse(readFileSync(rights, 'utf8')) as { clients: object[]; roles: object[] };
  const [admin] = made.clients as [{ password: string; salt: string; iterations: number }];
  const { password, salt, iterations } = admin;
  const clientOf = (username: string) => ({ username, password, salt, iterations, roles: [{ rolename: username }] });
  const allow = (acltype: string, topic: string) => ({ acltype, topic, priority: 0, allow: true });
  made.clients.push(clientOf('gw'), clientOf('plant'));
  made.roles.push(
    {
      rolename: 'gw',
      acls: topics.flatMap((topic) => [allow('subscribeLiteral', topic), allow('publishClientReceive', topic)]),
    },
    { rolename: 'plant', acls: [allow('publishClientSend', 'plant/#')] },
  );
  writeFileSync(
    rights,
    JSON.stringify({
      ...made,
      defaultACLAccess: { publishClientSend: false, publishClientReceive: false, subscribe: false, unsubscribe: true },
    }),
  );
  const { port } = broker;
  return `plugin ${PLUGIN}\nplugin_opt_config_file ${rights}\nlistener ${port} 127.0.0.1\nallow_anonymous false`;
}

describe('agents with Mosquitto', () => {
  it('do not lose, duplicate or invent values across kill -9, SIGTERM and reloads that add and remove a topic', async () => {
    await broker.start();
    await connectPlant();
    const agent = agentOf(tagsOf(broker.port, ALL));
    await agent.start();
    const first = await untilHeard(agent);
    for (const signal of ['SIGKILL', 'SIGTERM', 'SIGKILL'] as const) {
      const before = published.count;
      const publishing = publishSome(150);
      await agent.until(() => published.count > before + 20, 'some messages were published');
      await agent.end(signal);
      await publishing;
      await agent.start();
    }
    for (const topics of [[...ALL, 71], ALL, [...ALL, 72]]) {
      const publishing = publishSome(100);
      const before = agent.logged('config.reloaded').length;
      agent.write(sandbox.url, { tags: tagsOf(broker.port, topics), env: ENV });
      agent.signal('SIGHUP');
      await agent.until(() => agent.logged('config.reloaded').length > before, 'the reload is accepted or rejected');
      await publishing;
    }
    await expectAll(agent, first);
  });

  it.each([
    {
      keeps: 'keeps its sessions on disk',
      persistence: 'persistence true\nautosave_on_changes true\nautosave_interval 1',
    },
    { keeps: 'forgets its sessions', persistence: 'persistence false' },
  ])('receive confirmed values after kill -9 of a broker that $keeps during publishing', async ({ persistence }) => {
    const configuration = `${persistence}\npersistence_location ${broker.folder}/`;
    await broker.start(configuration);
    const { way, port } = await wayToBroker();
    const agent = agentOf(tagsOf(port, ALL));
    await agent.start();
    await connectPlant();
    await untilHeard(agent);
    for (let blow = 0; blow < 3; blow++) {
      const before = way.confirmed.size;
      const publishing = publishSome(10_000);
      await agent.until(() => way.confirmed.size > before + 30, 'some messages are confirmed, and more are in flight');
      await broker.stop('SIGKILL');
      await publishing;
      plant.end(true);
      await broker.start(configuration);
      await connectPlant();
      const since = published.count;
      await agent.until(async () => {
        await say(0, published.next(0));
        return [...way.confirmed.keys()].some((text) => Number(text) >= since);
      }, 'values are delivered again');
    }
    await agent.until(
      () => published.compare(sandbox).missing.every((n) => !way.confirmed.has(String(n))),
      'the confirmed messages have arrived',
    );
    // Values without times of their own may be stored twice.
    expect(published.compare(sandbox).invented).toEqual([]);
    expect(way.confirmed.size).toBeGreaterThan(3 * 30);
  });

  it('share messages in a group, and duplicate at most the unacknowledged messages of an agent after kill -9', async () => {
    await broker.start();
    await connectPlant();
    const [one, other] = await pairThatShares();
    const [killed, stays] = [one.agent, other.agent];
    const first = published.count;
    const publishing = timed(300);
    const before = other.way.confirmed.size;
    await stays.until(() => other.way.confirmed.size > before, 'values of the stream are delivered');
    await killed.end('SIGKILL');
    await publishing;
    await killed.start();
    await expectAll(stays, first);
    const inFlight = 20;
    expect([...one.way.confirmed.keys()].filter((text) => other.way.confirmed.has(text)).length).toBeLessThanOrEqual(
      inFlight,
    );
  });

  it('in a group assign each time only once per series if values get their time from a user property', async () => {
    await broker.start();
    await connectPlant();
    const tags = tagsOf(broker.port, [0, 1], 'share: gateways', ', time_property: sent');
    const [one, other] = [agentOf(tags), agentOf(tags)];
    for (const agent of [one, other]) {
      await agent.start();
      await agent.until(() => agent.logged('broker.connected').length > 0, 'the broker is connected');
    }
    const taken = async (agent: AgentProcess) => await agent.metric('tagferry_values_ingested_total');
    let sentMs = START_MS;
    const burst = () =>
      Promise.all(
        Array.from({ length: 100 }, () => {
          const topic = published.count % 2;
          const properties = { userProperties: { sent: String(++sentMs) } };
          return plant.publishAsync(`site/t${topic}`, published.next(topic), { qos: 1, properties });
        }),
      );
    await one.until(async () => {
      await burst();
      return (await taken(one)) > 0 && (await taken(other)) > 0;
    }, 'both agents are receiving values');
    const first = published.count;
    for (let n = 0; n < 10; n++) await burst();
    await expectAll(one, first);
    expect(sandbox.values.counts()).toMatchObject({ replaced: 0, duplicates: 0 });
  });

  it('that remain in a group receive all messages after a killed member’s session expires', async () => {
    await broker.start();
    await connectPlant();
    const [{ agent: killed }, { agent: stays }] = await pairThatShares('session_expiry: 2s');
    await killed.end('SIGKILL');
    const missing = (from: number) => published.compare(sandbox).missing.filter((number) => number >= from);
    const last = await timed(1);
    await stays.until(async () => {
      const first = await timed(20);
      // A slow member is checked again with the next twenty messages.
      const untilMs = performance.now() + 3_000;
      while (missing(first).length > 0 && performance.now() < untilMs) await pause(100);
      return missing(first).length === 0;
    }, 'the agent also receives the other agent’s share');
    const since = await timed(200);
    await expectAll(stays, since);
    // Control: until then, the absent member was assigned its share.
    expect(missing(last).length).toBeGreaterThan(0);
  });

  it('in a group lose no acknowledged message if the broker is killed while another agent joins', async () => {
    const configuration = `persistence true\nautosave_on_changes true\nautosave_interval 1\npersistence_location ${broker.folder}/`;
    await broker.start(configuration);
    await connectPlant();
    const members = await groupOf(3);
    const [one, other, joins] = members.map(({ agent }) => agent) as [AgentProcess, AgentProcess, AgentProcess];
    await one.start();
    await other.start();
    const flows = (which: number) =>
      other.until(async () => {
        await timed(10);
        return members[which]!.way.confirmed.size > 0;
      }, `values are delivered to the agent ${which}`);
    await flows(0);
    await flows(1);
    const before = published.count;
    const publishing = timed(10_000).catch(() => {});
    await other.until(() => published.count > before + 30, 'values of the stream are delivered');
    await broker.stop('SIGKILL');
    await publishing;
    plant.end(true);
    await broker.start(configuration);
    await connectPlant();
    await joins.start();
    await flows(2);
    const confirmed = () =>
      members.flatMap(({ way }) => [...way.confirmed.keys()].map((text) => JSON.parse(text).v as number));
    await other.until(() => {
      const missing = new Set(published.compare(sandbox).missing);
      return confirmed().every((number) => !missing.has(number));
    }, 'the confirmed messages have arrived');
    expect(published.compare(sandbox).invented).toEqual([]);
    expect(await joins.metric('tagferry_values_ingested_total')).toBeGreaterThan(0);
  });

  it('subscribe to single topics if the broker rejects their wildcard', async () => {
    const numbers = Array.from({ length: 20 }, (_, at) => at);
    await broker.start(rightsOf(numbers.map((at) => `plant/P-${at}/flow`)));
    const like = numbers.map((at) => `  l${at}: { k${at}: { from: broker, topic: "plant/{tag}/flow" } }\n`);
    const tags = numbers.map((at) => `  P-${at}: { asset: 881, like: l${at} }\n`);
    const agent = agentOf(
      `sources: { broker: { mqtt: "mqtt://gw:geheim@127.0.0.1:${broker.port}" } }\nlike:\n${like.join('')}tags:\n${tags.join('')}`,
    );
    await agent.start();
    await connectPlant(broker.port, 'plant:geheim@');
    await agent.until(async () => {
      for (const at of numbers) await plant.publishAsync(`plant/P-${at}/flow`, String(at), { qos: 1 });
      return numbers.every((at) => sandbox.values.counts(881, `k${at}`).stored > 0);
    }, 'every tag has its values');
    const refused = agent.logged('broker.not_allowed').map(({ topic }) => topic);
    expect([...new Set(refused)]).toEqual(['plant/+/flow']);
  });

  it('receive values over WebSocket, even after an agent restart', async () => {
    const { port } = broker;
    const plain = await freePort();
    await broker.start(
      `listener ${port} 127.0.0.1\nprotocol websockets\nlistener ${plain} 127.0.0.1\nallow_anonymous true`,
    );
    await connectPlant(plain);
    const tags = tagsOf(port, ALL).replace(`mqtt://127.0.0.1:${port}`, `ws://127.0.0.1:${port}`);
    expect(tags).toContain('ws://');
    const agent = agentOf(tags);
    await agent.start();
    const first = await untilHeard(agent);
    await agent.end('SIGTERM');
    await publishSome(100);
    await agent.start();
    await expectAll(agent, first);
  });

  it('receive two thousand tags through one subscription over TLS with a site CA, certificate and password', async () => {
    const openssl = (...args: string[]) => execFileSync('openssl', args, { cwd: broker.folder, stdio: 'ignore' });
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
    writeFileSync(join(broker.folder, 'san'), 'subjectAltName=IP:127.0.0.1');
    make('server', ['-days', '30', '-extfile', 'san']);
    make('gateway', ['-days', '12']);
    execFileSync('mosquitto_passwd', ['-b', '-c', join(broker.folder, 'users'), 'gw', 'geheim']);
    const secure = await freePort();
    await broker.start(
      `per_listener_settings true\nlistener ${broker.port} 127.0.0.1\nallow_anonymous true\nlistener ${secure} 127.0.0.1\nallow_anonymous false\n` +
        `password_file ${broker.folder}/users\ncafile ${broker.folder}/ca.pem\ncertfile ${broker.folder}/server.pem\nkeyfile ${broker.folder}/server.key\nrequire_certificate true`,
    );
    await connectPlant();
    const tags = Array.from({ length: 2_000 }, (_, at) => `  P-${at}: { asset: 881, like: l${at} }\n`).join('');
    const like = Array.from(
      { length: 2_000 },
      (_, at) => `  l${at}: { k${at}: { from: broker, topic: "plant/{tag}/flow", at: /v, time: /t } }\n`,
    ).join('');
    const agent = agentOf('tags: {}\n');
    for (const file of ['ca.pem', 'gateway.pem', 'gateway.key']) {
      execFileSync('cp', [join(broker.folder, file), join(agent.config, file)]);
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
    const rounds = [0, 1, 2];
    await agent.until(async () => {
      await plant.publishAsync('plant/P-0/flow', `{"v":-1,"t":${START_MS - 1}}`, { qos: 1 });
      return sandbox.values.counts(881).stored > 0;
    }, 'the first value has arrived');
    for (const round of rounds) {
      await Promise.all(
        Array.from({ length: 2_000 }, (_, at) =>
          plant.publishAsync(`plant/P-${at}/flow`, `{"v":${at},"t":${START_MS + round}}`, { qos: 1 }),
        ),
      );
    }
    await agent.until(() => sandbox.values.counts(881).stored === 6_001, 'every value has arrived once');
    const wrong = Array.from({ length: 2_000 }, (_, at) =>
      sandbox.values.compare(
        881,
        `k${at}`,
        rounds.map((round) => ({ timestampMs: START_MS + round, value: at })),
      ),
    ).filter(({ missing, different }) => missing.length + different.length > 0);
    expect(wrong).toEqual([]);
    expect(agent.output).not.toContain('geheim');
  });
});
