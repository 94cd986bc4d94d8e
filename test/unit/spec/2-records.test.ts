import { createHmac } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SANDBOX_CREDENTIALS } from '../../../src/sandbox/sandbox.ts';
import type { Reply } from '../sandbox/visitor.ts';
import { asset, codeOf, Platform, SIGN_IN, until, WEBHOOKS } from './platform.ts';

let platform: Platform;

beforeEach(async () => {
  platform = await Platform.start();
});
afterEach(() => platform.stop());

/** Grants of section 4.1. */
const WAYS: readonly [name: string, ask: () => Promise<Reply>][] = [
  ['the password grant', () => platform.stranger().login()],
  ['a refresh', async () => refresh('/oauth/token', (await platform.stranger().login()).body.refresh_token)],
  ['the code grant', async () => platform.exchange({ code: codeOf(await platform.signIn()), ...secret })],
  ['the code grant with PKCE', () => platform.personTokens()],
  [
    'a person’s refresh',
    async () => refresh('/app/id/oauth/token', (await platform.personTokens()).body.refresh_token),
  ],
];
const secret = { client_secret: SANDBOX_CREDENTIALS.clientSecret };
const refresh = (path: string, refresh_token: string) =>
  platform.stranger().form(path, { grant_type: 'refresh_token', refresh_token, client_id: SIGN_IN.client_id });

describe('specification', () => {
  it.each(WAYS)('2.1 %s returns the five fields, token_type Bearer and expires_in 660', async (_, ask) => {
    const { status, body, headers } = await ask();
    expect(status).toBe(200);
    expect(headers.get('content-type')).toMatch(/^application\/json/);
    expect(body).toEqual({
      access_token: expect.any(String),
      token_type: 'Bearer',
      expires_in: 660,
      refresh_token: expect.any(String),
      created_at: Date.UTC(2026, 10, 21) / 1000,
    });
  });

  it('2.1 access_token is a bearer credential and refresh_token is not', async () => {
    const { access_token, refresh_token } = (await platform.stranger().login()).body;
    expect(await platform.isAlive(access_token)).toBe(true);
    expect(await platform.isAlive(refresh_token)).toBe(false);
  });

  it('2.1 created_at is the creation time as a Unix timestamp', async () => {
    const before = (await platform.stranger().login()).body.created_at;
    await platform.advance(90_000);
    expect((await platform.stranger().login()).body.created_at - before).toBe(90);
  });
});

describe('specification', () => {
  it('2.3 each connect subscription has a client application with an id and a name', async () => {
    const { client_applications } = (await platform.gateway.get('/v1/client_applications')).body;
    expect(client_applications).toEqual([{ id: 3, name: SANDBOX_CREDENTIALS.clientApplication }]);
  });

  it('2.3 client applications can be filtered by name', async () => {
    const found = async (name: string) =>
      (await platform.gateway.get(`/v1/client_applications?name=${name}`)).body.client_applications.length;
    expect(await found(SANDBOX_CREDENTIALS.clientApplication)).toBe(1);
    expect(await found('another')).toBe(0);
  });
});

