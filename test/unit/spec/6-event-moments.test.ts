import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { asset, BEN, HOUR_MS, instrumentation, node, Platform } from './platform.ts';

let platform: Platform;

beforeEach(async () => {
  platform = await Platform.start();
});
afterEach(() => platform.stop());

const changes = () => platform.sandbox.changes;
const at = (second: number) => `2026-11-21T00:00:${String(second).padStart(2, '0')}.000Z`;
const points = (...values: number[]) => values.map((value, index) => ({ timestamp: at(index), value }));
const post = (values: object[], id = 881) => platform.gateway.call('POST', `/v1/assets/${id}/values`, { values });

describe('specification', () => {
  it('6.3 asset_value_created is sent in one call per value, with the value as a string', async () => {
    const hook = await platform.webhook(['asset_value_created']);
    await post([
      { key: 'flow', data: points(1.5, 2) },
      { key: 'temp', data: points(-3e-7) },
    ]);
    const told = (await hook.told()).map(({ content }) => [content.value.key, content.value.value]);
    expect(told).toEqual([
      ['flow', '1.5'],
      ['flow', '2'],
      ['temp', '-3e-7'],
    ]);
  });

  it('6.3 asset_values_created is sent in one call per post, with values grouped by key', async () => {
    const hook = await platform.webhook(['asset_values_created']);
    await post([
      { key: 'flow', data: points(1, 2) },
      { key: 'temp', data: points(3) },
      { key: 'Flow', data: [{ timestamp: at(9), value: 4 }] },
    ]);
    const told = await hook.told();
    expect(told).toHaveLength(1);
    const groups = told[0].content.values.map((one: { key: string; data: unknown[] }) => [one.key, one.data.length]);
    expect(groups).toEqual([
      ['flow', 3],
      ['temp', 1],
    ]);
  });

  it('6.3 instrumentation_values_created is sent for each of an asset’s instrumentations', async () => {
    const hook = await platform.webhook(['instrumentation_values_created']);
    await post([{ key: 'flow', data: points(1) }], 901);
    expect(await hook.told()).toEqual([]);
    for (const id of [4711, 4712]) changes().associate(901, id);
    await post([{ key: 'flow', data: points(2) }], 901);
    expect((await hook.told()).map(({ content }) => content.instrumentation.id)).toEqual([4711, 4712]);
  });

  it('6.3 a rejected post sends no event', async () => {
    const hook = await platform.webhook(['asset_value_created', 'asset_values_created']);
    expect((await post([{ key: 'a b', data: points(1) }])).status).toBe(400);
    expect(await hook.told()).toEqual([]);
  });
});

describe('specification', () => {
  it('6.3 asset_updated and edge_device_updated report changed attributes, and are not sent without a change', async () => {
    const hook = await platform.webhook(['asset_updated', 'edge_device_updated']);
    changes().updateAsset(881, { status: 70, description: 'new' });
    changes().updateAsset(881, { status: 70, description: 'new' });
    changes().updateEdgeDevice(30, { status: 85, type: 'router' });
    changes().updateEdgeDevice(30, { status: 85 });
    const told = (await hook.told()).map(({ content }) => content.asset ?? content.edge_device);
    expect(told.map((one) => Object.keys(one).sort())).toEqual([
      ['description', 'href', 'id'],
      ['href', 'id', 'type'],
    ]);
  });

  it('6.3 edge_device_updated is sent when the status automatically changes to offline', async () => {
    await platform.behind('POST', 'objects/edge_devices/30/seen');
    const hook = await platform.webhook(['edge_device_updated'], { edge_device_updated: ['status'] });
    await platform.advance(48 * HOUR_MS);
    const { objects } = (await platform.behind('GET', 'objects/edge_device_statuses')).body;
    const codes = (await hook.told()).map(({ content }) => {
      return objects.find((status: { id: number }) => status.id === content.edge_device.status.id)?.code;
    });
    expect(codes).toEqual(['offline']);
  });

  it('6.3 edge_device_updated is sent to technical users with read access to the device', async () => {
    const hook = await platform.webhook(['edge_device_updated']);
    await platform.take({ type: 'EDM::EdgeDevice', id: 30 }, { types: ['can_read'] });
    changes().updateEdgeDevice(30, { type: 'router' });
    expect(await hook.told()).toEqual([]);
  });

  it('6.3 existing software, associations and add-on links are not reported again', async () => {
    await platform.grant(node(20));
    const hook = await platform.webhook([
      'asset_software_added',
      'asset_instrumentation_association_created',
      'add_on_node_association_created',
    ]);
    for (let round = 0; round < 2; round++) {
      changes().addSoftware(881, 95);
      changes().associate(901, 4711);
      changes().setAddOnLink(47, 20, true);
    }
    expect(await hook.types()).toEqual([
      'asset_software_added',
      'asset_instrumentation_association_created',
      'add_on_node_association_created',
    ]);
  });
});

