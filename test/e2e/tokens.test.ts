import type { ServerResponse } from 'node:http';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { AgentProcess } from './harness/agent-process.ts';
import { type Exchange, HttpProxy } from './harness/http-proxy.ts';
import { CREDENTIALS, Platform } from './harness/platform.ts';
import { runVerb } from './harness/verb.ts';

const ASSETS = Array.from({ length: 12 }, (_, at) => 881 + at);
const TAGS = `tags:\n${ASSETS.map((asset) => `  T-${asset}: { asset: ${asset}, values: { flow: { unit: 12 } } }\n`).join('')}`;
const TOKEN_PATH = '/oauth/token';

interface Tokens {
  readonly access_token: string;
  readonly refresh_token: string;
}

interface Bench {
  platform: Platform;
  proxy: HttpProxy;
  agent: AgentProcess;
}

let platform: Platform;
let proxy: HttpProxy;
let agent: AgentProcess;
/** Its token is revoked by another client. The retries take 15 s, during which the other tests run. */
let revoked: Bench & { token: Tokens; usesBefore: number };
/** Its token is refreshed after 6 s, while values are pushed. `pushed`: number of values, when the next token is used. */
let refreshing: Bench & { aliveAtRefresh: number[]; pushed: Promise<number> };

async function open(
  options: Parameters<typeof Platform.start>[0] = {},
  env: Record<string, string> = {},
): Promise<Bench> {
  const platform = await Platform.start(options);
  const proxy = await HttpProxy.start(platform.url);
  const agent = new AgentProcess(proxy.url, { tags: TAGS, env: { POST_INTERVAL: '100ms', ...env } });
  return { platform, proxy, agent };
}

async function begin(...options: Parameters<typeof open>): Promise<void> {
  ({ platform, proxy, agent } = await open(...options));
}

async function close({ platform, proxy, agent }: Bench): Promise<void> {
  await agent.dispose();
  await proxy.stop();
  await platform.stop();
}

beforeAll(async () => {
  await begin({}, { POST_CONCURRENCY: '1' });
  await agent.start();
  await push(1);
  await agent.until(() => arrived(1), 'the first value is on the platform');
  const [token] = issued();
  revoked = { platform, proxy, agent, token: token!, usesBefore: usesOf(token!).length };
  platform.revokeTokens();
  await push(2);

  const bench = await open({ accessTokenLifeS: 10 });
  const aliveAtRefresh: number[] = [];
  bench.proxy.answer = ({ path, body }) => {
    if (path === TOKEN_PATH && body.includes('refresh_token')) aliveAtRefresh.push(bench.platform.tokens().alive);
    return false;
  };
  await bench.agent.start();
  refreshing = { ...bench, aliveAtRefresh, pushed: pushUntilRefreshed(bench) };
  // The test reports a failure.
  refreshing.pushed.catch(() => {});
});
afterAll(async () => {
  await close(revoked);
  await close(refreshing);
});
afterEach(async () => {
  if (![revoked.agent, refreshing.agent].includes(agent)) await close({ platform, proxy, agent });
});

async function pushUntilRefreshed({ proxy, agent }: Bench): Promise<number> {
  let pushed = 0;
  await agent.until(async () => {
    await push(++pushed, [881], agent);
    const [, second] = issued(proxy);
    return second !== undefined && usesOf(second, proxy).length > 0;
  }, 'the second token is used');
  return pushed;
}

const tokenRequests = (by = proxy) => by.exchanges.filter(({ path }) => path === TOKEN_PATH);
const issued = (by = proxy) =>
  tokenRequests(by)
    .filter(({ status }) => status === 200)
    .map(({ response }) => JSON.parse(response) as Tokens);
const grantOf = ({ body }: Exchange) => new URLSearchParams(body).get('grant_type');
const usesOf = (token: Tokens, by = proxy) =>
  by.exchanges.filter(({ headers }) => headers.authorization === `Bearer ${token.access_token}`);

async function push(value: number, assets: readonly number[] = [881], to = agent): Promise<void> {
  const { status } = await to.push(assets.map((asset) => ({ tag: `T-${asset}`, key: 'flow', value })));
  expect(status).toBe(204);
}

const arrived = (value: number, asset = 881) => platform.stored(asset, 'flow').some((stored) => stored.value === value);

