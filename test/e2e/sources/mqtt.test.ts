// Requires: mosquitto
import { execFileSync } from 'node:child_process';
import { cpSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { connectAsync, type MqttClient } from 'mqtt';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AgentProcess } from '../harness/agent-process.ts';
import { Mosquitto } from '../harness/mosquitto.ts';
import { Published } from '../harness/mqtt-values.ts';
import { Platform } from '../harness/platform.ts';
import { RecordingProxy } from '../harness/recording-proxy.ts';
import { runVerb } from '../harness/verb.ts';

const START_MS = 1_700_000_000_000;
const ASSET = 881;
/** Sources that acknowledge messages, by topic number. */
const CONFIRMING = ['version: 3, qos: 1', 'qos: 1', 'qos: 2'] as const;
const UNCONFIRMED = 3;
const SHARED = 4;
const RETAINED = 5;
/** Sources of values without timestamps, by key. All of them except `taken` skip retained messages. */
const UNTIMED = {
  skipped: '',
  older: ', version: 3, qos: 0',
  exact: ', qos: 2',
  grouped: ', share: untimed',
  taken: ', retained: take',
};
const SKIPPING = ['skipped', 'older', 'exact', 'grouped'];
/** Values of senders with incorrect clocks, and their members. */
const CLOCKS = { unset: '', local: '', zoned: ', zone: Asia/Tokyo', coarse: '' };
/** Value of a device that sends padded strings, words and a code for "no value". */
const ODD = '      odd: { from: taken, topic: site/odd, map: { ON: 1, "OFF": 0 }, no_value: -9999, range: [0, 900] }\n';
/** Value of a device with a will message. */
const GAUGE = '      gauge: { from: clocks, topic: site/gauge, availability: "site/gauge/state" }\n';
const LIMITED_WAY = CONFIRMING.length;
/** Topics of a broker that closes the connection when a client subscribes to one of them. */
const LIMITED = ['first', 'forbidden', 'last'];
const FLOWING = [0, 1, 2, UNCONFIRMED];
// Long enough for a kill between a premature acknowledgement and its commit.
const ENV = { COMMIT_INTERVAL: '300ms', POST_INTERVAL: '100ms' };

/** Value in the output of `sources test`. */
interface Tested {
  key: string;
  raw: number;
  value: number;
  timestamp: string;
  problem: string | null;
}

let platform: Platform;
let broker: Mosquitto;
let ways: RecordingProxy[];
let limiting: RecordingProxy;
let ports: number[];
let agent: AgentProcess;
let plant: MqttClient;
const published = new Published();
/** Numbers that may be missing, because the protocol does not guarantee their delivery. */
const optional = new Set<number>();

function tagsOf(topics: readonly number[]): string {
  const sources = CONFIRMING.map((how, at) => `  s${at}: { mqtt: "mqtt://127.0.0.1:${ports[at]}", ${how} }\n`);
  sources.push(`  s${UNCONFIRMED}: { mqtt: "mqtt://127.0.0.1:${broker.port}", qos: 0 }\n`, shared());
  const untimed = Object.entries(UNTIMED);
  sources.push(...untimed.map(([key, how]) => `  ${key}: { mqtt: "mqtt://127.0.0.1:${broker.port}"${how} }\n`));
  const values = topics.map(
    (topic) =>
      `      k${topic}: { from: s${topic === RETAINED ? 1 : topic}, topic: site/t${topic}, at: /v, time: /t }\n`,
  );
  const untimedValues = untimed.map(([key]) => {
    const topic = key === 'exact' ? '+/untimed' : 'site/untimed';
    return `      ${key}: { from: ${key}, topic: ${topic} }\n`;
  });
  if (topics.includes(RETAINED)) untimedValues.push('      added: { from: skipped, topic: site/added }\n');
  sources.push(`  limited: { mqtt: "mqtt://127.0.0.1:${ports[LIMITED_WAY]}" }\n`);
  for (const key of LIMITED) untimedValues.push(`      ${key}: { from: limited, topic: site/${key} }\n`);
  sources.push(`  clocks: { mqtt: "mqtt://127.0.0.1:${broker.port}" }\n`);
  for (const [key, more] of Object.entries(CLOCKS))
    untimedValues.push(`      ${key}: { from: clocks, topic: site/${key}, at: /v, time: /t${more} }\n`);
  return `sources:\n${sources.join('')}tags:\n  T:\n    asset: ${ASSET}\n    values:\n${values.join('')}${untimedValues.join('')}${ODD}${GAUGE}`;
}

