import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { Account } from './person-browser.ts';

/** The tests share one sandbox and one signed-in user: Anna, with all permissions on nodes 20 and 21. */
const BEN = 'ben@sandbox.example';
const ANNA = 'anna@sandbox.example';
let sandbox: Sandbox;
let account: Account;

interface RecordV2 {
  id: number;
  permission_types: string[];
  assignable: { email?: string; id?: number };
}

beforeAll(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  account = new Account(sandbox);
  await account.signIn();
});
afterAll(async () => {
  account?.dispose();
  await sandbox?.stop();
});
beforeEach(() => {
  sandbox.faults.clear();
});

const run = (...args: string[]) => account.run(...args);

/** Runs a verb that must succeed and returns its output, which is JSON without a terminal. */
async function json<T>(...args: string[]): Promise<T> {
  const { status, stdout, stderr } = await run(...args);
  expect(status, stderr).toBe(0);
  return JSON.parse(stdout) as T;
}

const bensRecord = async (object = 'Asset/881') =>
  (await json<RecordV2[]>('permissions', 'ls', object)).find((one) => one.assignable.email === BEN);

async function objectOf<T>(kind: string, id: number): Promise<T> {
  const all = (await (await fetch(`${sandbox.url}/sandbox/objects/${kind}`)).json()) as Record<string, unknown>;
  const list = (Array.isArray(all) ? all : Object.values(all).find(Array.isArray)) as { id: number }[];
  return list.find((one) => one.id === id) as T;
}