describe('specification', () => {
  const ACCESS = ['asset', 'instrumentation', 'node'].flatMap((one) => [`${one}_appeared`, `${one}_disappeared`]);

  it.each([
    ['asset', asset(920)],
    ['node', node(20)],
  ])('6.3 %s_appeared is sent only for read permission', async (kind, on) => {
    const hook = await platform.webhook(ACCESS);
    await platform.grant(on, { types: ['can_update', 'can_delete', 'can_permit'] });
    expect(await hook.told()).toEqual([]);
    await platform.grant(on, { types: ['can_read'] });
    expect(await hook.types()).toContain(`${kind}_appeared`);
  });

  it('6.3 appearance events are sent only for a technical user: a human user’s permissions are not reported', async () => {
    const hook = await platform.webhook(ACCESS);
    await platform.grant(asset(920), { user: BEN.id });
    await platform.take(asset(920), { user: BEN.id });
    expect(await hook.told()).toEqual([]);
  });

  it('6.3 a lost read permission is reported, but other lost permissions are not', async () => {
    const hook = await platform.webhook(ACCESS);
    await platform.take(instrumentation(4711), { types: ['can_update'] });
    expect(await hook.told()).toEqual([]);
    await platform.take(instrumentation(4711), { types: ['can_read'] });
    expect(await hook.types()).toEqual(['instrumentation_disappeared']);
  });

  it('6.3 asset_disappeared is also sent for all child assets', async () => {
    const hook = await platform.webhook(['asset_disappeared']);
    await platform.take(asset(910));
    expect((await hook.told()).map(({ content }) => content.asset.id).sort()).toEqual([910, 911, 912, 913]);
  });

  it('6.3 assets below a node appear through inheritance', async () => {
    await platform.take(asset(881), { types: ['can_read'] });
    await platform.put('nodes', 8000, { name: 'New', tag: 'NEW', assets: [920] });
    const hook = await platform.webhook(ACCESS);
    await platform.grant(node(8000), { types: ['can_read'] });
    expect((await hook.types()).sort()).toEqual(['asset_appeared', 'node_appeared']);
  });

  it('6.3 an asset that stays visible through another path is not reported as disappeared', async () => {
    const hook = await platform.webhook(ACCESS);
    await platform.take(asset(881), { direct: true });
    expect(await hook.told()).toEqual([]);
  });

  it.each([
    ['with the reporting role', 61, ['asset_disappeared']],
    ['with another role', 60, []],
  ])('6.3 asset deletion is reported as asset_disappeared to a technical user %s', async (_, role, types) => {
    for (const id of [60, 61]) await platform.put('userroles', id, { users: id === role ? [5] : [] });
    const hook = await platform.webhook(ACCESS);
    await platform.destroy('assets', 882);
    expect(await hook.types()).toEqual(types);
  });
});

describe('specification', () => {
  it.each([
    ['asset_specifications_updated', 'assets', 881, 'asset'],
    ['event_specifications_updated', 'events', 39, 'event'],
  ] as const)(
    '6.3 %s is sent once per request and webhook, with only the changed keys',
    async (type, kind, id, member) => {
      const [one, two] = [await platform.webhook([type]), await platform.webhook([type])];
      changes().setSpecifications(kind, id, { a: { value: 1 }, b: { value: 2 } });
      changes().setSpecifications(kind, id, { a: { value: 1 }, b: { value: 3 }, c: { value: 4 } });
      changes().setSpecifications(kind, id, { a: { value: 1 } });
      for (const hook of [one, two]) {
        const told = (await hook.told()).map(({ content }) => Object.keys(content[member].specifications));
        expect(told).toEqual([
          ['a', 'b'],
          ['b', 'c'],
        ]);
      }
    },
  );

  it('6.3 event_created is sent once per request and webhook, no matter how many assets it names', async () => {
    const hooks = [await platform.webhook(['event_created']), await platform.webhook(['event_created'])];
    changes().createEvent({ name: 'Check', type: 76, assets: [881, 882, 883], instrumentations: [4711] });
    for (const hook of hooks) expect(await hook.told()).toHaveLength(1);
  });

  it.each([
    ['an asset among others', { assets: [920, 881] }, 1],
    ['an instrumentation', { assets: [920], instrumentations: [4711] }, 1],
    ['no named object', { assets: [920] }, 0],
    ['no object named', {}, 0],
  ])(
    '6.3 event_created requires read permission on at least one named asset or instrumentation: %s',
    async (_, body, count) => {
      const hook = await platform.webhook(['event_created']);
      changes().createEvent({ name: 'Check', type: 76, ...body });
      expect(await hook.told()).toHaveLength(count);
    },
  );

  it.each([
    ['event_document_created', (id: number) => changes().addDocument(id, 35)],
    ['event_specifications_updated', (id: number) => changes().setSpecifications('events', id, { a: { value: 1 } })],
  ])(
    '6.1 %s requires read permission on the event, and permission on one of its assets is not sufficient',
    async (type, change) => {
      changes().createEvent({ id: 500, name: 'Check', type: 76, assets: [881], instrumentations: [4711] });
      const hook = await platform.webhook([type]);
      change(500);
      expect(await hook.told()).toEqual([]);
      change(39);
      expect((await hook.told()).map(({ content }) => content.event.id)).toEqual([39]);
    },
  );

  it('6.3 event_document_created is sent once when a document is assigned', async () => {
    const hook = await platform.webhook(['event_document_created']);
    for (let round = 0; round < 2; round++) changes().addDocument(39, 35);
    expect(await hook.told()).toHaveLength(1);
  });
});

