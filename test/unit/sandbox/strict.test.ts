import { afterEach, describe, expect, it } from 'vitest';
import { SANDBOX_CREDENTIALS, Sandbox, type SandboxOptions } from '../../../src/sandbox/sandbox.ts';
import { STRICT_RULE_NAMES, type StrictRule } from '../../../src/sandbox/strictness.ts';
import { basic, Visitor } from './visitor.ts';

const WEBHOOKS = '/v1/client_applications/3/webhooks';
const SIGN_IN = {
  response_type: 'code',
  client_id: SANDBOX_CREDENTIALS.clientId,
  redirect_uri: 'https://client.example/callback',
  state: 'xyz',
  code_challenge: 'J_MWcWvCWIZhLPMsU6dTdPVxTzWMuDVy5YFHpYvlySs',
  code_challenge_method: 'S256',
};

let sandbox: Sandbox | undefined;
afterEach(() => sandbox?.stop());

async function started(options: SandboxOptions) {
  sandbox = new Sandbox(options);
  await sandbox.start();
  return { sandbox, visitor: await Visitor.signedIn(sandbox), anna: Visitor.asPerson(sandbox) };
}

type Place = Awaited<ReturnType<typeof started>>;

const signIn = (visitor: Visitor, more: Record<string, string>, without: string[] = []) => {
  const query = Object.entries({ ...SIGN_IN, ...more }).filter(([name]) => !without.includes(name));
  return visitor.get(`/app/id/sign_in?${new URLSearchParams(query)}`);
};
const webhook = (visitor: Visitor, url: string, more: object = {}) =>
  visitor.call('POST', WEBHOOKS, { url, event_types: ['asset_updated'], ...more });
const PUBLIC = 'https://receiver.example/hook';

interface Try {
  rule: StrictRule;
  what: string;
  attempt(place: Place): Promise<{ status: number }>;
  lax: number;
  strict: number;
}

