import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Reply } from '../sandbox/visitor.ts';
import { asset, DAY_MS, HOUR_MS, type Hook, Platform, until } from './platform.ts';

let platform: Platform;

beforeEach(async () => {
  platform = await Platform.start();
});
afterEach(() => platform.stop());

const login = async () => (await platform.stranger().login()).body;
const refresh = (refresh_token: string): Promise<Reply> =>
  platform.stranger().form('/oauth/token', { grant_type: 'refresh_token', refresh_token });
const revoke = (token: string) => platform.stranger().form('/oauth/revoke', { token });
const move = (ms: number) => platform.behind('POST', 'clock', { advanceMs: ms });

describe('specification', () => {
  it.each(['password', 'authorization code', 'PKCE'])(
    '3.1 the %s grant returns an access token for 660 s',
    async (name) => {
      const ask: Record<string, () => Promise<Reply>> = {
        password: () => platform.stranger().login(),
        'authorization code': async () => {
          const code = new URL((await platform.signIn()).headers.get('location')!).searchParams.get('code')!;
          return platform.exchange({ code, client_secret: 'sandbox-secret' });
        },
        PKCE: () => platform.personTokens(),
      };
      const { access_token } = (await ask[name]!()).body;
      await move(659_999);
      expect(await platform.isAlive(access_token)).toBe(true);
      await move(1);
      expect(await platform.isAlive(access_token)).toBe(false);
    },
  );

  it('3.1 use does not extend an access token', async () => {
    const { access_token } = await login();
    for (let minute = 0; minute < 10; minute++) {
      await move(60_000);
      expect(await platform.isAlive(access_token)).toBe(true);
    }
    await move(60_000);
    expect(await platform.isAlive(access_token)).toBe(false);
  });

  it('3.1 a refresh does not extend the previous access token', async () => {
    const first = await login();
    await move(300_000);
    await refresh(first.refresh_token);
    await move(360_000);
    expect(await platform.isAlive(first.access_token)).toBe(false);
  });

  it.each([
    ['valid', 0],
    ['expired', 661_000],
  ])('3.1 a refresh returns a new token pair if the access token is %s', async (_, elapsedMs) => {
    const first = await login();
    await move(elapsedMs);
    const second = await refresh(first.refresh_token);
    expect(second.status).toBe(200);
    expect(second.body.access_token).not.toBe(first.access_token);
    expect(second.body.refresh_token).not.toBe(first.refresh_token);
    expect(await platform.isAlive(second.body.access_token)).toBe(true);
  });

  it('3.1 a refresh token is valid for 24 hours, to the second', async () => {
    const [early, late] = [await login(), await login()];
    await move(DAY_MS - 1000);
    expect((await refresh(early.refresh_token)).status).toBe(200);
    await move(1000);
    const reply = await refresh(late.refresh_token);
    expect([reply.status, reply.body.error]).toEqual([400, 'invalid_grant']);
  });

  it('3.1 a refresh starts a new period of 24 hours', async () => {
    const first = await login();
    await move(23 * HOUR_MS);
    const second = (await refresh(first.refresh_token)).body;
    await move(23 * HOUR_MS);
    expect((await refresh(second.refresh_token)).status).toBe(200);
  });

  it('3.1 an access token that is revoked with the token parameter is no longer valid', async () => {
    const { access_token } = await login();
    expect((await revoke(access_token)).status).toBe(200);
    expect(await platform.isAlive(access_token)).toBe(false);
  });

  it('3.1 revoking an access token also revokes its refresh token', async () => {
    const pair = await login();
    await revoke(pair.access_token);
    expect((await refresh(pair.refresh_token)).body.error).toBe('invalid_grant');
  });

  it('3.1 revoking one access token does not affect access tokens from other grants', async () => {
    const [one, other] = [await login(), await login()];
    await revoke(one.access_token);
    expect(await platform.isAlive(other.access_token)).toBe(true);
    expect((await refresh(other.refresh_token)).status).toBe(200);
  });
});

