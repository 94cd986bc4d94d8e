import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { Visitor } from './visitor.ts';

let sandbox: Sandbox;
let visitor: Visitor;

beforeEach(async () => {
  sandbox = new Sandbox({ adminPort: 0 });
  await sandbox.start();
  visitor = new Visitor(sandbox);
});
afterEach(() => sandbox.stop());

const post = (path: string) => ['POST', path] as const;

describe('sandbox admin API with a misspelled member', () => {
  it.each<readonly [method: string, path: string]>([
    ...[
      'clock',
      'permissions',
      'thresholds',
      'tokens/expire',
      'quota/reset',
      'deliveries/resend',
      'values/compare',
    ].map(post),
    ...['offline', 'faults', 'poison', 'webhook-faults'].map(post),
    ['DELETE', 'permissions'],
    ['PATCH', 'limits'],
  ])('rejects it at %s /sandbox/%s', async (method, path) => {
    const reply = await visitor.call(method, `/sandbox/${path}`, { mispelt: 1 });
    expect([reply.status, reply.body.errors[0].attribute]).toEqual([400, 'mispelt']);
  });

  it('rejects the record and suggests the closest name', async () => {
    const reply = await visitor.call('PATCH', '/sandbox/objects/client_applications/3', { call_quotta: 5 });
    expect(reply.status).toBe(400);
    expect(reply.body.errors[0]).toMatchObject({
      attribute: 'call_quotta',
      message: expect.stringContaining('"call_quota"'),
    });
  });
});

describe('sandbox record', () => {
  it('is replaced by PUT', async () => {
    await visitor.call('PUT', '/sandbox/objects/assets/881', { serial_number: 'NEW', description: 'x' });
    const reply = await visitor.call('PUT', '/sandbox/objects/assets/881', { serial_number: 'NEWER' });
    expect(reply.status).toBe(200);
    expect(sandbox.site.get('assets', 881)).toEqual({ id: 881, serial_number: 'NEWER' });
  });

  it('is changed by PATCH, which removes members set to null', async () => {
    await visitor.call('PATCH', '/sandbox/objects/assets/881', { description: 'x' });
    const { serial_number, description } = sandbox.site.get('assets', 881)!;
    expect([serial_number, description]).toEqual(['SN-000881', 'x']);
    await visitor.call('PATCH', '/sandbox/objects/assets/881', { description: null });
    expect(sandbox.site.get('assets', 881)).not.toHaveProperty('description');
    expect((await visitor.call('PATCH', '/sandbox/objects/assets/1', {})).status).toBe(404);
  });
});

describe('threshold of a System or Recipe', () => {
  it.each([
    ['systems', 'System'],
    ['recipes', 'Recipe'],
  ])('of %s is created with the specified members, and can be reached', async (kind, thresholdable_type) => {
    await visitor.call('PUT', `/sandbox/objects/${kind}/36`, { name: 'one' });
    const limit = { thresholdable_type, thresholdable_id: 36, assets: [881], type: 'high', value: 20 };
    expect((await visitor.call('POST', '/sandbox/thresholds', limit)).status).toBe(201);
    const reached = sandbox.thresholds.reached(881, [
      { key: 'flow', group: undefined, unit: undefined, points: [{ timestampMs: 1, value: 25 }] } as never,
    ]);
    expect(reached[0]!.content.threshold.thresholdable_type).toBe(thresholdable_type);
  });
});