/** Returns the tokens of these pairs that the platform still accepts. Refresh tokens are consumed by the attempt. */
async function accepted(pairs: readonly Tokens[]): Promise<string[]> {
  const alive: string[] = [];
  for (const { access_token, refresh_token } of pairs) {
    const headers = { authorization: `Bearer ${access_token}` };
    const used = await fetch(`${platform.url}/v1/assets/881`, { headers });
    if (used.status !== 401) alive.push('access token');
    const basic = Buffer.from(`${CREDENTIALS.clientId}:${CREDENTIALS.clientSecret}`).toString('base64');
    const body = new URLSearchParams({ grant_type: 'refresh_token', refresh_token });
    const refreshed = await fetch(platform.url + TOKEN_PATH, {
      method: 'POST',
      headers: { authorization: `Basic ${basic}` },
      body,
    });
    if (refreshed.ok) alive.push('refresh token');
  }
  return alive;
}

describe('session of the technical user', () => {
  it('never requests two tokens at a time', async () => {
    await begin();
    let pending = 0;
    let most = 0;
    proxy.answer = ({ path }, response) => {
      if (path !== TOKEN_PATH) return false;
      most = Math.max(most, ++pending);
      response.once('close', () => pending--);
      return false;
    };
    platform.addFault({ path: TOKEN_PATH, latencyMs: 300 });
    await agent.start();
    await push(1, ASSETS);
    await agent.until(() => ASSETS.every((asset) => arrived(1, asset)), 'the first values are on the platform');
    const before = issued().length;
    platform.revokeTokens();
    const verbs = Promise.all([runVerb(agent, 'session', 'renew'), runVerb(agent, 'session', 'renew')]);
    await push(2, ASSETS);
    await agent.until(() => ASSETS.every((asset) => arrived(2, asset)), 'the values after the revocation');
    expect((await verbs).map(({ status }) => status)).toEqual([0, 0]);
    expect(issued().length).toBeGreaterThan(before);
    expect(most).toBe(1);
  });

  it('retries one call at a time with a new token that the platform does not know yet, and requests no other token', async () => {
    await begin({}, { POST_CONCURRENCY: `${ASSETS.length}` });
    let issuedMs = 0;
    let posts = 0;
    let rejected = 0;
    proxy.answer = ({ path }, response) => {
      if (path === TOKEN_PATH) issuedMs ||= performance.now();
      if (!path.includes('/values')) return false;
      posts++;
      if (performance.now() - issuedMs >= 3_000) return false;
      rejected++;
      response.writeHead(401).end();
      return true;
    };
    await agent.start();
    await push(1, ASSETS);
    await agent.until(() => ASSETS.every((asset) => arrived(1, asset)), 'the values are on the platform');
    expect(issued()).toHaveLength(1);
    await expect.poll(() => agent.logged('session.token_unknown')).not.toEqual([]);
    expect(agent.logged('session.token_refused')).toEqual([]);
    for (const asset of ASSETS) expect(platform.stored(asset, 'flow').map(({ times }) => times)).toEqual([1]);
    // All posts may have been in progress at the first 401. Afterwards, one call is retried after 1, 2, 4 and 8 s.
    expect(posts - ASSETS.length).toBe(rejected);
    expect(rejected).toBeLessThanOrEqual(ASSETS.length + 4);
  });

  it('delays no values while another endpoint rejects the token, and stops without further retries', async () => {
    await begin({}, { WEBHOOK_URL: 'http://127.0.0.1:9/webhook' });
    let rejected = 0;
    proxy.answer = ({ path }, response) => {
      if (!path.startsWith('/v1/client_applications')) return false;
      rejected++;
      response.writeHead(401).end();
      return true;
    };
    await agent.start();
    for (let value = 1; value <= 10; value++) {
      await push(value);
      await agent.until(() => arrived(value), 'the value is on the platform');
    }
    await agent.until(() => rejected > 2, 'the rejected call is retried');
    const before = rejected;
    expect(await agent.end('SIGTERM')).toBe(0);
    expect(rejected).toBe(before);
  });

  it('reports a rejected password, keeps accepting values, and applies a corrected password on reload', async () => {
    await begin({}, { TECHNICAL_PASSWORD: 'wrong-password' });
    await agent.start();
    await push(1);
    await agent.until(() => agent.logged('session.refused').length > 0, 'the rejection is reported');
    expect(agent.logged('session.refused')).toMatchObject([{ level: 'error' }]);
    expect(await agent.metric('tagferry_session_refused')).toBe(1);
    expect(await agent.metric('tagferry_session_valid')).toBe(0);
    const health = await agent.call(agent.ops, '/healthz');
    expect(JSON.parse(health.text)).toMatchObject({ session: { state: 'waiting' } });
    agent.write(proxy.url, { tags: TAGS });
    agent.signal('SIGHUP');
    await agent.until(() => arrived(1), 'the buffered value is on the platform');
    expect(await agent.metric('tagferry_session_refused')).toBe(0);
    expect(await agent.metric('tagferry_session_valid')).toBe(1);
    expect(agent.logged('session.refused')).toHaveLength(1);
  });
});

