import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { asset, challengeOf, codeOf, DAY_MS, HOUR_MS, type Hook, Platform, until } from './platform.ts';

let platform: Platform;

beforeEach(async () => {
  platform = await Platform.start();
});
afterEach(() => platform.stop());

const login = async () => (await platform.stranger().login()).body;
const move = (ms: number) => platform.behind('POST', 'clock', { advanceMs: ms });
const lost = async (): Promise<Hook> => {
  const hook = await platform.webhook(['asset_disappeared']);
  await platform.take(asset(881));
  return hook;
};
/** No delivery is pending. */
const settled = () =>
  until(async () => {
    const { deliveries } = (await platform.behind('GET', 'deliveries')).body;
    expect(deliveries.length).toBeGreaterThan(0);
    for (const { status } of deliveries) expect(status).not.toBe('pending');
  });

describe('specification', () => {
  it('7 a target that times out causes a retry', async () => {
    await platform.stop();
    platform = await Platform.start({ webhookTimeoutMs: 100 });
    platform.receiver.isMute = true;
    await lost();
    await platform.tried(1, 'timeout');
    expect(platform.reports[0]?.nextInMs).toBeGreaterThan(0);
  });

  it('7 a target without a listener causes a retry', async () => {
    await platform.webhook(['asset_disappeared']);
    await platform.receiver.stop();
    await platform.take(asset(881));
    await platform.tried(1, 'ECONNREFUSED');
    expect(platform.reports[0]?.nextInMs).toBeGreaterThan(0);
    await platform.receiver.start();
  });

  it('7 a response other than 2XX causes a retry', async () => {
    platform.receiver.status = 404;
    await lost();
    await platform.tried(1, 404);
    expect(platform.reports[0]?.nextInMs).toBeGreaterThan(0);
  });

  it('7 the webhook is not called if the subscription’s quota is exceeded', async () => {
    await platform.webhook(['asset_disappeared']);
    await platform.put('client_applications', 3, { call_quota: 1 });
    await platform.take(asset(881));
    await settled();
    expect(platform.receiver.received).toEqual([]);
  });

  it('7 a webhook that fails for more than two weeks is disabled automatically', async () => {
    platform.receiver.status = 500;
    const hook = await lost();
    await platform.tried(1, 500);
    await platform.advance(15 * DAY_MS);
    await until(async () => expect((await platform.gateway.get(hook.path)).body.disabled).toBe(true));
  });
});

describe('specification', () => {
  it('8 an access token is valid for a fixed 660 seconds, not extended by use', async () => {
    const { access_token } = await login();
    await move(659_000);
    expect(await platform.isAlive(access_token)).toBe(true);
    await move(1_000);
    expect(await platform.isAlive(access_token)).toBe(false);
  });

  it('8 a refresh token is valid for at most 24 hours', async () => {
    const { refresh_token } = await login();
    await move(24 * HOUR_MS);
    const fields = { grant_type: 'refresh_token', refresh_token };
    expect((await platform.stranger().form('/oauth/token', fields)).body.error).toBe('invalid_grant');
  });

  it.each([
    [42, 400],
    [43, 200],
    [128, 200],
    [129, 400],
  ])('8 a PKCE code verifier has 43 to 128 characters: the response to %i is %i', async (length, status) => {
    const code_verifier = 'v'.repeat(length);
    const code = codeOf(await platform.signIn(challengeOf(code_verifier)));
    expect((await platform.exchange({ code, code_verifier })).status).toBe(status);
  });

  it('8 a webhook delivery has 16 attempts over about 3 days', async () => {
    platform.receiver.status = 500;
    await lost();
    const delays = await platform.exhausted();
    expect(platform.receiver.received).toHaveLength(16);
    const days = delays.reduce((sum, delay) => sum + delay, 0) / DAY_MS;
    expect(Math.abs(days - 3)).toBeLessThan(1);
  });

  it('8 a webhook event is retained for resending for 6 months', async () => {
    const hook = await lost();
    const { id } = await hook.first('delivered');
    await platform.advance(180 * DAY_MS);
    expect((await hook.resend(id)).status).toBe(204);
    await until(() => expect(platform.receiver.received).toHaveLength(2));
  });

  it('8 webhook calls count towards the connect subscription’s quota', async () => {
    await platform.put('client_applications', 3, { call_quota: 4 });
    await platform.webhook(['asset_disappeared']);
    for (const id of [881, 882, 883, 884, 885]) await platform.take(asset(id));
    await settled();
    expect(platform.receiver.received).toHaveLength(3);
    expect((await platform.gateway.get('/v1/client_applications')).status).toBe(402);
  });

  it('8 payload size counts towards the connect subscription’s quota', async () => {
    await platform.put('client_applications', 3, { byte_quota: 700 });
    await platform.webhook(['asset_disappeared']);
    for (const id of [881, 882, 883, 884, 885]) await platform.take(asset(id));
    await settled();
    const sizes = platform.receiver.received.map(({ raw }) => raw.length);
    const total = sizes.reduce((sum, size) => sum + size, 0);
    expect(total).toBeGreaterThan(0);
    expect(total).toBeLessThanOrEqual(700);
    expect(total + sizes[0]!).toBeGreaterThan(700);
  });
});
