import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { asset, Platform, WEBHOOKS } from './platform.ts';

let platform: Platform;

beforeEach(async () => {
  platform = await Platform.start();
});
afterEach(() => platform.stop());

const changes = () => platform.sandbox.changes;

const data = [{ timestamp: '2026-11-21T00:00:00.000Z', value: 1 }];
const postKeys = (...keys: string[]) =>
  platform.gateway.call('POST', '/v1/assets/881/values', { values: keys.map((key) => ({ key, data })) });
const newEvent = (id: number, type: number) => changes().createEvent({ id, name: 'Check', type, assets: [881] });

/** All attributes of the table with new values. */
const ASSET = {
  serial_number: 'SN-NEW',
  description: 'new',
  production_date: '2026-01-01',
  last_seen_at: '2026-11-21T00:00:00Z',
  product: 90,
  parent: 910,
  tenant: 50,
  status: 71,
};
const EDGE_DEVICE = {
  serial_number: 'ED-NEW',
  description: 'new',
  last_seen_at: '2026-11-21T00:00:00Z',
  tenant: 50,
  status: 86,
  type: 'router',
  software_version: '2.0',
};

describe('specification', () => {
  it.each(['asset_values_created', 'instrumentation_values_created'])(
    '6.3 %s reports only the keys in its list',
    async (type) => {
      const hook = await platform.webhook([type], { [type]: ['flow', 'level'] });
      await postKeys('temp');
      await postKeys('temp', 'flow');
      const told = await hook.told();
      expect(told.map(({ content }) => content.values.map((one: { key: string }) => one.key))).toEqual([['flow']]);
    },
  );

  it.each(['asset_values_created', 'instrumentation_values_created'])(
    '6.3 %s without a list reports all keys',
    async (type) => {
      const hook = await platform.webhook([type]);
      await postKeys('temp', 'flow');
      expect((await hook.told())[0].content.values).toHaveLength(2);
    },
  );
});

describe.each([
  ['asset_updated', 'updateAsset', 'asset', 901, ASSET],
  ['edge_device_updated', 'updateEdgeDevice', 'edge_device', 30, EDGE_DEVICE],
] as const)('specification 6.3, filters for %s', (type, change, member, id, attributes) => {
  const update = (changes: object) => platform.sandbox.changes[change](id, changes);

  beforeEach(async () => {
    const kind = `${member}s`;
    const { id: same, serial_number } = await platform.object(kind, id);
    // Only the id is known, so that every attribute is a change.
    await platform.destroy(kind, id);
    await platform.put(kind, id, { id: same, serial_number });
    await platform.grant({ type: member === 'asset' ? 'Asset' : 'EDM::EdgeDevice', id });
  });

  it.each(Object.entries(attributes))(
    `6.3 ${type} reports a changed %s to webhooks that list it`,
    async (name, value) => {
      const hook = await platform.webhook([type], { [type]: [name] });
      const others = Object.fromEntries(Object.entries(attributes).filter(([other]) => other !== name));
      await update(others);
      expect(await hook.told()).toEqual([]);
      await update({ [name]: value });
      const [event] = await hook.told();
      expect(Object.keys(event.content[member]).sort()).toEqual(['href', 'id', name].sort());
    },
  );

  it(`6.3 ${type} without a list reports every attribute`, async () => {
    const hook = await platform.webhook([type]);
    await update(attributes);
    const [event] = await hook.told();
    expect(Object.keys(event.content[member]).sort()).toEqual(['href', 'id', ...Object.keys(attributes)].sort());
  });
});