describe('reload with changed credentials', () => {
  const configure = (env: Record<string, string>) =>
    agent.write(proxy.url, { tags: TAGS, env: { POST_INTERVAL: '100ms', ...env } });

  beforeEach(async () => {
    await begin();
    await agent.start();
    await push(1);
    await agent.until(() => arrived(1), 'the first value is on the platform');
  });

  it.each(['TECHNICAL_PASSWORD', 'CLIENT_SECRET'])(
    'is rejected and keeps the tokens if the platform rejects %s, and otherwise replaces and revokes them',
    async (key) => {
      configure({ [key]: 'wrong-secret' });
      const { status, stderr } = await runVerb(agent, 'reload');
      expect(status).toBe(1);
      expect(stderr).toMatch(new RegExp(`rejected the credentials.*${key}.*previous configuration`, 's'));
      expect(agent.logged('config.refused')).toHaveLength(1);
      expect(agent.logged('config.reloaded')).toEqual([]);
      await push(2);
      await agent.until(() => arrived(2), 'the second value is on the platform');
      expect(platform.tokens()).toMatchObject({ issued: 1, revoked: 0, alive: 1 });
      expect(await agent.metric('tagferry_session_valid')).toBe(1);

      configure({ CLIENT_AUTH: 'body' });
      expect(await runVerb(agent, 'reload')).toMatchObject({ status: 0 });
      await push(3);
      await agent.until(() => arrived(3), 'the third value is on the platform');
      await agent.until(() => platform.tokens().revoked > 0, 'the first token is revoked');
      expect(platform.tokens()).toMatchObject({ issued: 2, revoked: 1, alive: 1 });
      expect(usesOf(issued()[1]!)).not.toEqual([]);
      expect(agent.logged('session.refused')).toEqual([]);
    },
  );

  it('is accepted with a warning if the platform does not test them, and signs in when the platform recovers', async () => {
    for (const fault of [{ status: 429 }, { status: 503 }, { drop: 'before' }] as const) {
      platform.clearFaults();
      platform.addFault({ path: TOKEN_PATH, ...fault });
      const reloads = agent.logged('config.reloaded').length;
      configure({ TECHNICAL_PASSWORD: `wrong-${Object.values(fault)}` });
      const { status, stderr } = await runVerb(agent, 'reload');
      expect([fault, status]).toEqual([fault, 0]);
      expect(stderr).toMatch(/credentials were not tested/);
      expect(agent.logged('config.reloaded')).toHaveLength(reloads + 1);
      expect(agent.logged('config.warning').at(-1)).toMatchObject({ warning: expect.stringContaining('not tested') });
    }
    platform.clearFaults();
    await agent.until(() => agent.logged('session.refused').length > 0, 'the password is rejected');
    expect(await runVerb(agent, 'reload')).toMatchObject({ status: 1 });
    configure({});
    expect(await runVerb(agent, 'reload')).toMatchObject({ status: 0 });
    await push(2);
    await agent.until(() => arrived(2), 'the second value is on the platform');
  });
});