describe('specification', () => {
  const lose = () => platform.take(asset(881));
  const isDisabled = async (hook: Hook) => (await platform.gateway.get(hook.path)).body.disabled;
  const notices = async () => (await platform.gateway.get('/sandbox/notices')).body.notices;

  it('3.2 an enabled webhook is disabled by PATCH with disabled true, and then receives nothing', async () => {
    const hook = await platform.webhook(['asset_disappeared']);
    expect((await hook.patch({ disabled: true })).status).toBe(204);
    expect(await isDisabled(hook)).toBe(true);
    await lose();
    expect(await hook.told()).toEqual([]);
  });

  it('3.2 a disabled webhook is enabled by PATCH with disabled false, and receives later events', async () => {
    const hook = await platform.webhook(['asset_disappeared'], {}, { disabled: true });
    await lose();
    expect((await hook.patch({ disabled: false })).status).toBe(204);
    expect(await isDisabled(hook)).toBe(false);
    await platform.take(asset(882));
    expect((await hook.told()).map((event) => event.content.asset.id)).toEqual([882]);
  });

  /** Makes the first attempt, and one more after each number of days. */
  const failFor = async (hook: Hook, days: readonly number[]) => {
    platform.receiver.status = 500;
    await lose();
    await hook.first('pending', 1);
    for (const [index, day] of days.entries()) {
      await platform.advance(day * DAY_MS);
      await until(() => expect(platform.receiver.received).toHaveLength(index + 2));
    }
  };

  it('3.2 a webhook that fails for more than two weeks is disabled, and the contact person is notified', async () => {
    const hook = await platform.webhook(['asset_disappeared']);
    await failFor(hook, [13, 2]);
    await until(async () => expect(await isDisabled(hook)).toBe(true));
    expect(await notices()).toEqual([
      { at: expect.any(String), contact: 'anna@sandbox.example', text: expect.stringContaining(`webhook ${hook.id}`) },
    ]);
  });

  it('3.2 a webhook with an event that keeps failing for two weeks is disabled even if other events are delivered', async () => {
    const hook = await platform.webhook(['asset_disappeared']);
    await failFor(hook, [8]);
    platform.receiver.status = 204;
    await platform.take(asset(882));
    await until(async () => expect((await hook.deliveries('status=delivered')).length).toBe(1));
    platform.receiver.status = 500;
    await platform.advance(7 * DAY_MS);
    await until(async () => expect(await isDisabled(hook)).toBe(true));
  });

  it('3.2 a webhook with an event that fails again when resent after two weeks is disabled', async () => {
    const hook = await platform.webhook(['asset_disappeared']);
    await failFor(hook, []);
    await platform.exhausted();
    await platform.advance(12 * DAY_MS);
    expect(await isDisabled(hook)).toBe(false);
    await hook.resend((await hook.deliveries())[0].id);
    await until(async () => expect(await isDisabled(hook)).toBe(true));
  });

  it('3.2 a re-enabled webhook stays enabled through another two weeks of failures', async () => {
    const hook = await platform.webhook(['asset_disappeared']);
    await failFor(hook, [15]);
    await until(async () => expect(await isDisabled(hook)).toBe(true));
    await hook.patch({ disabled: false });
    await platform.advance(13 * DAY_MS);
    await until(() => expect(platform.receiver.received).toHaveLength(3));
    expect(await isDisabled(hook)).toBe(false);
  });

  it('3.2 a webhook that fails for less than two weeks stays enabled', async () => {
    const hook = await platform.webhook(['asset_disappeared']);
    await failFor(hook, [7, 6.9]);
    await hook.first('pending');
    expect([await isDisabled(hook), await notices()]).toEqual([false, []]);
  });

  it('3.2 an automatically disabled webhook can be re-enabled', async () => {
    const hook = await platform.webhook(['asset_disappeared', 'asset_appeared']);
    await failFor(hook, [15]);
    await until(async () => expect(await isDisabled(hook)).toBe(true));
    platform.receiver.status = 204;
    await hook.patch({ disabled: false });
    await platform.grant(asset(881));
    await until(() => expect(platform.receiver.types()).toContain('asset_appeared'));
    expect(await isDisabled(hook)).toBe(false);
  });
});

describe('specification', () => {
  const lost = async (status: number): Promise<Hook> => {
    platform.receiver.status = status;
    const hook = await platform.webhook(['asset_disappeared']);
    await platform.take(asset(881));
    await until(() => expect(platform.receiver.received).toHaveLength(1));
    return hook;
  };
  const exhausted = async (): Promise<Hook> => {
    const hook = await lost(500);
    await platform.exhausted();
    return hook;
  };

  it('3.3 an event is delivered by an attempt with a 2XX response', async () => {
    await (await lost(204)).first('delivered', 1);
  });

  it('3.3 an attempt with any other response schedules a retry, which can succeed', async () => {
    const hook = await lost(503);
    await hook.first('pending', 1);
    await platform.tried(1, 503);
    platform.receiver.status = 200;
    await platform.advance(60_000);
    expect((await hook.first('delivered', 2)).retries).toBe(1);
  });

  it('3.3 a delivery has failed after 16 attempts and is not retried', async () => {
    const hook = await exhausted();
    expect(platform.receiver.received).toHaveLength(16);
    await platform.advance(7 * DAY_MS);
    expect(await hook.first('failed', 16)).toMatchObject({ status: 'failed', retries: 15 });
    expect(await hook.deliveries('status=failed')).toHaveLength(1);
  });

  it('3.3 after all retries, a POST with the event id restarts the delivery with the same retry schedule', async () => {
    const hook = await exhausted();
    platform.receiver.received.length = 0;
    const { id } = (await hook.deliveries())[0];
    expect((await hook.resend(id)).status).toBe(204);
    await platform.tried(17, 500);
    expect((await hook.first('pending', 1)).retries).toBe(0);
    platform.receiver.status = 204;
    await platform.advance(60_000);
    await hook.first('delivered', 2);
  });

  it('3.3 a failed delivery can be resent within 6 months', async () => {
    const hook = await exhausted();
    await platform.advance(175 * DAY_MS);
    platform.receiver.status = 204;
    expect((await hook.resend((await hook.deliveries())[0].id)).status).toBe(204);
    await hook.first('delivered', 17);
  });

  it('3.3 a failed delivery is removed after 6 months and cannot be resent', async () => {
    const hook = await exhausted();
    const { id } = (await hook.deliveries())[0];
    await platform.advance(184 * DAY_MS);
    expect(await hook.deliveries()).toEqual([]);
    expect((await hook.resend(id)).status).toBe(404);
  });
});

describe('specification', () => {
  it.each([
    ['asset', 'asset_statuses', 'failure'],
    ['event', 'event_statuses', 'scheduled'],
    ['product', 'product_statuses', 'phase_out'],
    ['edge device', 'edge_device_statuses', 'offline'],
  ])('3.4 the %s status %s has the code %s', async (_, kind, code) => {
    const { objects } = (await platform.gateway.get(`/sandbox/objects/${kind}`)).body;
    expect(objects.map((status: { code: string }) => status.code)).toContain(code);
  });

  it('3.4 the edge device status offline is set automatically', async () => {
    await platform.behind('POST', 'objects/edge_devices/30/seen');
    await platform.advance(48 * HOUR_MS);
    expect((await platform.object('edge_devices', 30)).status).toBe(86);
  });
});