describe('tagferry permissions', () => {
  it('grants, lists, changes and revokes permissions by user and object or by id', async () => {
    await json('permissions', 'grant', BEN, 'asset/881', 'read,permit');
    const record = (await bensRecord())!;
    expect(record.permission_types).toEqual(['can_read', 'can_permit']);
    await json('permissions', 'change', BEN, 'Asset/881', 'can_read', 'can_update', 'can_delete', '--yes');
    expect((await bensRecord())!.permission_types).toEqual(['can_read', 'can_update', 'can_delete']);
    await json('permissions', 'take', String(record.id), 'can_update', '--yes');
    expect((await bensRecord())!.permission_types).toEqual(['can_read', 'can_delete']);
    await json('permissions', 'take', BEN, 'Asset/881', '--yes');
    expect(await bensRecord()).toBeUndefined();
  });

  it('shows a permission by id, in v2 and v1, with or without a wrapper member', async () => {
    await json('permissions', 'grant', BEN, 'Asset/881', 'can_read');
    const record = (await bensRecord())!;
    expect(await json('permissions', 'show', String(record.id))).toEqual(record);
    const [, row] = (await run('permissions', 'show', String(record.id), '--no-json')).stdout.split('\n');
    expect(row).toMatch(new RegExp(`^${record.id} +${BEN} +can_read +Asset/881$`));
    const v1Id = record.id + 1;
    const v1 = await json<object>('permissions', 'show', String(v1Id), '--v1');
    expect(v1).toMatchObject({ id: String(v1Id), permission_type: 'can_read', assignable: { id: 7, type: 'User' } });
    const path = `/v2/permissions/${record.id}`;
    sandbox.faults.add({ method: 'GET', path, status: 200, body: { permission: record }, times: 2 });
    expect(await json('permissions', 'show', String(record.id))).toEqual(record);
    await json('permissions', 'take', String(record.id), 'can_read', '--yes');
    expect(await bensRecord()).toBeUndefined();
    expect((await run('permissions', 'show', 'x')).status).toBe(2);
    expect((await run('permissions', 'show', String(record.id))).stderr).toContain('404');
  });

  it('fails and reports the call and the member if a record has an unexpected form', async () => {
    sandbox.faults.add({ method: 'GET', path: '/v2/permissions/8', status: 200, body: { id: 8 } });
    const { status, stderr } = await run('permissions', 'take', '8', 'can_read', '--yes');
    expect(status).toBe(1);
    expect(stderr).toContain('GET /v2/permissions/8: permission_types must be an array of strings');
  });

  it('identifies a user group by its number', async () => {
    const granted = await json<{ assignable: object }>('permissions', 'grant', 'usergroup/40', 'Asset/881', 'can_read');
    expect(granted.assignable).toEqual({ id: 40, type: 'Usergroup' });
    await json('permissions', 'take', 'usergroup/40', 'Asset/881', '--yes');
  });

  it('does not replace or revoke permissions without confirmation or --yes', async () => {
    await json('permissions', 'grant', BEN, 'Asset/881', 'can_read');
    for (const args of [
      ['permissions', 'change', BEN, 'Asset/881', 'can_update'],
      ['permissions', 'take', BEN, 'Asset/881'],
      ['owners', 'take', BEN, 'Asset/881'],
      ['members', 'change', 'tenant-users/50', BEN],
      ['members', 'take', 'tenant-users/50', BEN],
      ['labels', 'take', 'Asset/881', 'flow'],
    ]) {
      const { status, stderr } = await run(...args);
      expect(`${args.join(' ')}: ${status}`).toBe(`${args.join(' ')}: 2`);
      expect(stderr).toContain('--yes');
    }
    expect((await bensRecord())!.permission_types).toEqual(['can_read']);
    await json('permissions', 'take', BEN, 'Asset/881', '--yes');
  });

  it('prints a table with --no-json', async () => {
    const { stdout } = await run('permissions', 'ls', 'Asset/881', '--no-json');
    const [head, first] = stdout.split('\n');
    expect(head).toMatch(/^id +user or group +permissions +object$/);
    expect(first).toMatch(/^\d+ +gateway@sandbox\.example +can_read, can_update, can_delete, can_permit +Asset\/881$/);
  });

  it('uses one record per type in v1, identified by number, and warns about the sunset date', async () => {
    const granted = await run('permissions', 'grant', 'user/7', 'Asset/881', 'read', 'update', 'permit', '--v1');
    expect(granted.status, granted.stderr).toBe(0);
    expect(granted.stderr).toContain('2027-05-01');
    expect(granted.stderr).toContain('tagferry permissions grant <e-mail> Asset/881 can_read can_update can_permit');
    const list = async () =>
      (
        await json<{ id: string; permission_type: string; assignable: { id: number } }[]>(
          'permissions',
          'ls',
          'Asset/881',
          '--v1',
        )
      ).filter((one) => one.assignable.id === 7);
    const records = await list();
    expect(records.map((one) => one.permission_type).sort()).toEqual(['can_permit', 'can_read', 'can_update']);
    const update = records.find((one) => one.permission_type === 'can_update')!;
    await json('permissions', 'take', update.id, '--v1', '--yes');
    expect((await list()).map((one) => one.permission_type).sort()).toEqual(['can_permit', 'can_read']);
    await json(
      'permissions',
      'take',
      records.find((one) => one.permission_type === 'can_read')!.id,
      '--v1',
      '--all',
      '--yes',
    );
    expect(await list()).toEqual([]);
  });

  it.each([
    [['permissions', 'grant', 'user/7', 'Asset/881', 'can_read'], '--v1'],
    [['permissions', 'grant', BEN, 'Asset/881', 'can_read', '--v1'], 'user/6'],
    [['permissions', 'change', '8', 'can_read', '--v1', '--yes'], 'v1 API cannot change'],
    [['permissions', 'grant', BEN, 'Asset/x', 'can_read'], 'Asset/881'],
    [['permissions', 'grant', BEN, 'Asset/881', 'can_fly'], 'can_read'],
    [['permissions', 'take', 'x', '--yes'], 'permissions ls'],
    [['members', 'grant', 'tenants/50/owners', BEN], 'tenant-admins/50'],
    [['members', 'grant', 'tenant-users/50', 'user/7'], 'e-mail'],
    [['labels', 'change', 'Node/20', 'flow', 'name=x'], 'Asset/881'],
    [['labels', 'change', 'Asset/881', 'flow', 'precision=many'], 'integer'],
    [['labels', 'change', 'Asset/881', 'flow', 'colour=red'], 'preferred_unit'],
    [['labels', 'change', 'Asset/881', 'a b', 'name=x'], 'value key'],
  ])('rejects invalid arguments before any request: %j', async (args, words) => {
    const before = sandbox.requests.list().length;
    const { status, stderr } = await run(...args);
    expect(`${status} ${stderr}`).toMatch(/^2 /);
    expect(stderr).toContain(words);
    expect(sandbox.requests.list()).toHaveLength(before);
  });

  it("exits with 1 and the platform's message if the platform rejects a change", async () => {
    const { status, stderr } = await run('permissions', 'grant', 'nobody@sandbox.example', 'Asset/881', 'can_read');
    expect(status).toBe(1);
    expect(stderr).toContain('404');
    expect(stderr).toContain('nobody@sandbox.example');
  });
});

