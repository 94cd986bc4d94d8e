import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../../src/base/port-claim.ts';
import { AgentProcess } from './harness/agent-process.ts';
import { HttpProxy } from './harness/http-proxy.ts';
import { Platform } from './harness/platform.ts';
import { VALUE_TAGS } from './harness/value-plant.ts';
import { runVerb } from './harness/verb.ts';

const TAGS = `tags:\n${VALUE_TAGS}`;
const EVERY_POST = { method: 'POST', path: '/v1/assets/*' };

let platform: Platform;
let agent: AgentProcess;

beforeEach(async () => {
  platform = await Platform.start();
  agent = new AgentProcess(platform.url, { tags: TAGS });
});
afterEach(async () => {
  await agent.dispose();
  await platform.stop();
});

const configure = (env: Record<string, string>) => agent.write(platform.url, { tags: TAGS, env });
const pathOf = (asset: number) => `/v1/assets/${asset}/values`;
const stored = (asset: number) => platform.counts(asset, 'a').stored;
const buffered = () => agent.metric('tagferry_buffer_values');

/** Pushes values of one series; `from` determines their timestamps. */
async function push(asset: number, from: number, count = 1): Promise<void> {
  const values = Array.from({ length: count }, (_, i) => ({
    tag: `T-${asset}`,
    key: 'a',
    value: from + i,
    timestamp: 1_700_000_000_000 + from + i,
  }));
  expect((await agent.push(values)).status).toBe(204);
}

const arrived = (asset: number, count: number) =>
  agent.until(() => stored(asset) === count, `asset ${asset} has ${count} values on the platform`);

describe('backlog', () => {
  it('delays live values of neither its own asset nor another one, even if requests are scarce', async () => {
    const backlog = 4_000;
    const env = { POST_INTERVAL: '100ms', POST_MAX_VALUES: '20' };
    configure(env);
    await platform.fail();
    await agent.start();
    await push(881, 0, backlog);
    await agent.end('SIGTERM');
    await platform.recover();
    // The backlog requires 200 of these requests.
    configure({ ...env, REQUESTS_PER_MINUTE: '120' });
    await agent.start();
    const isBacklog = async () => ((await agent.status()) as { buffer: { backlog: number } }).buffer.backlog > 0;
    await agent.until(isBacklog, 'the buffer contains a backlog');
    let live = 0;
    const liveOf = (asset: number) => platform.stored(asset, 'a').filter(({ value }) => value >= backlog).length;
    await agent.until(async () => {
      for (const asset of [881, 882]) await push(asset, backlog + live);
      live++;
      return liveOf(881) >= 5 && liveOf(882) >= 5;
    }, 'live values of both assets are on the platform');
    expect(stored(881) - liveOf(881)).toBeLessThan(backlog);
  });
});

describe('asset whose posts fail or hang', () => {
  it('delays no other asset', async () => {
    configure({ POST_INTERVAL: '100ms', POST_MAX_VALUES: '50' });
    await agent.start();
    const healthy = [884, 885];
    for (const asset of healthy) {
      await push(asset, 0);
      await arrived(asset, 1);
    }
    const failing = platform.addFault({ method: 'POST', path: pathOf(881), status: 500 });
    platform.addFault({ method: 'POST', path: pathOf(882), latencyMs: 600_000 });
    for (const asset of [881, 882]) await push(asset, 0, 1_000);
    await agent.until(async () => {
      const { uplink } = (await agent.status()) as { uplink: { posts_under_way: number } };
      return platform.requests(pathOf(881)).length > 0 && uplink.posts_under_way > 0;
    }, 'a post has failed and another one hangs');
    for (let round = 1; round <= 5; round++) {
      for (const asset of healthy) await push(asset, round);
      for (const asset of healthy) await arrived(asset, 1 + round);
    }
    expect([stored(881), stored(882)]).toEqual([0, 0]);
    expect(await agent.metric('tagferry_platform_unavailable_seconds')).toBe(0);
    platform.removeFault(failing);
    await arrived(881, 1_000);
  });
});

