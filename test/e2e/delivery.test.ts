import type { ServerResponse } from 'node:http';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../../src/base/port-claim.ts';
import { AgentProcess } from './harness/agent-process.ts';
import { deliver } from './harness/events.ts';
import { HttpProxy } from './harness/http-proxy.ts';
import { Platform } from './harness/platform.ts';
import { VALUE_TAGS } from './harness/value-plant.ts';
import { runVerb } from './harness/verb.ts';

const TAGS = `tags:\n${VALUE_TAGS}`;
/** Technical user of the sandbox. */
const OWN_USER = 5;
const EVERY_POST = { method: 'POST', path: '/v1/assets/*' };

let platform: Platform;
let agent: AgentProcess;

async function begin(): Promise<void> {
  platform = await Platform.start();
  agent = new AgentProcess(platform.url, { tags: TAGS });
}

async function end(): Promise<void> {
  await agent.dispose();
  await platform.stop();
}

/** Starts a platform and an agent for each test of a `describe`. */
function withOwnAgents(): void {
  beforeEach(begin);
  afterEach(end);
}

/** Starts one platform and one agent for all tests of a `describe`. A test leaves an empty buffer and no faults. */
function withSharedAgent(): void {
  beforeAll(async () => {
    await begin();
    await agent.start();
  });
  afterAll(end);
}

/** Reloads the configuration, which also restores the size of posts. */
async function reload(): Promise<void> {
  const before = agent.logged('config.reloaded').length;
  agent.signal('SIGHUP');
  await agent.until(() => agent.logged('config.reloaded').length > before, 'the configuration is reloaded');
}

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
  withOwnAgents();

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
  withOwnAgents();

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