const shared = () => `  s${SHARED}: { mqtt: "mqtt://127.0.0.1:${broker.port}", share: gateways }\n`;

/** Publishes the next number of a topic. Resolves when the broker has it. */
async function say(topic: number, { isOptional = topic === UNCONFIRMED, retain = false } = {}): Promise<number> {
  const number = Number(published.next(topic));
  if (isOptional) optional.add(number);
  await plant.publishAsync(`site/t${topic}`, `{"v":${number},"t":${START_MS + number}}`, { qos: 2, retain });
  return number;
}

/** Publishes to the topics until `stop`;  */
function flow(topics: readonly number[]): { stop(): Promise<unknown> } {
  let isRunning = true;
  const publish = async (topic: number) => {
    while (isRunning) {
      await say(topic).catch(() => {});
      // An agent with few unacknowledged messages at a time needs long for a backlog at the broker.
      await pause(20);
    }
  };
  const done = Promise.all(topics.map(publish));
  return {
    stop() {
      isRunning = false;
      return done;
    },
  };
}

const arrived = (topic: number) => new Set(platform.stored(ASSET, `k${topic}`).map(({ value }) => value));

/** Waits for a message of each topic, which proves that the subscriptions are active. */
async function untilHeard(topics: readonly number[]): Promise<void> {
  const hear = async (topic: number) => {
    const tried: number[] = [];
    await agent.until(async () => {
      tried.push(await say(topic, { isOptional: true }));
      return tried.some((number) => arrived(topic).has(number));
    }, `messages of topic ${topic} arrive`);
  };
  await Promise.all(topics.map(hear));
}

/** Every number that is not optional has arrived, none has two times, and none was invented. */
async function expectAll(): Promise<void> {
  const missing = () => published.compare(platform).missing.filter((number) => !optional.has(number));
  await agent.until(() => missing().length === 0, 'all values arrive');
  const { doubled, invented } = published.compare(platform);
  expect({ missing: missing(), doubled, invented }).toEqual({ missing: [], doubled: [], invented: [] });
}

const confirmed = (at: number) =>
  [...ways[at]!.confirmed.keys()].filter((text) => text.startsWith('{')).map((text) => JSON.parse(text).v as number);

async function reload(topics: readonly number[]): Promise<void> {
  const before = agent.logged('config.reloaded').length;
  agent.write(platform.url, { tags: tagsOf(topics), env: ENV });
  agent.signal('SIGHUP');
  await agent.until(() => agent.logged('config.reloaded').length > before, 'the reload is accepted');
}

beforeAll(async () => {
  platform = await Platform.start();
  broker = await Mosquitto.make();
  await broker.start();
  ways = CONFIRMING.map(() => new RecordingProxy(broker.port));
  limiting = new RecordingProxy(broker.port, { forbidden: 'site/forbidden' });
  ports = await Promise.all([...ways, limiting].map((way) => way.start()));
  plant = await connectAsync(`mqtt://127.0.0.1:${broker.port}`, { reconnectPeriod: 50, clientId: 'plant' });
  plant.on('error', () => {});
  for (const topic of ['untimed', 'added']) await plant.publishAsync(`site/${topic}`, '1', { qos: 1, retain: true });
  await plant.publishAsync('site/unset', '{"v":1,"t":8}', { qos: 1, retain: true });
  agent = new AgentProcess(platform.url, { tags: tagsOf([...FLOWING, SHARED]), env: ENV });
  await agent.start();
  await untilHeard([...FLOWING, SHARED]);
});
afterAll(async () => {
  plant?.end(true);
  await agent?.dispose();
  await Promise.all([...(ways ?? []), limiting].map((way) => way?.stop()));
  await broker?.dispose();
  await platform?.stop();
});