describe('tokens after the agent exits', () => {
  beforeEach(() => begin());

  it('are revoked at SIGTERM, access token and refresh token', async () => {
    await agent.start();
    expect((await runVerb(agent, 'session', 'renew')).status).toBe(0);
    expect(platform.tokens().alive).toBeGreaterThan(0);
    expect(await agent.end('SIGTERM')).toBe(0);
    expect(platform.tokens().alive).toBe(0);
    expect(issued()).toHaveLength(2);
    expect(await accepted(issued())).toEqual([]);
  });

  it('are revoked if SIGTERM arrives before the response to the first sign-in', async () => {
    const released = Promise.withResolvers<void>();
    proxy.hold = ({ path }) => (path === TOKEN_PATH ? released.promise : Promise.resolve());
    agent.launch();
    await agent.until(() => issued().length > 0, 'the platform has issued tokens');
    agent.signal('SIGTERM');
    await agent.until(() => agent.logged('agent.stopping').length > 0, 'the agent is stopping');
    released.resolve();
    expect(await agent.ended()).toBe(0);
    expect(await accepted(issued())).toEqual([]);
  });

  it('are revoked by the next start after kill -9, even if the platform was unreachable at a start in between', async () => {
    await agent.start();
    expect(await agent.end('SIGKILL')).toBe('SIGKILL');
    expect(platform.tokens().alive).toBe(1);
    const left = issued();
    await platform.fail();
    await agent.start();
    expect(await agent.end('SIGKILL')).toBe('SIGKILL');
    await platform.recover();
    await agent.start();
    await agent.until(() => platform.tokens().revoked > 0, 'the first token is revoked');
    await agent.until(() => issued().length > left.length, 'the agent has signed in');
    expect(await accepted(left)).toEqual([]);
    expect(platform.tokens().alive).toBe(1);
  });

  it.each([
    ['is unreachable', (response: ServerResponse) => response.destroy()],
    [
      'is replaced by a login page with 403',
      (response: ServerResponse) => response.writeHead(403, { 'content-type': 'text/html' }).end('<h1>Sign in</h1>'),
    ],
  ])('are revoked by the next start if the platform %s during SIGTERM', async (_, respond) => {
    await agent.start();
    const left = issued();
    proxy.answer = (_exchange, response) => {
      respond(response);
      return true;
    };
    expect(await agent.end('SIGTERM')).toBe(0);
    expect(platform.tokens().alive).toBe(1);
    proxy.answer = undefined;
    await agent.start();
    await agent.until(() => platform.tokens().revoked > 0, 'the token of the first run is revoked');
    expect(await accepted(left)).toEqual([]);
  });
});

describe('refresh token whose access token expired during an outage', () => {
  it('is revoked by the next run after SIGTERM', async () => {
    await begin({ accessTokenLifeS: 3 });
    await agent.start();
    const left = issued();
    await platform.fail();
    await agent.until(() => platform.tokens().alive === 0, 'the access token has expired');
    expect(await agent.end('SIGTERM')).toBe(0);
    await platform.recover();
    await agent.start();
    await agent.until(() => issued().length > left.length, 'the agent has signed in');
    expect(await agent.end('SIGTERM')).toBe(0);
    expect(await accepted(left)).toEqual([]);
  });
});

describe('token that another client revoked', () => {
  it('is replaced after its retries, and the value is delivered with a new one', async () => {
    ({ platform, proxy, agent } = revoked);
    await agent.until(() => arrived(2), 'the second value is on the platform');
    // The token is new, so a second server of the platform might not have known it yet.
    const later = usesOf(revoked.token).slice(revoked.usesBefore);
    expect(later.map(({ status }) => status)).toEqual([401, 401, 401, 401, 401]);
    await expect.poll(() => agent.logged('session.token_refused')).toHaveLength(1);
    await expect.poll(async () => (await agent.status()).identity_conflicts).toMatchObject([{ kind: 'token' }]);
    expect(platform.stored(881, 'flow').map(({ times }) => times)).toEqual([1, 1]);
  });
});

describe('token that expires soon', () => {
  it('is obtained with the password, refreshed before it expires, and then revoked', async () => {
    ({ platform, proxy, agent } = refreshing);
    const pushed = await refreshing.pushed;
    await agent.until(() => arrived(pushed), 'all values are on the platform');
    await agent.until(() => platform.tokens().revoked > 0, 'the first token is revoked');
    expect(tokenRequests().map(grantOf).slice(0, 2)).toEqual(['password', 'refresh_token']);
    expect(refreshing.aliveAtRefresh[0]).toBe(1);
    expect(proxy.exchanges.filter(({ status }) => status === 401)).toEqual([]);
    expect(await agent.metric('tagferry_session_renewals_total{grant="password"}')).toBe(1);
    expect(await agent.metric('tagferry_session_renewals_total{grant="refresh_token"}')).toBeGreaterThan(0);
    expect(platform.counts(881).stored).toBe(pushed);
  });
});
