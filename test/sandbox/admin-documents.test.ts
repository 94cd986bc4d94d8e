import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ADMIN_OPERATIONS } from '../../src/sandbox/admin/admin-operations.ts';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { Visitor } from './visitor.ts';

let sandbox: Sandbox;
let visitor: Visitor;

beforeEach(async () => {
  sandbox = new Sandbox({ adminPort: 0 });
  await sandbox.start();
  visitor = new Visitor(sandbox);
});
afterEach(() => sandbox.stop());

const CHANGES = ['update-asset', 'create-event', 'health-conditions', 'associate'];

describe('a misspelled member', () => {
  const withMembers = ADMIN_OPERATIONS.filter(({ body }) => Array.isArray(body));
  it.each(withMembers.map((one) => [one.method, one.path]))('is refused by %s /sandbox/%s', async (method, path) => {
    const reply = await visitor.call(method, `/sandbox/${path.replace('{id}', '1')}`, { mispelt: 1 });
    expect([reply.status, reply.body.errors[0].attribute]).toEqual([400, 'mispelt']);
  });

  it.each(CHANGES)('is refused by the change %s', async (name) => {
    const reply = await visitor.call('POST', `/sandbox/changes/${name}`, { mispelt: 1 });
    expect([reply.status, reply.body.errors[0].attribute]).toEqual([400, 'mispelt']);
  });

  it('of a record is refused with the one that was meant: call_quotta would mean no quota', async () => {
    const reply = await visitor.call('PATCH', '/sandbox/objects/client_applications/3', { call_quotta: 5 });
    expect(reply.status).toBe(400);
    expect(reply.body.errors[0]).toMatchObject({
      attribute: 'call_quotta',
      message: expect.stringContaining('"call_quota"'),
    });
  });

  it('of a health condition names its member', async () => {
    const conditions = [{ diagnosis_code: 'F1', asset_status: 4711 }];
    const body = { asset: 881, status: 71, conditions };
    const reply = await visitor.call('POST', '/sandbox/changes/health-conditions', body);
    expect([reply.status, reply.body.errors[0].attribute]).toEqual([400, 'conditions[0].asset_status']);
  });
});

describe('a record', () => {
  it('is replaced whole by PUT', async () => {
    await visitor.call('PUT', '/sandbox/objects/assets/881', { serial_number: 'NEW', description: 'x' });
    const reply = await visitor.call('PUT', '/sandbox/objects/assets/881', { serial_number: 'NEWER' });
    expect(reply.status).toBe(200);
    expect(sandbox.site.get('assets', 881)).toEqual({ id: 881, serial_number: 'NEWER' });
  });

  it('is changed member by member by PATCH, where null takes one away', async () => {
    await visitor.call('PATCH', '/sandbox/objects/assets/881', { description: 'x' });
    const { serial_number, description } = sandbox.site.get('assets', 881)!;
    expect([serial_number, description]).toEqual(['SN-000881', 'x']);
    await visitor.call('PATCH', '/sandbox/objects/assets/881', { description: null });
    expect(sandbox.site.get('assets', 881)).not.toHaveProperty('description');
    expect((await visitor.call('PATCH', '/sandbox/objects/assets/1', {})).status).toBe(404);
  });
});

describe('/', () => {
  it('says what this is and where things are', async () => {
    const { body } = await visitor.get('/');
    expect(body).toMatchObject({ base_url: sandbox.url, openapi: `${sandbox.url}/openapi.json` });
    for (const address of [body.openapi, body.behind_the_scenes, body.sign_up, body.subscribe]) {
      expect((await fetch(address)).status, address).toBe(200);
    }
  });
});

describe('a threshold of a System or Recipe', () => {
  it.each([
    ['systems', 'System'],
    ['recipes', 'Recipe'],
  ])('of %s is set by what the document names, and reached', async (kind, thresholdable_type) => {
    await visitor.call('PUT', `/sandbox/objects/${kind}/36`, { name: 'one' });
    const limit = { thresholdable_type, thresholdable_id: 36, assets: [881], type: 'high', value: 20 };
    expect((await visitor.call('POST', '/sandbox/thresholds', limit)).status).toBe(201);
    const reached = sandbox.thresholds.reached(881, [
      { key: 'flow', group: undefined, unit: undefined, points: [{ timestampMs: 1, value: 25 }] } as never,
    ]);
    expect(reached[0]!.content.threshold.thresholdable_type).toBe(thresholdable_type);
  });
});