describe('specification', () => {
  const create = (body: object) => platform.gateway.call('POST', WEBHOOKS, body);
  const plain = { url: 'https://client.example/hook', event_types: ['asset_appeared'] };

  it('2.4 a webhook has url, event_types, properties, disabled and, in the creation response, a secret', async () => {
    const { body } = await create({ ...plain, properties: { asset_updated: ['status'] } });
    expect(body).toMatchObject({
      ...plain,
      properties: { asset_updated: ['status'] },
      disabled: false,
      secret: expect.stringMatching(/^.{16,}$/),
    });
  });

  it.each([
    ['http', { ...plain, url: 'http://client.example/hook' }],
    ['text that is not an address', { ...plain, url: 'client' }],
    ['nothing', { event_types: plain.event_types }],
  ])('2.4 url is an https address: %s is rejected', async (_, body) => {
    const reply = await create(body);
    expect([reply.status, reply.body.errors[0].attribute]).toEqual([400, 'url']);
  });

  it.each([
    ['an unknown name', ['asset_exploded']],
    ['a string', 'asset_appeared'],
    ['an empty list', []],
  ])('2.4 event_types contains names from the events section: %s is rejected', async (_, event_types) => {
    const reply = await create({ ...plain, event_types });
    expect([reply.status, reply.body.errors[0].attribute]).toEqual([400, 'event_types']);
  });

  it('2.4 properties is optional', async () => {
    expect((await create(plain)).status).toBe(201);
  });

  it.each([
    ['a key that is not an event type', { asset_exploded: ['status'] }],
    ['a value that is not a list', { asset_updated: 'status' }],
    ['a list of items other than strings', { asset_updated: [1] }],
  ])('2.4 properties maps event types to lists of strings: %s is rejected', async (_, properties) => {
    const reply = await create({ ...plain, properties });
    expect([reply.status, reply.body.errors[0].attribute]).toEqual([400, 'properties']);
  });

  it('2.4 disabled is a boolean', async () => {
    expect((await create({ ...plain, disabled: true })).body.disabled).toBe(true);
    expect((await create({ ...plain, disabled: 'yes' })).status).toBe(400);
  });

  it('2.4 the secret is generated, is different for each webhook, and is not returned by reads', async () => {
    const [one, two] = [(await create(plain)).body, (await create({ ...plain, secret: 'mine' })).body];
    expect(two.secret).not.toBe(one.secret);
    expect(two.secret).not.toBe('mine');
    for (const path of [WEBHOOKS, `${WEBHOOKS}/${one.id}`]) {
      expect((await platform.gateway.get(path)).text).not.toContain(one.secret);
    }
  });

  it('2.4 the secret is used to sign deliveries, and is replaced by change-secret', async () => {
    const hook = await platform.webhook(['asset_disappeared', 'asset_appeared']);
    await platform.take(asset(881));
    await until(() => expect(platform.receiver.received).toHaveLength(1));
    const changed = (await platform.gateway.call('POST', `${hook.path}/reset_secret`)).body.secret;
    expect(changed).not.toBe(hook.secret);
    await platform.grant(asset(881));
    await until(() => expect(platform.receiver.received).toHaveLength(2));
    const signed = platform.receiver.received.map(({ headers }) => headers['x-hub-signature-sha256']);
    const wanted = [hook.secret, changed].map((key, index) => {
      const { raw } = platform.receiver.received[index]!;
      return `sha256=${createHmac('sha256', key).update(raw).digest('hex')}`;
    });
    expect(signed).toEqual(wanted);
  });
});

describe('specification', () => {
  it('2.5 a delivery has an id, a status and the payload that was sent', async () => {
    const hook = await platform.webhook(['asset_disappeared']);
    await platform.take(asset(881));
    const record = await hook.first('delivered');
    expect(record.id).toBeTypeOf('number');
    expect(record.payload).toEqual(platform.receiver.received[0]?.event);
  });

  it('2.5 deliveries can be filtered by the status failed', async () => {
    const hook = await platform.webhook(['asset_disappeared']);
    await platform.take(asset(881));
    await hook.first('delivered');
    expect(await hook.deliveries('status=failed')).toEqual([]);
    expect(await hook.deliveries('status=delivered')).toHaveLength(1);
  });
});

describe('specification', () => {
  const patch = (version: 1 | 2, body: object) =>
    platform.gateway.call('PATCH', `/v${version}/assets/881/display_labels`, body);

  it.each([
    ['name', 'Inlet', 7],
    ['preferred_unit', 'liter_per_minute', 13],
    ['unit_extension', '(norm)', true],
    ['precision', 2, 2.5],
    ['priority', 1, '1'],
    ['is_visible', false, 'no'],
    ['expected_min', 0.5, '0.5'],
    ['expected_max', 99.5, null],
    ['is_primary', true, 1],
  ])('2.6 a v2 label member %s accepts %j and rejects %j', async (member, value, wrong) => {
    const reply = await patch(2, { flow: { [member]: value } });
    expect([reply.status, reply.body]).toEqual([200, { flow: { [member]: value } }]);
    const refused = await patch(2, { flow: { [member]: wrong } });
    expect([refused.status, refused.body.errors[0].attribute]).toEqual([400, `flow.${member}`]);
  });

  it('2.6 a v2 body has one object per value key', async () => {
    const body = { flow: { name: 'Inlet' }, temp: { name: 'Jacket', precision: 1 } };
    expect((await patch(2, body)).body).toEqual(body);
    expect((await patch(2, { flow: 'Inlet' })).status).toBe(400);
    expect((await patch(2, { flow: { colour: 'red' } })).status).toBe(400);
  });

  it('2.6 a v1 body maps keys to labels', async () => {
    const reply = await patch(1, { flow: 'Inlet', temp: 'Jacket' });
    expect([reply.status, reply.body]).toEqual([200, { flow: 'Inlet', temp: 'Jacket' }]);
    expect((await patch(1, { flow: { name: 'Inlet' } })).status).toBe(400);
  });
});