const TRIES: readonly Try[] = [
  {
    rule: 'redirect',
    what: 'a registered loopback address with a port',
    attempt: ({ visitor }) => signIn(visitor, { redirect_uri: 'http://127.0.0.1:4711/callback' }),
    lax: 200,
    strict: 400,
  },
  {
    rule: 'basic-auth',
    what: 'a percent-encoded secret',
    attempt: ({ visitor }) => {
      const { technicalUsername: username, technicalPassword: password } = SANDBOX_CREDENTIALS;
      const fields = { grant_type: 'password', username, password };
      return visitor.form('/oauth/token', fields, basic(SANDBOX_CREDENTIALS.clientId, 'sandbox%2Dsecret'));
    },
    lax: 200,
    strict: 401,
  },
  {
    rule: 'client-user',
    what: 'the key of one subscription with the technical user of another',
    attempt: ({ sandbox, visitor }) => {
      sandbox.site.put('users', { id: 9, email: 'other@sandbox.example', password: 'p', technical: true });
      return visitor.form('/oauth/token', { grant_type: 'password', username: 'other@sandbox.example', password: 'p' });
    },
    lax: 200,
    strict: 400,
  },
  ...['http://127.0.0.1:9/hook', 'https://10.1.2.3/hook', 'https://[fd00::1]/hook', 'https://gateway.local/hook'].map(
    (url): Try => ({
      rule: 'webhook-address',
      what: `a webhook at ${url}`,
      attempt: ({ visitor }) => webhook(visitor, url),
      lax: 201,
      strict: 400,
    }),
  ),
  {
    rule: 'webhook-members',
    what: 'an unknown member of a webhook',
    attempt: ({ visitor }) => webhook(visitor, PUBLIC, { colour: 'red' }),
    lax: 201,
    strict: 400,
  },
  {
    rule: 'webhook-members',
    what: 'an unknown filter of the deliveries',
    attempt: async ({ visitor }) => {
      const { id } = (await webhook(visitor, PUBLIC)).body;
      return visitor.get(`${WEBHOOKS}/${id}/events?state=failed`);
    },
    lax: 200,
    strict: 400,
  },
  ...(
    [
      ['an attribute that assets do not have', { asset_updated: ['colour'] }],
      ['an attribute of edge devices for assets', { asset_updated: ['software_version'] }],
      ['a value key that no value can have', { asset_values_created: ['flow rate'] }],
      ['an event type code that does not exist', { event_document_created: ['callibration'] }],
      ['an event type without a filter', { threshold_reached: ['high'] }],
      ['an event type that the webhook does not receive', { event_created: ['calibration'] }],
    ] as const
  ).map(
    ([what, properties]): Try => ({
      rule: 'properties',
      what: `a webhook filtered by ${what}`,
      attempt: ({ visitor }) => {
        const event_types = ['asset_updated', 'asset_values_created', 'event_document_created', 'threshold_reached'];
        return webhook(visitor, PUBLIC, { event_types, properties });
      },
      lax: 201,
      strict: 400,
    }),
  ),
  {
    rule: 'properties',
    what: 'a webhook changed to an unknown attribute',
    attempt: async ({ visitor }) => {
      const { id } = (await webhook(visitor, PUBLIC)).body;
      return visitor.call('PATCH', `${WEBHOOKS}/${id}`, { properties: { asset_updated: ['colour'] } });
    },
    lax: 204,
    strict: 400,
  },
  {
    rule: 'changers',
    what: 'a person who registers a webhook',
    attempt: ({ anna }) => webhook(anna, PUBLIC),
    lax: 201,
    strict: 403,
  },
  {
    rule: 'changers',
    what: 'a person who resets a secret',
    attempt: async ({ visitor, anna }) => {
      const { id } = (await webhook(visitor, PUBLIC)).body;
      return anna.call('POST', `${WEBHOOKS}/${id}/reset_secret`);
    },
    lax: 200,
    strict: 403,
  },
  {
    rule: 'changers',
    what: 'a user without administrator rights who changes members of a tenant',
    attempt: ({ visitor }) =>
      visitor.call('POST', '/v2/tenants/50/users', { users: [{ email: 'ben@sandbox.example' }] }),
    lax: 204,
    strict: 403,
  },
  {
    rule: 'json-type',
    what: 'JSON sent as text/plain',
    attempt: ({ visitor }) =>
      visitor.call(
        'POST',
        '/v1/assets/881/values',
        { values: [{ key: 'flow', data: [{ value: 1 }] }] },
        { 'content-type': 'text/plain' },
      ),
    lax: 204,
    strict: 415,
  },
  {
    rule: 'state',
    what: 'sign-in without state',
    attempt: ({ visitor }) => signIn(visitor, {}, ['state']),
    lax: 200,
    strict: 400,
  },
  {
    rule: 'pkce',
    what: 'sign-in without PKCE',
    attempt: ({ visitor }) => signIn(visitor, {}, ['code_challenge', 'code_challenge_method']),
    lax: 200,
    strict: 400,
  },
];

describe('--strict', () => {
  it.each(TRIES)(
    '$rule: $what gets the response $lax, or $strict in strict mode',
    async ({ rule, attempt, lax, strict }) => {
      expect((await attempt(await started({}))).status).toBe(lax);
      await sandbox?.stop();
      // The rule alone rejects the request; all other rules accept it.
      expect((await attempt(await started({ strict: [rule] }))).status).toBe(strict);
      await sandbox?.stop();
      const others = STRICT_RULE_NAMES.filter((one) => one !== rule && one !== 'webhook-address');
      expect((await attempt(await started({ strict: others }))).status).toBe(lax);
    },
  );

  it('has a test for each rule', () => {
    expect(new Set(TRIES.map(({ rule }) => rule))).toEqual(new Set(STRICT_RULE_NAMES));
  });

  it('accepts requests that conform to the specification', async () => {
    const { visitor, anna } = await started({ strict: STRICT_RULE_NAMES });
    expect((await signIn(visitor, {})).status).toBe(200);
    const properties = {
      asset_updated: ['serial_number', 'status'],
      edge_device_updated: ['software_version'],
      asset_values_created: ['flow'],
      asset_specifications_updated: ['eClass-0173/1'],
      event_created: ['calibration'],
      event_document_created: [],
    };
    expect((await webhook(visitor, PUBLIC, { event_types: Object.keys(properties), properties })).status).toBe(201);
    expect((await visitor.post(881, 'flow', [{ value: 1 }])).status).toBe(204);
    const users = { users: [{ email: 'ben@sandbox.example' }] };
    expect((await anna.call('POST', '/v2/userroles/60/users', users)).status).toBe(204);
  });
});
