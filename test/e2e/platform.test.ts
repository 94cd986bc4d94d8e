import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { EVENT_TYPES } from '../../src/contract/events.ts';
import { AgentProcess } from './harness/agent-process.ts';
import { listEvents, listening, Receiver, webhookSettings } from './harness/events.ts';
import { Person, signInOnPage } from './harness/person.ts';
import { CREDENTIALS, Platform } from './harness/platform.ts';
import { runVerb } from './harness/verb.ts';

const ANNA = CREDENTIALS.userEmail;
const BEN = 'ben@sandbox.example';
const GATEWAY = CREDENTIALS.technicalUsername;

let platform: Platform;
let person: Person;
let agent: AgentProcess | undefined;

beforeEach(async () => {
  platform = await Platform.start();
  person = new Person(platform);
});
afterEach(async () => {
  await agent?.dispose();
  agent = undefined;
  person.dispose();
  await platform.stop();
});

/** Runs a person's command that must succeed. Returns its output, which is JSON without a terminal. */
async function json<Result>(...args: string[]): Promise<Result> {
  const { status, stdout, stderr } = await person.run(...args);
  expect(`${args.join(' ')}: ${status} ${stderr}`).toMatch(`${args.join(' ')}: 0`);
  return JSON.parse(stdout) as Result;
}

/** Records of the platform, as its operator sees them. */
async function records<Row>(kind: string): Promise<Row[]> {
  const response = await fetch(`${platform.adminUrl}/sandbox/objects/${kind}`);
  return ((await response.json()) as { objects: Row[] }).objects;
}

const exchanges = () => platform.requests('/app/id/oauth/token');

async function begin(tags: string, reactions = 'reactions: []\n', env: Record<string, string> = {}) {
  const settings = { ...(await webhookSettings()), ...env };
  agent = new AgentProcess(platform.url, { tags, reactions, env: settings });
  await agent.start();
  await listening(agent, settings.WEBHOOK_URL);
  return agent;
}

describe('tagferry login', () => {
  it('signs a person in with state and PKCE, ignores a wrong state, and logout revokes the tokens', async () => {
    const login = person.login();
    const address = new URL(await login.address());
    expect(address.searchParams.get('code_challenge_method')).toBe('S256');
    expect(address.searchParams.get('code_challenge')).toMatch(/^[A-Za-z0-9_-]{43}$/);
    const redirect = new URL(await signInOnPage(address.href));
    expect(redirect.searchParams.get('state')).toBe(address.searchParams.get('state'));
    // Another page in the browser guesses the address of the listener.
    const forged = new URL(redirect);
    forged.searchParams.set('state', 'x'.repeat(redirect.searchParams.get('state')!.length));
    expect((await fetch(forged)).status).toBe(400);
    forged.searchParams.delete('state');
    expect((await fetch(forged)).status).toBe(400);
    expect(exchanges()).toEqual([]);
    expect((await fetch(redirect)).status).toBe(200);
    expect(await login.ended).toBe(0);
    expect(exchanges()).toMatchObject([{ status: 200 }]);
    expect(await json('permissions', 'ls', 'Asset/881')).not.toEqual([]);
    expect(platform.tokens()).toMatchObject({ issued: 1, alive: 1 });
    expect((await person.run('logout')).status).toBe(0);
    expect(platform.tokens()).toMatchObject({ alive: 0 });
    expect(await person.run('permissions', 'ls', 'Asset/881')).toMatchObject({ status: 1 });
  });

  it('uses a new state and a new challenge each time, and the client secret if there is one', async () => {
    const [first, second] = [person.login(), person.login()];
    const [one, other] = [new URL(await first.address()), new URL(await second.address())];
    for (const name of ['state', 'code_challenge']) {
      expect(one.searchParams.get(name)).not.toBe(other.searchParams.get(name));
    }
    // The code of one sign-in is worthless for another, which has neither its state nor its verifier.
    const stolen = new URL(await signInOnPage(one.href));
    stolen.port = new URL(other.searchParams.get('redirect_uri')!).port;
    expect((await fetch(stolen)).status).toBe(400);
    stolen.searchParams.set('state', other.searchParams.get('state')!);
    await fetch(stolen);
    expect(await second.ended).toBe(1);
    expect(platform.tokens().issued).toBe(0);
    first.kill();
    person.environment.CLIENT_SECRET = CREDENTIALS.clientSecret;
    const web = person.login();
    const address = new URL(await web.address());
    expect(address.searchParams.has('code_challenge')).toBe(false);
    expect((await fetch(await signInOnPage(address.href))).status).toBe(200);
    expect(await web.ended).toBe(0);
    expect(await json('permissions', 'ls', 'Asset/881')).not.toEqual([]);
  });
});