describe('specification', () => {
  it('6.3 asset_health_condition_updated is sent when health conditions change, and only then', async () => {
    const hook = await platform.webhook(['asset_health_condition_updated']);
    const conditions = [{ id: 1, diagnosis_code: 'F825', asset_status: 71 }];
    for (let round = 0; round < 2; round++) changes().setHealthConditions(881, 71, conditions);
    changes().setHealthConditions(881, 70, []);
    const told = (await hook.told()).map(({ content }) => [
      content.previous_health_conditions.length,
      content.health_conditions.length,
    ]);
    expect(told).toEqual([
      [0, 1],
      [1, 0],
    ]);
  });

  it('6.3 product_status_changed requires an asset that is linked to the product', async () => {
    const hook = await platform.webhook(['product_status_changed']);
    changes().updateAsset(881, { product: null });
    changes().setProductStatus(90, 81);
    expect(await hook.told()).toEqual([]);
    changes().updateAsset(882, { product: 90 });
    changes().setProductStatus(90, 80);
    expect(await hook.told()).toHaveLength(1);
  });

  const threshold = (body: object) => platform.behind('POST', 'thresholds', body);

  it.each([
    ['high', 20, [19.9, 20]],
    ['low', 5, [5.1, 5]],
  ])(
    '6.3 threshold_reached is sent when a %s threshold of %i is reached: %j',
    async (type, value, [short, reached]) => {
      await threshold({ instrumentation: 4711, type, value, key: 'flow' });
      const hook = await platform.webhook(['threshold_reached']);
      await platform.value(881, 'flow', short!);
      expect(await hook.told()).toEqual([]);
      await platform.value(881, 'flow', reached!);
      expect((await hook.told()).map(({ content }) => [content.threshold.type, content.data.value])).toEqual([
        [type, reached],
      ]);
    },
  );

  it.each([
    ['System', 36],
    ['Recipe', 37],
    ['Instrumentation', 4711],
  ])('6.3 threshold_reached is also sent for a %s threshold', async (thresholdable_type, thresholdable_id) => {
    await threshold({ thresholdable_type, thresholdable_id, assets: [881], type: 'high', value: 20, key: 'flow' });
    const hook = await platform.webhook(['threshold_reached']);
    await platform.value(881, 'flow', 21);
    expect((await hook.told()).map(({ content }) => content.threshold.thresholdable_type)).toEqual([
      thresholdable_type,
    ]);
  });

  it('6.3 threshold_reached is sent to users who can read the asset', async () => {
    await threshold({ instrumentation: 4711, type: 'high', value: 20 });
    const hook = await platform.webhook(['threshold_reached']);
    await platform.take(asset(881), { types: ['can_read'] });
    const anna = await platform.person({ email: 'anna@sandbox.example', password: 'anna-password' });
    expect((await anna.post(881, 'flow', points(25))).status).toBe(204);
    expect(await hook.told()).toEqual([]);
  });

  it('6.3 value_in_threshold_unit is null if the value cannot be converted to the threshold’s unit', async () => {
    await threshold({ instrumentation: 4711, type: 'high', value: 20, unit: 'bar' });
    const hook = await platform.webhook(['threshold_reached']);
    await platform.value(881, 'flow', 25);
    expect((await hook.told())[0].content.threshold.value_in_threshold_unit).toBeNull();
  });
});