describe('value that the platform rejects', () => {
  it('is quarantined alone with the response of the platform and delivered after requeue', async () => {
    const poison = 42;
    platform.poison({ asset: 881, key: 'a', value: poison, status: 422 });
    await agent.start();
    await push(882, 0);
    await push(881, 0, 100);
    const quarantine = async () => JSON.parse((await runVerb(agent, 'buffer', 'quarantine', '--json')).stdout);
    await agent.until(async () => (await buffered()) === 0, 'the other values are on the platform');
    // The list contains committed values only.
    await agent.until(async () => (await quarantine()).length > 0, 'a value is in quarantine');
    expect(platform.stored(881, 'a').map(({ value }) => value)).toEqual(
      Array.from({ length: 100 }, (_, i) => i).filter((value) => value !== poison),
    );
    const words = { status: 422, message: expect.stringContaining('a value for a is rejected') };
    expect(await quarantine()).toMatchObject([
      { asset: 881, key: 'a', values: 1, ...words, first: [{ value: poison }] },
    ]);
    platform.clearFaults();
    expect((await runVerb(agent, 'buffer', 'requeue')).status).toBe(0);
    await arrived(881, 100);
    expect(await quarantine()).toEqual([]);
    expect(platform.counts(881).received).toBe(100);
  });
});

describe('request budget', () => {
  const BUDGET = 2;
  const calls = () => platform.requests('/v1/').map(({ at }) => Date.parse(at));

  it('limits calls in every 60 s, also across a kill -9 and a restart', async () => {
    configure({ POST_INTERVAL: '100ms', REQUESTS_PER_MINUTE: String(BUDGET) });
    let from = 0;
    for (let run = 0; run < 3; run++) {
      await agent.start();
      for (let request = 0; request < 5; request++) for (const asset of [881, 882, 883]) await push(asset, from++);
      if (run === 0) await agent.until(() => calls().length > 0, 'a post has arrived');
      // Without a budget, the posts precede this by far.
      await agent.until(async () => Number((await agent.status()).uptime_seconds) >= 2, 'posts wait');
      expect(await buffered()).toBeGreaterThan(0);
      await agent.end('SIGKILL');
    }
    expect(busiestMinute(calls())).toBeLessThanOrEqual(BUDGET);
  });

  /** Maximum number of times within 60 s. */
  function busiestMinute(times: readonly number[]): number {
    return Math.max(...times.map((first) => times.filter((at) => at >= first && at < first + 60_000).length));
  }
});

describe('response to a post', () => {
  let proxy: HttpProxy;

  beforeEach(async () => {
    proxy = await HttpProxy.start(platform.url);
    agent.write(proxy.url, { tags: TAGS, env: { POST_INTERVAL: '100ms' } });
  });
  afterEach(() => proxy.stop());

  it('counts before the body is read: a 413 halves the following posts, and no value is lost or repeated', async () => {
    const maxBytes = 40_000;
    proxy.rejectsEarly = (_path, headers) => (Number(headers['content-length']) > maxBytes ? 413 : undefined);
    const rejected = () => proxy.exchanges.filter(({ status }) => status === 413).map(({ headers }) => headers);
    await agent.start();
    await push(881, 0, 5_000);
    await arrived(881, 5_000);
    const before = rejected().length;
    expect(Number(rejected()[0]!['content-length'])).toBeGreaterThan(2 * maxBytes);
    await push(881, 5_000, 5_000);
    await arrived(881, 10_000);
    expect(rejected()).toHaveLength(before);
    expect(platform.counts(881).received).toBe(10_000);
  });

  it('counts if the connection is reset after it: every value is posted once', async () => {
    proxy.resets = ({ path }) => path.endsWith('/values');
    await agent.start();
    for (let value = 0; value < 5; value++) {
      await push(881, value);
      await arrived(881, value + 1);
      await agent.until(async () => (await buffered()) === 0, 'the value is delivered');
    }
    expect(platform.counts()).toMatchObject({ received: 5, posts: 5 });
  });
});