describe('permission commands', () => {
  it('decide over v2 and v1 which values of a gateway the platform accepts', async () => {
    platform.grant(901, { user: ANNA });
    await person.signIn();
    const gateway = await begin('tags:\n  T: { asset: 901, values: { level: { unit: 12 } } }\n');
    const stored = () => platform.counts(901).stored;
    const push = async (value: number) => {
      expect((await gateway.push([{ tag: 'T', key: 'level', value }])).status).toBe(204);
    };
    const held = (count: number) =>
      gateway.until(async () => (await gateway.metric('tagferry_assets_held')) === count, `${count} assets are held`);
    await push(1);
    await gateway.until(() => stored() === 1, 'the value is on the platform');

    await json('permissions', 'take', GATEWAY, 'Asset/901', '--yes');
    // The agent does not know its own user, so a rejected post confirms the event.
    await push(2);
    await held(1);
    await json('permissions', 'grant', GATEWAY, 'Asset/901', 'read,update');
    await gateway.until(() => stored() === 2, 'the held value is on the platform');
    await held(0);

    type V1 = { id: string; permission_type: string; assignable: { id: number } };
    const own = async () =>
      (await json<V1[]>('permissions', 'ls', 'Asset/901', '--v1')).filter(({ assignable }) => assignable.id === 5);
    const [first, ...others] = await own();
    expect([first, ...others].map((one) => one!.permission_type).sort()).toEqual(['can_read', 'can_update']);
    await json('permissions', 'take', first!.id, '--v1', '--all', '--yes');
    await push(3);
    await held(1);
    expect(await own()).toEqual([]);
    const granted = await person.run('permissions', 'grant', 'user/5', 'Asset/901', 'read', 'update', '--v1');
    expect(granted).toMatchObject({ status: 0, stderr: expect.stringContaining('2027-05-01') });
    await gateway.until(() => stored() === 3, 'the held value is on the platform');
    const types = async () => (await listEvents(gateway)).map(({ event_type }) => event_type).toSorted();
    const expected = ['asset_appeared', 'asset_appeared', 'asset_disappeared', 'asset_disappeared'];
    await gateway.until(async () => String(await types()) === String(expected), 'each change has one event');
    const explained = await json<{ sees: string }>('permissions', 'explain', GATEWAY, 'Asset/901');
    expect(explained.sees).toBe('yes');
  });

  it('change owners, members and labels over v2 and v1', async () => {
    await person.signIn();
    const owners = async () =>
      (await records<{ user: number; permitable: { id: number } }>('owners'))
        .filter(({ permitable }) => permitable.id === 881)
        .map(({ user }) => user);
    await json('owners', 'grant', BEN, 'Asset/881');
    expect(await owners()).toEqual([6, 7]);
    await json('owners', 'take', 'user/7', 'Asset/881', '--v1', '--yes');
    expect(await owners()).toEqual([6]);

    const operators = async () =>
      (await records<{ id: number; users: number[] }>('userroles')).find(({ id }) => id === 60)!.users;
    await json('members', 'grant', 'userrole-users/60', BEN);
    expect(await operators()).toEqual([6, 7]);
    await json('members', 'change', 'userrole-users/60', BEN, '--yes');
    expect(await operators()).toEqual([7]);
    await json('members', 'grant', 'userrole-users/60', 'user/6', '--v1');
    await json('members', 'take', 'userrole-users/60', BEN, '--yes');
    expect(await operators()).toEqual([6]);
    const admins = async () =>
      (await records<{ id: number; admins: number[] }>('tenants')).find(({ id }) => id === 50)!.admins;
    await json('members', 'grant', 'tenant-admins/50', '7', '--v1');
    expect(await admins()).toEqual([6, 7]);
    await json('members', 'take', 'tenant-admins/50', BEN, '--yes');
    expect(await admins()).toEqual([6]);

    // The response contains all labels of the object.
    const change = (...args: string[]) =>
      json<{ labels: object }>('labels', 'change', 'Asset/881', ...args, '--yes').then(({ labels }) => labels);
    await change('flow', 'name=Inlet flow', 'precision=2', 'is_visible=true');
    await change('temperature=T', '--v1');
    expect(await change('flow', 'expected_min=-5.5')).toEqual({
      flow: { name: 'Inlet flow', precision: 2, is_visible: true, expected_min: -5.5 },
      temperature: { name: 'T' },
    });
  });

  it('send nothing without confirmation, with --dry-run, or with invalid arguments', async () => {
    await person.signIn();
    const before = platform.requests().length;
    for (const [status, ...args] of [
      [2, 'permissions', 'take', GATEWAY, 'Asset/881'],
      [2, 'members', 'change', 'tenant-users/50', BEN],
      [2, 'owners', 'take', BEN, 'Asset/881'],
      [2, 'permissions', 'grant', BEN, 'Asset/881', 'can_fly'],
      [2, 'permissions', 'grant', BEN, 'Asset/x', 'can_read'],
      [0, 'permissions', 'grant', BEN, 'Asset/881', 'can_read', '--dry-run'],
    ] as const) {
      expect([args.join(' '), (await person.run(...args)).status]).toEqual([args.join(' '), status]);
    }
    const changes = platform
      .requests()
      .slice(before)
      .filter(({ method }) => method !== 'GET');
    expect(changes).toEqual([]);
  });
});

