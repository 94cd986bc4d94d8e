import { createRequire } from 'node:module';
import { connectAsync, type MqttClient } from 'mqtt';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { InterruptibleProxy } from '../../e2e/harness/interruptible-proxy.ts';
import { Mosquitto } from '../../e2e/harness/mosquitto.ts';

/** Encoder from Eclipse Tahu. */
const { get } = createRequire(import.meta.url)('sparkplug-payload') as {
  get(version: string): { encodePayload(payload: object): Uint8Array };
};
const tahu = get('spBv1.0');
const METRICS = 20;
const START_MS = 1_795_219_200_000;

let sandbox: Sandbox;
let mosquitto: Mosquitto;
let way: InterruptibleProxy;
let port: number;
let agent: AgentProcess;
let node: MqttClient;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  mosquitto = await Mosquitto.make();
  await mosquitto.start('max_inflight_messages 0');
  node = await connectAsync(`mqtt://127.0.0.1:${mosquitto.port}`, { keepalive: 0 });
  way = new InterruptibleProxy(mosquitto.port);
  port = await way.start();
  agent = new AgentProcess(sandbox.url, { tags: tagsOf(METRICS), env: { COMMIT_INTERVAL: '1s' } });
});
afterEach(async () => {
  node.end(true);
  await agent.dispose();
  await way.stop();
  await mosquitto.dispose();
  await sandbox.stop();
});

function tagsOf(metrics: number): string {
  const values = Array.from({ length: metrics }, (_, at) => `k${at}: { from: cells, metric: press/m${at} }`);
  const source = `cells: { sparkplug: "mqtt://127.0.0.1:${port}", group: Plant1, qos: 1 }`;
  return `sources: { ${source} }\ntags: { T-1: { asset: 881, values: { ${values.join(', ')} } } }\n`;
}

/** Birth certificate (0) or one of the alias messages that follow it; all with QoS 1. */
async function publish(sent: number): Promise<void> {
  const metrics = Array.from({ length: METRICS }, (_, at) => ({
    ...(sent === 0 ? { name: `m${at}` } : {}),
    alias: at + 1,
    timestamp: START_MS + sent,
    type: 'Double',
    value: sent + at / 100,
  }));
  const payload = tahu.encodePayload({ timestamp: START_MS + sent, seq: sent % 256, metrics });
  await node.publishAsync(`spBv1.0/Plant1/${sent === 0 ? 'NBIRTH' : 'NDATA'}/press`, Buffer.from(payload), { qos: 1 });
}

async function publishFrom(first: number, last: number): Promise<void> {
  for (let sent = first; sent <= last; sent += 500) {
    await Promise.all(Array.from({ length: Math.min(500, last - sent + 1) }, (_, at) => publish(sent + at)));
  }
}

async function start(): Promise<void> {
  await agent.start();
  await agent.until(async () => {
    await publish(0);
    return sandbox.values.counts(881, 'k0').stored > 0;
  }, 'the birth certificate arrived');
}

function wrong(last: number) {
  const expected = (at: number) =>
    Array.from({ length: last + 1 }, (_, sent) => ({ timestampMs: START_MS + sent, value: sent + at / 100 }));
  return [0, METRICS - 1].map((at) => {
    const { missing, different } = sandbox.values.compare(881, `k${at}`, expected(at));
    return { missing: missing.length, different: different.length };
  });
}
const NOTHING = { missing: 0, different: 0 };

describe('QoS 1 messages from an edge node', () => {
  it('are all stored after a burst that exceeds the intake capacity', { timeout: 120_000 }, async () => {
    const last = 3_000;
    await start();
    // The broker stores the burst and delivers it all at once.
    process.kill(agent.pid, 'SIGSTOP');
    await publishFrom(1, last);
    process.kill(agent.pid, 'SIGCONT');
    await agent.until(() => sandbox.values.counts(881, 'k0').stored > last, 'every message is stored');
    expect(wrong(last)).toEqual([NOTHING, NOTHING]);
    expect(agent.logged('sparkplug.rebirth').filter(({ reason }) => /followed/.test(String(reason)))).toEqual([]);
  });

  it('are all stored after a lost connection without a birth certificate', async () => {
    await start();
    await publishFrom(1, 10);
    await agent.until(() => sandbox.values.counts(881, 'k0').stored > 10, 'the first messages have arrived');
    way.cut();
    await publishFrom(11, 300);
    way.restore();
    await agent.until(() => sandbox.values.counts(881, 'k0').stored > 300, 'every message is stored');
    expect(wrong(300)).toEqual([NOTHING, NOTHING]);
  });

  it('are all stored after kill -9 without a birth certificate, even beyond the in-flight limit', async () => {
    await start();
    await publishFrom(1, 600);
    await agent.end('SIGKILL');
    await publishFrom(601, 5_000);
    await agent.start();
    await agent.until(() => sandbox.values.counts(881, 'k0').stored > 5_000, 'every message is stored');
    expect(wrong(5_000)).toEqual([NOTHING, NOTHING]);
    expect(agent.logged('sparkplug.discarded')).toEqual([]);
  }, 120_000);

  it('are stored after an agent restart when the node repeats its birth certificate', async () => {
    await start();
    await publishFrom(1, 10);
    await agent.until(() => sandbox.values.counts(881, 'k0').stored > 10, 'the first messages have arrived');
    expect(await agent.end('SIGTERM')).toBe(0);
    await publishFrom(11, 300);
    await agent.start();
    await agent.until(
      () => agent.logged('sparkplug.rebirth').length > 1,
      'the node is asked for its birth certificate',
    );
    await publish(0);
    await agent.until(() => sandbox.values.counts(881, 'k0').stored > 300, 'every message is stored');
    expect(wrong(300)).toEqual([NOTHING, NOTHING]);
  });

  it('are discarded and reported if no birth certificate follows a gap', async () => {
    await start();
    const discarded = () => agent.logged('sparkplug.discarded');
    for (const [at, seq] of [5, 9].entries()) {
      const metrics = [{ alias: 1, timestamp: START_MS, type: 'Double', value: 1 }];
      const payload = tahu.encodePayload({ timestamp: START_MS, seq, metrics });
      await node.publishAsync('spBv1.0/Plant1/NDATA/press', Buffer.from(payload), { qos: 1 });
      await agent.until(() => discarded().length === at + 1, 'discarded');
    }
    expect(discarded()).toMatchObject([
      { node: 'press', messages: 1, count: 1 },
      { node: 'press', messages: 1, count: 2 },
    ]);
  });

  it('are all stored across a reload that reopens the source', async () => {
    await start();
    await publishFrom(1, 10);
    agent.write(sandbox.url, { tags: tagsOf(METRICS - 1), env: { COMMIT_INTERVAL: '1s' } });
    agent.signal('SIGHUP');
    await agent.until(() => agent.logged('config.reloaded').length > 0, 'reloaded');
    await publish(0);
    await publishFrom(1, 3_000);
    await agent.until(() => sandbox.values.counts(881, 'k0').stored > 3_000, 'every message is stored');
    expect(wrong(3_000)[0]).toEqual(NOTHING);
  });
});