describe('429 response', () => {
  it('pauses the posts of all assets until Retry-After has elapsed, and no value is lost', async () => {
    await agent.start();
    platform.addFault({ ...EVERY_POST, status: 429, retryAfter: 2, times: 1 });
    await push(881, 0);
    await agent.until(() => agent.logged('uplink.rest').length > 0, 'posts pause');
    expect((await agent.status()).state).toBe('resting');
    for (const asset of [881, 882, 883]) await push(asset, 1, 10);
    await arrived(881, 11);
    for (const asset of [882, 883]) await arrived(asset, 10);
    const [rejected, next] = platform.requests('/v1/').map(({ at, status }) => ({ atMs: Date.parse(at), status }));
    expect(rejected!.status).toBe(429);
    // The platform logs times in whole milliseconds.
    expect(next!.atMs - rejected!.atMs).toBeGreaterThanOrEqual(1_990);
  });
});

describe('asset without permission', () => {
  const held = async () => ((await agent.status()) as { holds: { id: number }[] }).holds.map(({ id }) => id);

  it('is held across a kill -9 while other assets are posted, and everything is delivered after the grant', async () => {
    const port = await freePort();
    configure({ WEBHOOK_LISTEN: `127.0.0.1:${port}`, WEBHOOK_URL: `http://127.0.0.1:${port}/webhook` });
    await agent.start();
    await agent.registered();
    // Access to 881 is lost with an event, and access to 882 is only found to be missing by a post.
    platform.revoke(881);
    const forbidden = platform.addFault({ method: 'POST', path: pathOf(882), status: 403 });
    await push(883, 0);
    await push(882, 0);
    await agent.until(async () => (await held()).sort().join() === '881,882', 'both assets are held');
    for (const asset of [881, 882, 883]) await push(asset, 1, 50);
    await arrived(883, 51);
    await push(883, 51, 50);
    await arrived(883, 101);
    // After an event, the first probe is minutes away.
    expect(platform.requests(pathOf(881))).toEqual([]);
    await agent.end('SIGKILL');
    await agent.start();
    // A crash can lose the latest 403, which the next response restores.
    await agent.until(async () => (await held()).sort().join() === '881,882', 'both assets are held again');
    await push(883, 101, 50);
    await arrived(883, 151);
    expect([stored(881), stored(882)]).toEqual([0, 0]);
    expect(await agent.metric('tagferry_values_dropped_total')).toBe(0);
    platform.revoke(882);
    const announced = () => platform.deliveries().filter(({ status }) => status === 'delivered');
    const losses = () => announced().filter(({ eventType }) => eventType === 'asset_disappeared').length;
    await agent.until(() => losses() === 2, 'both losses are announced before the grants');
    platform.removeFault(forbidden);
    platform.grant(881);
    platform.grant(882);
    await arrived(881, 50);
    await arrived(882, 51);
    await agent.until(async () => (await held()).length === 0, 'no asset is held');
  });
});

describe('platform outage', () => {
  it('loses and repeats no values, whether connections are refused or closed or all responses are errors', async () => {
    await agent.start();
    await push(881, 0);
    await arrived(881, 1);
    let sent = 1;
    for (const outage of ['refuse', 'drop', { status: 500 }, { status: 503 }] as const) {
      await platform.fail(outage);
      await push(881, sent, 500);
      sent += 500;
      const isNoticed = async () => (await agent.metric('tagferry_platform_unavailable_seconds')) > 0;
      await agent.until(isNoticed, 'the outage is detected');
      await platform.recover();
      await arrived(881, sent);
      // The response must not be lost in the next outage.
      await agent.until(async () => (await buffered()) === 0, 'the buffer is empty');
    }
    expect(platform.counts(881).received).toBe(sent);
  });

  it('repeats only the post whose response was lost', async () => {
    await agent.start();
    platform.addFault({ method: 'POST', path: pathOf(881), drop: 'after', times: 1 });
    for (const asset of [881, 882]) await push(asset, 0, 100);
    await agent.until(() => platform.counts(881).received === 200, 'the post is repeated');
    await arrived(882, 100);
    for (const asset of [881, 882]) await push(asset, 100, 100);
    for (const asset of [881, 882]) await arrived(asset, 200);
    await agent.until(async () => (await buffered()) === 0, 'the buffer is empty');
    expect([platform.counts(881).received, platform.counts(882).received]).toEqual([300, 200]);
  });
});