describe('platform events', () => {
  it('of all 23 types reach the inbox, and a threshold crossed by a posted value runs its reaction', async () => {
    const receiver = await Receiver.start();
    try {
      const gateway = await begin(
        'tags:\n  FT-101: { asset: 881, instrumentation: 4711, values: { flow: { unit: 12 } } }\n',
        `reactions:\n  - name: high\n    on: threshold_reached\n    if: { tag: FT-101, threshold.type: high }\n    do: [{ post: "${receiver.url}/" }]\n`,
        { WEBHOOK_EVENTS: '*' },
      );
      platform.setThreshold({ instrumentation: 4711, type: 'high', value: 20, key: 'flow' });
      for (const value of [19, 23.5]) {
        expect((await gateway.push([{ tag: 'FT-101', key: 'flow', value }])).status).toBe(204);
      }
      await gateway.until(() => receiver.requests.length > 0, 'the reaction has run');
      expect(receiver.numbers()).toEqual([23.5]);
      // Events about an object end with the access to it.
      const isLast = (type: string) => type.endsWith('_disappeared');
      const causes = EVENT_TYPES.filter((type) => type !== 'threshold_reached');
      for (const type of [...causes.filter((one) => !isLast(one)), ...causes.filter(isLast)]) platform.cause(type);
      const types = async () => new Set((await listEvents(gateway)).map(({ event_type }) => event_type));
      await gateway.until(async () => (await types()).size >= EVENT_TYPES.length, 'every type is in the inbox');
      expect([...(await types())].toSorted()).toEqual([...EVENT_TYPES].toSorted());
      expect((await listEvents(gateway)).filter(({ unrecognised }) => unrecognised)).toEqual([]);
      expect(EVENT_TYPES).toHaveLength(23);
    } finally {
      await receiver.stop();
    }
  });

  it('about access tell the agent its assets, instrumentations and nodes', async () => {
    const gateway = await begin('tags: {}\n');
    const permission = async (method: string, type: string, id: number) => {
      await fetch(`${platform.adminUrl}/sandbox/permissions`, { method, body: JSON.stringify({ on: { type, id } }) });
    };
    for (const [type, id] of [
      ['Asset', 910],
      ['Instrumentation', 4790],
      ['Node', 19],
    ] as const) {
      await permission('DELETE', type, id);
      await permission('POST', type, id);
    }
    // Events within one second count as simultaneous.
    platform.advance(2_000);
    await permission('DELETE', 'Asset', 911);
    const known = async () => {
      const { stdout } = await runVerb(gateway, 'assets', '--json');
      const { objects } = JSON.parse(stdout) as { objects: { kind: string; id: number; state: string }[] };
      return objects.map(({ kind, id, state }) => `${kind} ${id} ${state}`);
    };
    const expected = ['asset 910 visible', 'asset 911 lost', 'instrumentation 4790 visible', 'node 19 visible'];
    await gateway.until(async () => {
      const listed = await known();
      return expected.every((one) => listed.includes(one));
    }, 'every object is listed');
    // The platform is not asked about objects.
    const asked = platform.requests('/v1/').map(({ path }) => path);
    expect(asked.filter((path) => /\/(assets|instrumentations|nodes)\b/.test(path))).toEqual([]);
  });
});

describe('webhook commands', () => {
  it('list, resend, delete and register on the platform', async () => {
    const gateway = await begin('tags: {}\n', undefined, { LOG_LEVEL: 'debug' });
    const run = async <Result>(...args: string[]) => {
      const { status, stdout, stderr } = await runVerb(gateway, 'webhook', ...args, '--json');
      expect(`${status} ${stderr}`).toMatch(/^0/);
      return JSON.parse(stdout) as Result;
    };
    const [webhook] = platform.webhooks();
    expect(await run('ls')).toMatchObject([{ id: webhook!.id, url: webhook!.url }]);
    platform.cause('asset_disappeared', { object: 881 });
    await gateway.until(() => platform.deliveries()[0]?.status === 'delivered', 'the event is delivered');
    const listing = ['deliveries', '--event-type', 'asset_disappeared', '--status', 'delivered'];
    const { deliveries } = await run<{ deliveries: { id: number }[] }>(...listing);
    expect(deliveries).toMatchObject([{ id: platform.deliveries()[0]!.id, status: 'delivered' }]);
    const id = String(deliveries[0]!.id);
    await run('resend', id);
    await gateway.until(() => gateway.logged('webhook.repeated').length > 0, 'the event has arrived again');
    expect(await listEvents(gateway)).toHaveLength(1);
    expect(await runVerb(gateway, 'webhook', 'resend', id, '99999')).toMatchObject({ status: 1 });
    await run('delete', '--yes');
    expect(platform.webhooks()).toEqual([]);
    await run('register');
    expect(platform.webhooks()).toHaveLength(1);
  });
});