describe('commands with --dry-run', () => {
  const dry = [
    [
      ['permissions', 'grant', BEN, 'Asset/881', 'read'],
      'POST',
      '/v2/permissions',
      {
        permission_types: ['can_read'],
        assignable: { email: BEN, type: 'User' },
        permitable: { type: 'Asset', id: 881 },
      },
    ],
    [
      ['permissions', 'grant', '7', 'Asset/881', 'read', '--v1'],
      'POST',
      '/v1/permissions',
      { permission_type: ['can_read'], assignable: { id: 7, type: 'User' }, permitable: { type: 'Asset', id: 881 } },
    ],
    [['permissions', 'change', '8', 'can_read'], 'PATCH', '/v2/permissions/8', { permission_types: ['can_read'] }],
    [['permissions', 'take', '8'], 'DELETE', '/v2/permissions/8', undefined],
    [['permissions', 'take', '9', '--v1', '--all'], 'DELETE', '/v1/permissions/9?all=true', undefined],
    [
      ['owners', 'grant', BEN, 'Asset/881'],
      'POST',
      '/v2/owners',
      { assignable: { email: BEN, type: 'User' }, permitable: { type: 'Asset', id: 881 } },
    ],
    [
      ['owners', 'take', 'user/7', 'Asset/881', '--v1'],
      'DELETE',
      '/v1/owners',
      { assignable: { id: 7, type: 'User' }, permitable: { type: 'Asset', id: 881 } },
    ],
    [['members', 'change', 'tenants/50/admins', ANNA], 'PATCH', '/v2/tenants/50/admins', { users: [{ email: ANNA }] }],
    [['members', 'take', 'tenant-admins/50', '6', '--v1'], 'DELETE', '/v1/tenants/50/admins', { admins: [{ id: 6 }] }],
    [
      ['members', 'grant', 'userrole-users/60', ANNA, BEN],
      'POST',
      '/v2/userroles/60/users',
      { users: [{ email: ANNA }, { email: BEN }] },
    ],
    [
      ['labels', 'change', 'Asset/881', 'flow', 'name=Inlet flow', 'precision=2', 'is_visible=true'],
      'PATCH',
      '/v2/assets/881/display_labels',
      { flow: { name: 'Inlet flow', precision: 2, is_visible: true } },
    ],
    [
      ['labels', 'change', 'Instrumentation/4711', 'flow=Inlet', '--v1'],
      'PATCH',
      '/v1/instrumentations/4711/display_labels',
      { flow: 'Inlet' },
    ],
  ] as const;

  it('print every request, send nothing and require no sign-in', async () => {
    const stranger = new Account(sandbox);
    const before = sandbox.requests.list().length;
    for (const [args, method, path, body] of dry) {
      const { status, stdout, stderr } = await stranger.run(...args, '--dry-run');
      expect(status, `${args.join(' ')}: ${stderr}`).toBe(0);
      const request = { method, url: `${sandbox.url}${path}`, ...(body === undefined ? {} : { body }) };
      expect(JSON.parse(stdout)).toEqual({ dry_run: true, requests: [request] });
    }
    expect(sandbox.requests.list()).toHaveLength(before);
    stranger.dispose();
  });

  it('print requests as text on request', async () => {
    const { stdout } = await run('members', 'grant', 'tenant-users/50', BEN, '--dry-run', '--no-json');
    expect(stdout).toMatch(/^POST http:\S+\/v2\/tenants\/50\/users\n\{[\s\S]*\}\nNothing was sent \(--dry-run\)\.\n$/);
  });
});