describe('request budget', () => {
  withOwnAgents();

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

  /** Number of values of asset 881 on the platform. */
  let sent = 0;
  const isPost = ({ path }: { path: string }) => path.endsWith('/values');
  const configureProxy = (env: Record<string, string> = {}) =>
    agent.write(proxy.url, { tags: TAGS, env: { POST_INTERVAL: '100ms', ...env } });

  /** Pushes values of asset 881 and waits until they are on the platform. */
  async function send(count: number): Promise<void> {
    await push(881, sent, count);
    sent += count;
    await arrived(881, sent);
    // The response to the latest post must arrive before the proxy changes.
    await agent.until(async () => (await buffered()) === 0, 'the buffer is empty');
  }

  beforeAll(async () => {
    await begin();
    proxy = await HttpProxy.start(platform.url);
    configureProxy();
    await agent.start();
  });
  afterAll(async () => {
    await end();
    await proxy.stop();
  });
  afterEach(async () => {
    proxy.answer = proxy.hold = proxy.rejectsEarly = proxy.resets = undefined;
    proxy.exchanges.length = 0;
    await reload();
  });

  const refusals: [string, (response: ServerResponse) => void][] = [
    ['504', (response) => void response.writeHead(504).end()],
    ['a reset', (response) => response.socket!.resetAndDestroy()],
  ];
  it.each(refusals)(
    'of a gateway that answers large posts with %s makes the posts of its only asset smaller',
    async (_name, answer) => {
      proxy.answer = ({ body, path }, response) => {
        const isLarge = path.endsWith('/values') && body.length > 60_000;
        if (isLarge) answer(response);
        return isLarge;
      };
      await send(2_000);
      expect(await agent.metric('tagferry_values_quarantined_total')).toBe(0);
    },
  );

  it('counts before the body is read: a 413 halves the following posts, and no value is lost or repeated', async () => {
    const maxBytes = 40_000;
    proxy.rejectsEarly = (_path, headers) => (Number(headers['content-length']) > maxBytes ? 413 : undefined);
    const rejected = () => proxy.exchanges.filter(({ status }) => status === 413).map(({ headers }) => headers);
    const receivedBefore = platform.counts(881).received;
    await send(5_000);
    const before = rejected().length;
    expect(Number(rejected()[0]!['content-length'])).toBeGreaterThan(2 * maxBytes);
    await send(5_000);
    expect(rejected()).toHaveLength(before);
    expect(platform.counts(881).received).toBe(receivedBefore + 10_000);
  });

  it('of a portal is reported as such, and the values are posted after the portal is removed', async () => {
    proxy.answer = (exchange, response) => {
      if (!isPost(exchange)) return false;
      response.writeHead(200, { 'content-type': 'text/html' }).end('<html><title>Guest WLAN</title></html>');
      return true;
    };
    const before = agent.logged('uplink.away').filter(({ code }) => code === '200').length;
    await push(881, sent, 10);
    await agent.until(
      () => agent.logged('uplink.away').filter(({ code }) => code === '200').length > before,
      'the platform is unavailable',
    );
    const { uplink } = (await agent.status()) as { uplink: { away: object } };
    const message = 'the response is not from the platform: status 200 with a body: Guest WLAN';
    expect(uplink.away).toMatchObject({ code: '200', message, foreign_answer: true });
    expect((await runVerb(agent, 'doctor')).stdout).toContain('the response is not from the platform');
    expect(stored(881)).toBe(sent);
    proxy.answer = undefined;
    expect((await runVerb(agent, 'session', 'renew')).status).toBe(0);
    sent += 10;
    await arrived(881, sent);
  });

  it('counts if the connection is reset after it: every value is posted once', async () => {
    const { posts, received } = platform.counts();
    proxy.resets = isPost;
    for (let value = 0; value < 5; value++) await send(1);
    expect(platform.counts()).toMatchObject({ received: received + 5, posts: posts + 5 });
  });

  it('is awaited at SIGTERM, and the other values are posted once after the restart, compressed by POST_GZIP', async () => {
    let release = () => {};
    let isHeld = false;
    proxy.hold = (exchange) => {
      if (!isPost(exchange) || isHeld) return Promise.resolve();
      isHeld = true;
      return new Promise((resolve) => {
        release = resolve;
      });
    };
    const { received } = platform.counts(881);
    await push(881, sent, 10);
    await agent.until(() => isHeld, 'the platform has accepted the post');
    const ended = agent.end('SIGTERM');
    await agent.until(async () => (await agent.push([])).status === 503, 'the agent is stopping');
    release();
    expect(await ended).toBe(0);
    proxy.exchanges.length = 0;
    configureProxy({ POST_GZIP: 'true' });
    await agent.start();
    await push(882, 0, 10);
    await arrived(882, 10);
    await agent.until(async () => (await buffered()) === 0, 'the buffer is empty');
    expect(platform.counts(881).received).toBe(received + 10);
    const encodings = proxy.exchanges.filter(isPost).map(({ headers }) => headers['content-encoding']);
    expect(new Set(encodings)).toEqual(new Set(['gzip']));
  });
});

