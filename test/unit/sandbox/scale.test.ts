import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Sandbox, type SandboxSeed } from '../../../src/sandbox/sandbox.ts';
import { Visitor } from './visitor.ts';

const ASSETS = 2_000;
const WEBHOOKS = 200;

/** One gateway that can post to every asset, and 200 subscriptions whose technical users can read ten assets each. */
function largeSite(): SandboxSeed {
  const assets = Array.from({ length: ASSETS }, (_, i) => ({ id: 1_000 + i, serial_number: `S${i}` }));
  const readers = Array.from({ length: WEBHOOKS }, (_, i) => 10 + i);
  return {
    users: [1, ...readers].map((id) => ({ id, email: `${id}@site.example`, password: 'p', technical: true })),
    client_applications: [1, ...readers].map((id) => ({
      id: 1_000 + id,
      name: `application ${id}`,
      technical_user: id,
    })),
    assets,
    instrumentations: assets.map(({ id }, i) => ({ id: 100_000 + i, tag: `T-${i}`, assets: [id] })),
    permissions: assets.flatMap(({ id }, i) => [
      { user: 1, on: { Asset: id }, types: ['can_update' as const] },
      { user: 10 + (i % WEBHOOKS), on: { Instrumentation: 100_000 + i }, types: ['can_read' as const] },
    ]),
  };
}

let sandbox: Sandbox;
let visitor: Visitor;
const sent: number[] = [];

beforeEach(async () => {
  sent.length = 0;
  sandbox = new Sandbox({
    seed: largeSite(),
    sendWebhook: async ({ url }) => {
      sent.push(Number(new URL(url).pathname.slice(1)));
      return 204;
    },
  });
  await sandbox.start();
  for (let id = 10; id < 10 + WEBHOOKS; id++) {
    const url = `https://receiver.example/${id}`;
    const event_types = ['asset_values_created'];
    sandbox.webhookRegistry.add({ application: 1_000 + id, url, event_types, disabled: false, secret: 's' });
    sandbox.site.put('api_keys', {
      id: 900_000 + id * 8,
      client_application: 1_000 + id,
      client_id: `k${id}`,
      client_secret: 's',
    });
  }
  visitor = new Visitor(sandbox);
  visitor.token = sandbox.tokens.issue(1, 1_001, 'password').access_token;
});
afterEach(() => sandbox.stop());

const post = (asset: number) => visitor.post(asset, 'flow', [{ timestamp: '2026-11-22T00:00:00Z', value: 1 }]);

describe('site with 2,000 assets and 200 webhooks', () => {
  it('finds the receivers of posted values without searching the entire site', async () => {
    expect((await post(1_000)).status).toBe(204);
    const all = vi.spyOn(sandbox.site, 'all');
    for (let i = 0; i < 20; i++) expect((await post(1_000 + i * 7)).status).toBe(204);
    const lists = all.mock.calls.map(([kind]) => kind);
    for (const kind of ['assets', 'instrumentations', 'nodes', 'permissions', 'users'] as const) {
      expect(lists).not.toContain(kind);
    }
    await vi.waitFor(() => expect(sent).toHaveLength(21));
    const readers = [0, ...Array.from({ length: 20 }, (_, i) => i * 7)].map((asset) => 10 + (asset % WEBHOOKS));
    expect([...sent].sort()).toEqual([...readers].sort());
  });

  it('reflects changed associations, permissions and assets immediately', async () => {
    const readers = (asset: number) => [...sandbox.permissions.usersWho('can_read', { type: 'Asset', id: asset })];
    expect(readers(1_000)).toEqual([10]);
    sandbox.changes.associate(1_000, 100_001);
    expect(readers(1_000).sort()).toEqual([10, 11]);
    sandbox.changes.dissociate(1_000, 100_000);
    expect(readers(1_000)).toEqual([11]);
    sandbox.revokePermission({ type: 'Asset', id: 1_000 }, { user: 11 });
    expect(readers(1_000)).toEqual([]);
    sandbox.grantPermission({ type: 'Asset', id: 1_000 }, { user: 12, types: ['can_read'] });
    expect(readers(1_000)).toEqual([12]);
    sandbox.changes.destroy('assets', 1_000);
    expect(readers(1_000)).toEqual([]);
    expect((await post(1_000)).status).toBe(404);
  });
});