describe('tagferry owners, members and labels', () => {
  it('add and remove an owner in v2 and v1, and report that owners cannot be listed', async () => {
    await json('owners', 'grant', BEN, 'Asset/881');
    await json('owners', 'take', 'user/7', 'Asset/881', '--v1', '--yes');
    expect((await run('owners', 'take', BEN, 'Asset/881', '--yes')).status).toBe(1);
    const listed = await run('owners', 'ls', 'Asset/881');
    expect(listed.status).toBe(1);
    expect(listed.stderr).toContain('no call to list owners');
  });

  it('add, replace and remove members, by e-mail in v2 and by number in v1', async () => {
    const operators = async () => (await objectOf<{ users: number[] }>('userroles', 60)).users;
    await json('members', 'grant', 'userrole-users/60', BEN);
    expect(await operators()).toEqual([6, 7]);
    await json('members', 'change', 'userrole-users/60', BEN, '--yes');
    expect(await operators()).toEqual([7]);
    const v1 = await run('members', 'grant', 'userroles/60/users', 'user/6', '5', '--v1');
    expect(v1.stderr).toContain('2027-07-01');
    expect(await operators()).toEqual([7, 6, 5]);
    await json('members', 'take', 'userrole-users/60', BEN, 'gateway@sandbox.example', '--yes');
    expect(await operators()).toEqual([6]);
  });

  it('set and hide labels, and report the labels that the platform returns', async () => {
    interface Changed {
      labels: Record<string, object>;
    }
    const change = async (...args: string[]) => (await json<Changed>('labels', ...args, '--yes')).labels;
    await change('change', 'Asset/881', 'flow', 'name=Inlet flow', 'precision=2', 'expected_min=-5.5');
    const file = join(account.folder, 'labels.json');
    writeFileSync(file, JSON.stringify({ flow: { priority: 1 }, temperature: { name: 'T', is_primary: true } }));
    expect(await change('change', 'Asset/881', '--file', file)).toEqual({
      flow: { name: 'Inlet flow', precision: 2, expected_min: -5.5, priority: 1 },
      temperature: { name: 'T', is_primary: true },
    });
    const v1 = await run('labels', 'change', 'Asset/881', 'flow=Flow', '--v1', '--yes');
    expect(v1.stderr).toContain('2027-03-01');
    expect(await change('take', 'Asset/881', 'flow')).toMatchObject({ flow: { name: 'Flow', is_visible: false } });
    const { stdout } = await run('labels', 'take', 'Asset/881', 'flow', '--yes', '--no-json');
    expect(stdout).toMatch(/^key +name +unit/m);
    writeFileSync(file, '{"flow":{"precision":"2"}}');
    const wrong = await run('labels', 'change', 'Asset/881', '--file', file);
    expect(`${wrong.status} ${wrong.stderr}`).toMatch(/^2 .*flow\.precision/);
  });

  it('send no request to list labels, and change no labels before confirmation', async () => {
    const before = sandbox.requests.list().length;
    const listed = await run('labels', 'ls', 'Asset/881');
    expect(listed.status).toBe(1);
    expect(listed.stderr).toContain('no call to list display labels');
    for (const args of [
      ['change', 'Asset/881', 'flow', 'name=x'],
      ['change', 'Asset/881', 'flow=x', '--v1'],
      ['take', 'Asset/881', 'flow'],
    ]) {
      const { status, stderr } = await run('labels', ...args);
      expect(status, args.join(' ')).toBe(2);
      expect(stderr).toMatch(/PATCH http:\S+\/v[12]\/assets\/881\/display_labels\n\{[\s\S]*"flow"/);
    }
    expect(sandbox.requests.list()).toHaveLength(before);
    const { status, screen } = await account.onTerminal('n', 'labels', 'change', 'Asset/881', 'flow', 'name=x');
    expect(status).toBe(1);
    expect(screen).toContain('does not document it');
    expect(sandbox.requests.list()).toHaveLength(before);
  });
});

describe('user commands on a terminal', () => {
  it('print a table, and revoke only after an explicit yes', async () => {
    await json('permissions', 'grant', BEN, 'Asset/881', 'can_read');
    const listed = await account.onTerminal('', 'permissions', 'ls', 'Asset/881');
    expect(listed.status).toBe(0);
    expect(listed.screen).toMatch(/^id +user or group +permissions +object/m);
    for (const answer of ['n', '', 'yess']) {
      const { status, screen } = await account.onTerminal(answer, 'permissions', 'take', BEN, 'Asset/881');
      expect(screen).toContain('Revoke can_read on Asset/881 from ben@sandbox.example? [y/N]');
      expect(screen).toContain('Nothing was changed.');
      expect(status).toBe(1);
    }
    expect(await bensRecord()).toBeDefined();
    const { status, screen } = await account.onTerminal('y', 'permissions', 'take', BEN, 'Asset/881');
    expect(`${status} ${screen}`).toMatch(/^0 [\s\S]*Revoked from ben@sandbox\.example\. No permissions remain\./);
    expect(await bensRecord()).toBeUndefined();
  });
});

describe('permissions explain', () => {
  interface Explained {
    sees: string;
    direct: { id: number; usergroup?: number }[];
    inherited: { id: number; on: { type: string; id: number }; way: string[] }[];
    unknowns: string[];
  }
  const explain = (...args: string[]) => json<Explained>('permissions', 'explain', ...args);
  const places = (reasons: Explained['inherited']) => reasons.map(({ on }) => `${on.type}/${on.id}`);

  it('reports a direct permission', async () => {
    await json('permissions', 'grant', BEN, 'Asset/882', 'can_read');
    const explained = await explain(BEN, 'Asset/882');
    expect(explained).toMatchObject({ sees: 'yes', inherited: [] });
    expect(explained.direct).toHaveLength(1);
    await json('permissions', 'take', BEN, 'Asset/882', '--yes');
    expect((await explain(BEN, 'Asset/882')).sees).toBe('unknown');
  });

  it('reports both paths to an asset below two nodes, if the relation is specified', async () => {
    const unrelated = await explain(ANNA, 'Asset/882');
    expect(unrelated.sees).toBe('unknown');
    expect(unrelated.unknowns.join()).toMatch(/relations of Asset\/882.*--node/);
    const explained = await explain(ANNA, 'Asset/882', '--node', '20', '--node', '21');
    expect(explained.sees).toBe('yes');
    expect(places(explained.inherited)).toEqual(['Node/20', 'Node/21']);
    expect(explained.inherited[0]!.way).toEqual(['Asset/882 is under Node/20']);
  });

  it('requests only the list of permissions', async () => {
    const paths = new Set<string>();
    const forget = sandbox.requests.onRequest((_entry, target) => paths.add(target.split('?')[0]!));
    await explain(ANNA, 'Asset/911', '--parent', '910');
    forget();
    expect([...paths].filter((path) => !path.startsWith('/oauth/'))).toEqual(['/v2/permissions']);
  });

  it("reads an asset's instrumentation from tags.yaml", async () => {
    sandbox.grantPermission({ type: 'Instrumentation', id: 4711 }, { user: ANNA, types: ['can_read', 'can_permit'] });
    await json('permissions', 'grant', BEN, 'Instrumentation/4711', 'can_read');
    const config = account.environment.TAGFERRY_CONFIG!;
    mkdirSync(config);
    writeFileSync(
      join(config, 'tags.yaml'),
      'tags:\n  FT-101: { asset: 881, instrumentation: 4711, values: { flow: { unit: 12 } } }\n',
    );
    const explained = await explain(BEN, 'Asset/881');
    expect(explained.sees).toBe('yes');
    expect(explained.inherited[0]!.way).toEqual(['Asset/881 is assigned to Instrumentation/4711']);
  });

  it('requests permissions for one object at a time', async () => {
    const targets: string[] = [];
    const forget = sandbox.requests.onRequest((_entry, target) => targets.push(target));
    await explain(ANNA, 'Asset/882', '--node', '20');
    forget();
    const lists = targets
      .map((target) => new URL(target, sandbox.url))
      .filter(({ pathname }) => pathname === '/v2/permissions')
      .map(({ searchParams }) => searchParams);
    expect(lists.map((query) => `${query.get('permitable_type')}/${query.get('permitable_id')}`)).toEqual([
      'Asset/882',
      'Node/20',
    ]);
  });

  it('reports that a group permission applies only to group members, whom the API does not list', async () => {
    await json('permissions', 'grant', 'usergroup/40', 'Asset/882', 'can_read');
    const explained = await explain(BEN, 'Asset/882');
    expect(explained.sees).toBe('if a member');
    expect(explained.direct).toMatchObject([{ usergroup: 40 }]);
    expect(explained.unknowns.join()).toContain('usergroup/40');
  });
});