describe('specification', () => {
  const range = { range: { value: 1 } };
  const both = { range: { value: 2 }, limit: { value: 3 } };
  const CASES = [
    [
      'asset_specifications_updated',
      'asset',
      (specifications: Record<string, { value: number }>) => changes().setSpecifications('assets', 881, specifications),
    ],
    [
      'event_specifications_updated',
      'event',
      (specifications: Record<string, { value: number }>) => changes().setSpecifications('events', 39, specifications),
    ],
  ] as const;

  it.each(CASES)('6.3 %s reports only the keys in its list', async (type, member, set) => {
    const hook = await platform.webhook([type], { [type]: ['limit'] });
    await set(range);
    await set(both);
    const told = await hook.told();
    expect(told.map(({ content }) => Object.keys(content[member].specifications))).toEqual([['limit']]);
  });

  it.each(CASES)('6.3 %s without a list reports all keys', async (type, member, set) => {
    const hook = await platform.webhook([type]);
    await set(both);
    expect(Object.keys((await hook.told())[0].content[member].specifications)).toEqual(['range', 'limit']);
  });
});

describe('specification', () => {
  const [MAINTENANCE, CALIBRATION] = [76, 77];

  it('6.3 event_created reports only the event types in its list', async () => {
    const hook = await platform.webhook(['event_created'], { event_created: ['calibration'] });
    await newEvent(500, MAINTENANCE);
    await newEvent(501, CALIBRATION);
    expect((await hook.told()).map(({ content }) => content.event.id)).toEqual([501]);
  });

  it('6.3 event_created without a list reports all event types', async () => {
    const hook = await platform.webhook(['event_created']);
    await newEvent(500, MAINTENANCE);
    await newEvent(501, CALIBRATION);
    expect(await hook.told()).toHaveLength(2);
  });

  it.each([
    ['its list', { event_document_created: ['calibration'] }, [501]],
    ['all types if there is no list', {}, [500, 501]],
  ])('6.3 event_document_created reports the event types in %s', async (_, properties, wanted) => {
    await newEvent(500, MAINTENANCE);
    await newEvent(501, CALIBRATION);
    for (const id of [500, 501]) await platform.grant({ type: 'Event', id });
    const hook = await platform.webhook(['event_document_created'], properties);
    for (const event of [500, 501]) changes().addDocument(event, 35);
    expect((await hook.told()).map(({ content }) => content.event.id)).toEqual(wanted);
  });
});

describe('specification', () => {
  it('6.3 the webhook body contains url, event_types, and properties per event type', async () => {
    const body = {
      url: 'https://client.example/hook',
      event_types: ['asset_values_created', 'asset_updated'],
      properties: { asset_values_created: ['flow'], asset_updated: ['status', 'tenant'] },
    };
    const { status, body: created } = await platform.gateway.call('POST', WEBHOOKS, body);
    expect([status, created]).toEqual([201, expect.objectContaining(body)]);
  });

  it('6.3 a webhook receives only the types in its event_types', async () => {
    const hook = await platform.webhook(['asset_values_created']);
    await platform.value(881, 'flow', 1);
    await platform.take(asset(881));
    expect(await hook.types()).toEqual(['asset_values_created']);
  });

  it('6.3 a list for one type does not filter another type', async () => {
    const types = ['asset_values_created', 'instrumentation_values_created'];
    const hook = await platform.webhook(types, { asset_values_created: ['level'] });
    await postKeys('flow');
    expect(await hook.types()).toEqual(['instrumentation_values_created']);
  });

  it('6.3 an empty list is treated as no list', async () => {
    const hook = await platform.webhook(['asset_updated'], { asset_updated: [] });
    changes().updateAsset(881, { description: 'new' });
    expect(await hook.told()).toHaveLength(1);
  });

  it.each([
    ['asset_value_created', () => platform.value(881, 'flow', 1)],
    ['asset_disappeared', () => platform.take(asset(881))],
    ['asset_software_added', () => changes().addSoftware(881, 95)],
    ['product_status_changed', () => changes().setProductStatus(90, 81)],
  ])('6.3 %s has no filter, so a list for this type has no effect', async (type, cause) => {
    const hook = await platform.webhook([type], { [type]: ['nothing-of-this-name'] });
    await cause();
    expect(await hook.types()).toEqual([type]);
  });
});