describe('asset without permission', () => {
  withOwnAgents();

  const held = async () => ((await agent.status()) as { holds: { id: number }[] }).holds.map(({ id }) => id);

  it('is held across a kill -9 while other assets are posted, and everything is delivered after the grant', async () => {
    const port = await freePort();
    const own = { TECHNICAL_USER_ID: String(OWN_USER) };
    configure({ ...own, WEBHOOK_LISTEN: `127.0.0.1:${port}`, WEBHOOK_URL: `http://127.0.0.1:${port}/webhook` });
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

  /** Starts the agent with a webhook. Returns a function that delivers an access event about asset 881. */
  async function listen(env: Record<string, string> = {}) {
    const port = await freePort();
    const url = `http://127.0.0.1:${port}/webhook`;
    configure({ WEBHOOK_LISTEN: `127.0.0.1:${port}`, WEBHOOK_URL: url, ...env });
    await agent.start();
    await agent.registered();
    return async (change: 'appeared' | 'disappeared', user: number, atMs: number) => {
      const content = { asset: { id: 881, serial_number: 'x', href: 'x' }, user: { id: user, href: 'x' } };
      const event = { event_type: `asset_${change}`, occurred_at: new Date(atMs).toISOString(), content };
      const before = agent.logged('webhook.received').length;
      expect(await deliver({ url, secret: platform.webhooks()[0]!.secret }, JSON.stringify(event))).toBe(204);
      await agent.until(() => agent.logged('webhook.received').length > before, 'the event is stored');
    };
  }

  it('receives one post if access is lost and regained within a second, in any order of arrival', async () => {
    const send = await listen({ TECHNICAL_USER_ID: String(OWN_USER) });
    const startMs = Date.now();
    const [lost, regained] = ['disappeared', 'appeared'] as const;
    const orders = [
      [lost, 0, regained, 300],
      [regained, 300, lost, 0],
      [regained, 0, lost, 300],
      [lost, 300, regained, 0],
    ] as const;
    for (const [round, [first, firstMs, second, secondMs]] of orders.entries()) {
      await send(first, OWN_USER, startMs + round * 10_000 + firstMs);
      await send(second, OWN_USER, startMs + round * 10_000 + secondMs);
      await agent.until(async () => (await held()).length === 0, 'nothing is held');
      await push(881, round);
      await arrived(881, round + 1);
    }
    expect(platform.requests(pathOf(881))).toHaveLength(orders.length);
    await send(lost, OWN_USER, startMs + 100_000);
    await agent.until(async () => (await held()).length === 1, 'an asset that stays lost is held');
  });

  it('is held only after a rejected post if the event may concern another user', async () => {
    const send = await listen();
    await send('disappeared', 6, Date.now());
    await push(881, 0);
    await arrived(881, 1);
    expect(await held()).toEqual([]);
    expect((await agent.status()).access_user).toBeNull();
    platform.addFault({ method: 'POST', path: pathOf(881), status: 403 });
    await push(881, 1);
    await agent.until(async () => (await held()).length === 1, 'the response holds the asset');
    platform.clearFaults();
    await send('appeared', 6, Date.now() + 5_000);
    await arrived(881, 2);
    await agent.end('SIGTERM');
    // An event about a user other than the known one does not hold the asset.
    const sendAgain = await listen({ TECHNICAL_USER_ID: String(OWN_USER) });
    await sendAgain('disappeared', 6, Date.now() + 10_000);
    await agent.until(() => agent.logged('access.other_user').length === 1, 'the event is reported');
    await push(881, 2);
    await arrived(881, 3);
    expect((await agent.status()).access_user).toEqual({ id: OWN_USER, from: 'setting' });
  });

  it('is no longer held after its values are moved or deleted, unless it has a tag', async () => {
    const unknown = 880_881;
    await agent.start();
    for (const args of [
      ['retarget', '--from-asset', `${unknown}`, '--to-asset', '881', '--yes', '--json'],
      ['purge', '--asset', `${unknown}`, '--yes', '--json'],
    ]) {
      const values = [1, 2, 3].map((value) => ({ asset: unknown, key: 'a', value }));
      expect((await agent.push(values)).status).toBe(204);
      await agent.until(async () => (await held()).includes(unknown), 'the asset is held');
      expect((await runVerb(agent, 'buffer', ...args)).status).toBe(0);
      await agent.until(async () => (await held()).length === 0, 'no hold is left');
    }
    platform.addFault({ method: 'POST', path: pathOf(882), status: 404 });
    await push(882, 0);
    await agent.until(async () => (await held()).includes(882), 'the asset with a tag is held');
    expect((await runVerb(agent, 'buffer', 'purge', '--asset', '882', '--yes')).status).toBe(0);
    await push(881, 0);
    await agent.until(() => stored(881) === 4, 'another asset is posted');
    const { holds } = (await agent.status()) as { holds: object[] };
    expect(holds).toMatchObject([{ id: 882, values_wait: false }]);
  });
});

describe('VALUES_PATH with an instrumentation', () => {
  withOwnAgents();

  // A sandbox asset represents each instrumentation, so that the ledger shows the values per address.
  const BY_INSTRUMENTATION = '/v1/assets/{instrumentation_id}/values';
  const tagsOf = (both: string) => `tags:
  FT-1: { asset: 900, instrumentation: 881, values: { ${both}only1: {} } }
  FT-2: { asset: 900, instrumentation: 882, values: { ${both}only2: {} } }
`;
  const values = (instrumentation: number, key: string) =>
    platform.stored(instrumentation, key).map(({ value }) => value);
  const total = (count: number, what: string) => agent.until(() => platform.counts().stored === count, what);

  async function pushTo(...pushed: [tag: string, key: string, value: number][]): Promise<void> {
    const body = pushed.map(([tag, key, value]) => ({ tag, key, value, timestamp: 1_700_000_000_000 + value }));
    expect((await agent.push(body)).status).toBe(204);
  }

  it('posts each tag to its own address, and holds only the rejected one', async () => {
    agent.write(platform.url, { tags: tagsOf('flow: {}, '), env: { VALUES_PATH: BY_INSTRUMENTATION } });
    await agent.start();
    await pushTo(['FT-1', 'flow', 1], ['FT-2', 'flow', 2], ['FT-1', 'flow', 3], ['FT-2', 'only2', 4]);
    await total(4, 'all values are on the platform');
    expect([values(881, 'flow'), values(882, 'flow'), values(882, 'only2')]).toEqual([[1, 3], [2], [4]]);
    platform.addFault({ method: 'POST', path: pathOf(881), status: 404 });
    for (let value = 5; value < 8; value++) {
      await pushTo(['FT-1', 'flow', value], ['FT-2', 'flow', value]);
      await agent.until(() => values(882, 'flow').length === value - 3, 'the other instrumentation is posted');
    }
    const { holds } = (await agent.status()) as { holds: object[] };
    expect(holds).toMatchObject([{ kind: 'instrumentation', id: 881, cause: 'answered_404', tags: ['FT-1'] }]);
  });

  it('applies to buffered values after a reload, and reports series without an instrumentation', async () => {
    agent.write(platform.url, { tags: tagsOf(''), env: { VALUES_PATH: '/v1/assetz/{asset_id}/values' } });
    await agent.start();
    await pushTo(['FT-1', 'only1', 1], ['FT-2', 'only2', 2]);
    await agent.push([{ asset: 900, key: 'other', value: 3 }]);
    await agent.until(() => agent.logged('access.held').length > 0, 'the path is rejected');
    agent.write(platform.url, { tags: tagsOf(''), env: { VALUES_PATH: BY_INSTRUMENTATION } });
    agent.signal('SIGHUP');
    await total(2, 'the values that only one tag lists are on the platform');
    expect([values(881, 'only1'), values(882, 'only2')]).toEqual([[1], [2]]);
    await agent.until(() => agent.logged('uplink.no_address').length > 0, 'the other series is reported');
    const { uplink } = (await agent.status()) as { uplink: { waiting_series: object[] } };
    expect(uplink.waiting_series).toMatchObject([{ asset: 900, status: 0 }]);
  });
});

describe('running agent', () => {
  withSharedAgent();

  describe('value that the platform rejects', () => {
    it('is quarantined alone with the response of the platform and delivered after requeue', async () => {
      const poison = 42;
      platform.poison({ asset: 881, key: 'a', value: poison, status: 422 });
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

  describe('429 response', () => {
    it('pauses the posts of all assets until Retry-After has elapsed, and no value is lost', async () => {
      const before = platform.requests('/v1/').length;
      platform.addFault({ ...EVERY_POST, status: 429, retryAfter: 2, times: 1 });
      await push(883, 0);
      await agent.until(() => agent.logged('uplink.rest').length > 0, 'posts pause');
      expect((await agent.status()).state).toBe('resting');
      for (const asset of [883, 884, 885]) await push(asset, 1, 10);
      await arrived(883, 11);
      for (const asset of [884, 885]) await arrived(asset, 10);
      const requests = platform.requests('/v1/').slice(before);
      const [rejected, next] = requests.map(({ at, status }) => ({ atMs: Date.parse(at), status }));
      expect(rejected!.status).toBe(429);
      // The platform logs times in whole milliseconds.
      expect(next!.atMs - rejected!.atMs).toBeGreaterThanOrEqual(1_990);
    });
  });

  describe('operator', () => {
    it('ends the pauses after 429 and 402 and the hold of an asset', async () => {
      type Status = {
        state: string;
        uplink: { away: { next_try_at: string } | null; resting: { until: string } | null };
      };
      const status = async () => (await agent.status()) as unknown as Status;
      const renew = async () => expect((await runVerb(agent, 'session', 'renew')).status).toBe(0);
      for (const [value, act] of [reload, renew].entries()) {
        const rest = platform.addFault({ ...EVERY_POST, status: 429, retryAfter: '999999999' });
        await push(886, 2 * value);
        await agent.until(async () => (await status()).uplink.resting !== null, 'posts are paused');
        expect(Date.parse((await status()).uplink.resting!.until) - Date.now()).toBeGreaterThan(200_000);
        expect((await runVerb(agent, 'doctor')).stdout).toContain(
          'rate limited by the platform (429), all calls paused',
        );
        platform.removeFault(rest);
        await act();
        await arrived(886, 2 * value + 1);
        const quota = platform.addFault({ ...EVERY_POST, status: 402 });
        await push(886, 2 * value + 1);
        await agent.until(async () => (await status()).state === 'quota used up', 'the quota is exhausted');
        expect(Date.parse((await status()).uplink.away!.next_try_at) - Date.now()).toBeGreaterThan(20_000);
        platform.removeFault(quota);
        await act();
        await arrived(886, 2 * value + 2);
      }
      const forbidden = platform.addFault({ method: 'POST', path: pathOf(885), status: 403 });
      await push(885, 100);
      await agent.until(async () => (await agent.metric('tagferry_assets_held')) === 1, 'the asset is held');
      platform.removeFault(forbidden);
      await reload();
      await arrived(885, 11);
    });
  });
});

describe('platform outage', () => {
  withOwnAgents();

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

  it('is reported as such by status, doctor, session and log after a restart, not as a rejected sign-in', async () => {
    await platform.fail();
    await agent.start();
    await push(881, 0);
    await agent.until(() => agent.logged('uplink.away').length > 0, 'the outage is reported');
    const { session, state } = (await agent.status()) as { session: object; state: string };
    expect({ session, state }).toMatchObject({ session: { usable: false }, state: 'platform unavailable' });
    expect(agent.logged('uplink.away').at(-1)).toMatchObject({ code: 'platform.connection_refused' });
    expect(agent.logged('uplink.signed_out')).toEqual([]);
    for (const verb of [['status'], ['doctor'], ['session', 'show']]) {
      const { stdout } = await runVerb(agent, ...verb);
      expect(stdout).toContain('platform unavailable');
      expect(stdout).not.toMatch(/signed out/i);
    }
    await platform.recover();
    await arrived(881, 1);
  });

  it('is reported as such if the token endpoint responds 429', async () => {
    platform.addFault({ path: '/oauth/token', status: 429 });
    await agent.start();
    await agent.until(async () => (await agent.status()).state === 'platform unavailable', 'the outage is reported');
    expect((await runVerb(agent, 'session', 'show')).stdout).not.toMatch(/signed out/i);
    platform.clearFaults();
    expect(await runVerb(agent, 'session', 'renew')).toMatchObject({ status: 0 });
  });
});