describe('MQTT source', () => {
  it('acknowledges no message of MQTT 3.1.1 or 5 before it is on disk, and loses none across kill -9', async () => {
    const flowing = flow(FLOWING);
    for (let kill = 0; kill < 2; kill++) {
      const before = ways.map((way) => way.confirmed.size);
      await agent.until(
        () => ways.every((way, at) => way.confirmed.size > before[at]! + 5),
        'messages are acknowledged',
      );
      await agent.end('SIGKILL');
      await agent.start();
    }
    await flowing.stop();
    await expectAll();
    await untilHeard([UNCONFIRMED]);
    for (const at of CONFIRMING.keys()) expect(confirmed(at).filter((number) => !arrived(at).has(number))).toEqual([]);
  });

  it('skips a retained message without a time of its own unless `retained: take` is set', async () => {
    const values = (key: string) => platform.stored(ASSET, key).map(({ value }) => value);
    await agent.until(() => values('taken').includes(1), 'the retained message arrives');
    await plant.publishAsync('site/untimed', '2', { qos: 1 });
    const hasNext = () => ['taken', ...SKIPPING].every((key) => values(key).includes(2));
    await agent.until(hasNext, 'the next message arrives');
    for (const key of SKIPPING) expect([key, values(key).includes(1)]).toEqual([key, false]);
  });

  it('replaces implausible timestamps of live messages, rejects retained messages, and suggests time_unit', async () => {
    const isRejected = () => agent.logged('source.time_rejected').some(({ source }) => source === 'clocks');
    await agent.until(isRejected, 'the retained message is rejected');
    const beforeMs = Date.now();
    await plant.publishAsync('site/unset', `{"v":2,"t":${Math.floor(beforeMs / 1_000)}}`, { qos: 1 });
    await agent.until(() => platform.stored(ASSET, 'unset').some(({ value }) => value === 2), 'the value arrives');
    const [first, ...more] = platform.stored(ASSET, 'unset');
    expect([first!.value, more]).toEqual([2, []]);
    expect(first!.timestampMs).toBeGreaterThanOrEqual(beforeMs);
    const errors = agent.logged('source.time_replaced').map(({ error }) => error);
    expect(errors).toEqual([expect.stringContaining('T unset: timestamp 1970')]);
    expect(errors[0]).toContain('set time_unit: s');
  });

  it('reads timestamps without a UTC offset in their zone, and reports a missing zone and duplicate timestamps', async () => {
    const timeMs = Math.floor(Date.now() / 1_000) * 1_000;
    const tokyo = new Date(timeMs + 9 * 3_600_000).toISOString().replace('.000Z', '');
    for (const key of ['local', 'zoned']) await plant.publishAsync(`site/${key}`, `{"v":1,"t":"${tokyo}"}`, { qos: 1 });
    for (const v of [1, 1, 2]) await plant.publishAsync('site/coarse', `{"v":${v},"t":${timeMs}}`, { qos: 1 });
    await agent.until(() => platform.stored(ASSET, 'zoned').length > 0, 'the value arrives');
    expect(platform.stored(ASSET, 'zoned')[0]!.timestampMs).toBe(timeMs);
    const errorsOf = (event: string) => agent.logged(event).map(({ error }) => error);
    await agent.until(() => errorsOf('source.zone_missing').length > 0, 'the missing zone is reported');
    expect(errorsOf('source.zone_missing')).toEqual([expect.stringMatching(/^T local: .* 9 h ahead of .*set zone/)]);
    await agent.until(() => errorsOf('source.same_time').length > 0, 'the overwritten value is reported');
    expect(errorsOf('source.same_time')).toEqual([expect.stringMatching(/^T coarse at .*time_from: arrival/)]);
    const { stdout } = await runVerb(agent, 'sources', 'ls');
    for (const words of ['implausible timestamp replaced', 'probably local time', 'keeps only one'])
      expect(stdout).toContain(words);
  });

  it('reads padded numbers and mapped words, and rejects other text, codes and out-of-range values', async () => {
    const sent = ['\ufeff7\0\0', 'ON', '-9999', '21,5 kg', '0x1F', '1.234.567', '1e400', '901', 'OFF\0', '12.5'];
    for (const text of sent) await plant.publishAsync('site/odd', text, { qos: 1 });
    const values = () => platform.stored(ASSET, 'odd').map(({ value }) => value);
    await agent.until(() => values().includes(12.5), 'the final value arrives');
    expect(values()).toEqual([7, 1, 0, 12.5]);
    expect((await runVerb(agent, 'sources', 'ls')).stdout).toMatch(/^taken: \d+ rejected, latest: /m);
    expect(agent.logged('source.no_value')).toMatchObject([
      { value: 'T odd', error: '-9999 means "no value" (no_value)' },
    ]);
    expect(agent.logged('source.out_of_range')).toMatchObject([{ error: '901 is outside range [0, 900]' }]);
  });

  it('sends the latest value of a killed device with status bad after its will message, until its next value', async () => {
    const topic = 'site/gauge/state';
    const will = { topic, payload: Buffer.from('offline'), qos: 1, retain: true } as const;
    const options = { clientId: 'gauge', reconnectPeriod: 0, will };
    const device = await connectAsync(`mqtt://127.0.0.1:${broker.port}`, options);
    device.on('error', () => {});
    await device.publishAsync(topic, 'online', { qos: 1, retain: true });
    await device.publishAsync('site/gauge', '20', { qos: 1 });
    const values = () => platform.stored(ASSET, 'gauge');
    await agent.until(() => values().length === 1, 'the value arrives');
    // The connection ends without DISCONNECT, as if the process had been killed.
    device.stream.destroy();
    await agent.until(() => values().length === 2, 'the value arrives again');
    expect(values()[1]).toMatchObject({ value: 20, status: 'bad' });
    expect(agent.logged('mqtt.unavailable')).toMatchObject([{ source: 'clocks', topic }]);
    const words = `device unavailable according to ${topic}`;
    expect((await runVerb(agent, 'sources', 'ls')).stdout).toContain(words);
    await plant.publishAsync(topic, 'online', { qos: 1, retain: true });
    await plant.publishAsync('site/gauge', '21', { qos: 1 });
    await agent.until(() => values().length === 3, 'the next value arrives');
    expect(values()[2]!.value).toBe(21);
    expect(values()[2]!.status).not.toBe('bad');
    expect((await runVerb(agent, 'sources', 'ls')).stdout).not.toContain(words);
  });

  it('acknowledges and reports a message without a number, and continues with the next one', async () => {
    const reports = agent.logged('mqtt.unreadable').length;
    const text = `garbage ${Date.now()}`;
    for (const at of CONFIRMING.keys()) await plant.publishAsync(`site/t${at}`, text, { qos: 2 });
    const next = await Promise.all([...CONFIRMING.keys()].map((at) => say(at)));
    await agent.until(() => next.every((number, at) => arrived(at).has(number)), 'the next values arrive');
    await agent.until(() => ways.every((way) => way.confirmed.has(text)), 'the messages are acknowledged');
    await agent.until(() => agent.logged('mqtt.unreadable').length > reports, 'the messages are reported');
  });

  it('is tested beside the running sessions, which keep their connections and messages', async () => {
    const losses = () => agent.logged('broker.away').filter(({ broker: name }) => name !== 'limited').length;
    const before = losses();
    const flowing = flow(FLOWING);
    const { stdout } = await runVerb(
      agent,
      'sources',
      'test',
      '--json',
      '--wait',
      '20s',
      ...FLOWING.map((n) => `s${n}`),
    );
    await flowing.stop();
    const tested = (JSON.parse(stdout) as Tested[]).filter(({ key }) => key !== `k${RETAINED}`);
    expect(tested.map(({ key, problem }) => [key, problem])).toEqual(FLOWING.map((n) => [`k${n}`, null]));
    for (const { raw, value, timestamp } of tested) {
      expect([value, Date.parse(timestamp)]).toEqual([raw, START_MS + raw]);
    }
    await expectAll();
    expect(losses()).toBe(before);
  });

  it('lists topics with numbers for tags.yaml without affecting its session', async () => {
    const { stdout } = await runVerb(agent, 'sources', 'scan', 'taken', 'site/#', '--wait', '2s');
    expect(stdout).toContain('{ from: taken, topic: "site/untimed" }');
    const next = await say(1);
    await agent.until(() => arrived(1).has(next), 'the session continues');
  });

  it('reports a topic on which the broker closes the connection, and receives the other topics', async () => {
    // The previous process may also have found and logged the topic.
    const isFound = async () =>
      (await runVerb(agent, 'sources', 'ls')).stdout.includes('subscription to site/forbidden');
    await agent.until(isFound, 'the forbidden topic is found');
    const allowed = LIMITED.filter((key) => key !== 'forbidden');
    await agent.until(async () => {
      for (const key of LIMITED) await plant.publishAsync(`site/${key}`, '7', { qos: 1 });
      return allowed.every((key) => platform.stored(ASSET, key).length > 0);
    }, 'messages of the other topics arrive');
    expect(platform.stored(ASSET, 'forbidden')).toEqual([]);
    const logged = agent.logged('broker.not_allowed').map(({ broker: name, topic }) => `${name} ${topic}`);
    expect(new Set(logged)).toEqual(new Set(['limited site/forbidden']));
  });

  it('resumes with all topics after the broker is killed, without losing an acknowledged message', async () => {
    const first = published.count;
    const flowing = flow(FLOWING);
    const before = ways.map((way) => way.confirmed.size);
    await agent.until(() => ways.every((way, at) => way.confirmed.size > before[at]! + 5), 'messages are acknowledged');
    await broker.stop('SIGKILL');
    await broker.start();
    await untilHeard(FLOWING);
    await flowing.stop();
    // The broker has lost its sessions with the messages that were not acknowledged.
    const sure = new Set([...CONFIRMING.keys()].flatMap(confirmed));
    for (let number = first; number < published.count; number++) if (!sure.has(number)) optional.add(number);
    await expectAll();
  });

  it('loses no message during reloads that add and remove a topic, and receives its retained message', async () => {
    const flowing = flow([0, 1, 2]);
    const retained = await say(RETAINED, { retain: true });
    await reload([...FLOWING, SHARED, RETAINED]);
    await agent.until(() => arrived(RETAINED).has(retained), 'the retained message arrives');
    await plant.publishAsync('site/added', '2', { qos: 1 });
    const ofAdded = () => platform.stored(ASSET, 'added').map(({ value }) => value);
    await agent.until(() => ofAdded().includes(2), 'a message of the added topic arrives');
    await agent.end('SIGKILL');
    await agent.start();
    await untilHeard([RETAINED]);
    await reload([...FLOWING, SHARED]);
    await flowing.stop();
    const removed = await say(RETAINED, { isOptional: true });
    await expectAll();
    expect(platform.stored(ASSET, `k${RETAINED}`).find(({ value }) => value === retained)).toMatchObject({
      timestampMs: START_MS + retained,
    });
    expect(arrived(RETAINED).has(removed)).toBe(false);
    // The retained message is missing, even after the restart.
    expect(ofAdded()).toEqual([2]);
    for (const key of SKIPPING) expect(platform.stored(ASSET, key).map(({ value }) => value)).not.toContain(1);
  });

  it('shares messages with another agent, and loses none when one of them is killed', async () => {
    const tags = `sources:\n${shared()}tags: { T: { asset: ${ASSET}, values: { k${SHARED}: { from: s${SHARED}, topic: site/t${SHARED}, at: /v, time: /t } } } }\n`;
    const other = new AgentProcess(platform.url, { tags, env: ENV });
    try {
      await other.start();
      const name = `tagferry_values_ingested_total{source="s${SHARED}"`;
      const before = await agent.metric(name);
      let sent = 0;
      const isShared = async () => {
        for (let n = 0; n < 10; n++, sent++) await say(SHARED);
        return (await agent.metric(name)) > before && (await other.metric(name)) > 0;
      };
      await agent.until(isShared, 'both agents receive messages');
      await expectAll();
      expect((await agent.metric(name)) - before + (await other.metric(name))).toBeLessThanOrEqual(sent);
      const flowing = flow([SHARED]);
      const from = published.count;
      await agent.until(() => [...arrived(SHARED)].some((number) => number > from), 'messages of the flow arrive');
      await other.end('SIGKILL');
      await other.start();
      await flowing.stop();
      await expectAll();
    } finally {
      await other.dispose();
    }
  });
});

describe('MQTT source with TLS', () => {
  const CERTIFICATES = join(import.meta.dirname, '../../fixtures/certificates');
  let secure: Mosquitto;

  beforeAll(async () => {
    secure = await Mosquitto.make();
    const users = join(secure.folder, 'users');
    execFileSync('mosquitto_passwd', ['-b', '-c', users, 'gw', 'geheim']);
    await secure.start(
      `listener ${secure.port} 127.0.0.1\nallow_anonymous false\npassword_file ${users}\nrequire_certificate true\n` +
        `cafile ${CERTIFICATES}/authority.pem\ncertfile ${CERTIFICATES}/server.pem\nkeyfile ${CERTIFICATES}/server.key`,
    );
  });
  afterAll(() => secure?.dispose());

  it('connects with the CA, certificate and password of its files, which are never logged', async () => {
    const login = 'username: gw, password_file: password, ca: authority.pem, cert: server.pem, key: server.key';
    const own = new AgentProcess(platform.url, {
      tags:
        `sources: { s: { mqtt: "mqtts://localhost:${secure.port}", ${login} } }\n` +
        `tags: { T: { asset: ${ASSET}, values: { secure: { from: s, topic: site/secure, write_to: site/other } } } }\n`,
    });
    try {
      for (const file of ['authority.pem', 'server.pem', 'server.key']) {
        cpSync(join(CERTIFICATES, file), join(own.config, file));
      }
      writeFileSync(join(own.config, 'password'), 'geheim\n', { mode: 0o600 });
      await own.start();
      await own.until(() => own.logged('broker.connected').length > 0, 'the broker is connected');
      const [report] = (await own.status()).sources as { certificate_expires: string | null }[];
      expect(Date.parse(report!.certificate_expires!)).toBeGreaterThan(0);
      expect(own.output).not.toContain('geheim');
    } finally {
      await own.dispose();
    }
  });
});
