import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { asset, Platform, WEBHOOKS } from './platform.ts';

let platform: Platform;

beforeEach(async () => {
  platform = await Platform.start();
});
afterEach(() => platform.stop());

const data = [{ timestamp: '2026-11-21T00:00:00.000Z', value: 1 }];
const postKeys = (...keys: string[]) =>
  platform.gateway.call('POST', '/v1/assets/881/values', { values: keys.map((key) => ({ key, data })) });
const newEvent = (id: number, type: number) =>
  platform.change('create-event', { id, name: 'Check', type, assets: [881] });

/** Every attribute that the table names, changed to something else. */
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

describe('filters by value key', () => {
  it.each(['asset_values_created', 'instrumentation_values_created'])(
    '6.3 %s tells the keys of its list alone',
    async (type) => {
      const hook = await platform.webhook([type], { [type]: ['flow', 'level'] });
      await postKeys('temp');
      await postKeys('temp', 'flow');
      const told = await hook.told();
      expect(told.map(({ content }) => content.values.map((one: { key: string }) => one.key))).toEqual([['flow']]);
    },
  );

  it.each(['asset_values_created', 'instrumentation_values_created'])(
    '6.3 %s without a list tells all keys',
    async (type) => {
      const hook = await platform.webhook([type]);
      await postKeys('temp', 'flow');
      expect((await hook.told())[0].content.values).toHaveLength(2);
    },
  );
});

describe.each([
  ['asset_updated', 'update-asset', 'asset', 901, ASSET],
  ['edge_device_updated', 'update-edge-device', 'edge_device', 30, EDGE_DEVICE],
] as const)('filters of %s', (type, change, member, id, attributes) => {
  const update = (changes: object) => platform.change(change, { [member]: id, changes });

  beforeEach(async () => {
    const kind = `${member}s`;
    const { id: same, serial_number } = await platform.object(kind, id);
    // Nothing but its number is known of it, so that every attribute is a change. A member left out keeps its value.
    await platform.destroy(kind, id);
    await platform.put(kind, id, { id: same, serial_number });
    await platform.grant({ type: member === 'asset' ? 'Asset' : 'EDM::EdgeDevice', id });
  });

  it.each(Object.entries(attributes))(`6.3 ${type} tells the change of %s to who lists it`, async (name, value) => {
    const hook = await platform.webhook([type], { [type]: [name] });
    const others = Object.fromEntries(Object.entries(attributes).filter(([other]) => other !== name));
    await update(others);
    expect(await hook.told()).toEqual([]);
    await update({ [name]: value });
    const [event] = await hook.told();
    expect(Object.keys(event.content[member]).sort()).toEqual(['href', 'id', name].sort());
  });

  it(`6.3 ${type} without a list tells every attribute`, async () => {
    const hook = await platform.webhook([type]);
    await update(attributes);
    const [event] = await hook.told();
    expect(Object.keys(event.content[member]).sort()).toEqual(['href', 'id', ...Object.keys(attributes)].sort());
  });
});

describe('filters by specification key', () => {
  const range = { range: { value: 1 } };
  const both = { range: { value: 2 }, limit: { value: 3 } };
  const CASES = [
    [
      'asset_specifications_updated',
      'asset',
      (specifications: object) => platform.change('asset-specifications', { asset: 881, specifications }),
    ],
    [
      'event_specifications_updated',
      'event',
      (specifications: object) => platform.change('event-specifications', { event: 39, specifications }),
    ],
  ] as const;

  it.each(CASES)('6.3 %s tells the keys of its list alone', async (type, member, set) => {
    const hook = await platform.webhook([type], { [type]: ['limit'] });
    await set(range);
    await set(both);
    const told = await hook.told();
    expect(told.map(({ content }) => Object.keys(content[member].specifications))).toEqual([['limit']]);
  });

  it.each(CASES)('6.3 %s without a list tells all keys', async (type, member, set) => {
    const hook = await platform.webhook([type]);
    await set(both);
    expect(Object.keys((await hook.told())[0].content[member].specifications)).toEqual(['range', 'limit']);
  });
});

describe('filters by event type code', () => {
  const [MAINTENANCE, CALIBRATION] = [76, 77];

  it('6.3 event_created tells the event types of its list alone', async () => {
    const hook = await platform.webhook(['event_created'], { event_created: ['calibration'] });
    await newEvent(500, MAINTENANCE);
    await newEvent(501, CALIBRATION);
    expect((await hook.told()).map(({ content }) => content.event.id)).toEqual([501]);
  });

  it('6.3 event_created without a list tells all event types', async () => {
    const hook = await platform.webhook(['event_created']);
    await newEvent(500, MAINTENANCE);
    await newEvent(501, CALIBRATION);
    expect(await hook.told()).toHaveLength(2);
  });

  it.each([
    ['its list', { event_document_created: ['calibration'] }, [501]],
    ['all where there is no list', {}, [500, 501]],
  ])('6.3 event_document_created tells the event types of %s', async (_, properties, wanted) => {
    await newEvent(500, MAINTENANCE);
    await newEvent(501, CALIBRATION);
    for (const id of [500, 501]) await platform.grant({ type: 'Event', id });
    const hook = await platform.webhook(['event_document_created'], properties);
    for (const event of [500, 501]) await platform.change('add-document', { event, document: 35 });
    expect((await hook.told()).map(({ content }) => content.event.id)).toEqual(wanted);
  });
});

describe('registering', () => {
  it('6.3 the body is url, event_types and properties by event type', async () => {
    const body = {
      url: 'https://client.example/hook',
      event_types: ['asset_values_created', 'asset_updated'],
      properties: { asset_values_created: ['flow'], asset_updated: ['status', 'tenant'] },
    };
    const { status, body: created } = await platform.gateway.call('POST', WEBHOOKS, body);
    expect([status, created]).toEqual([201, expect.objectContaining(body)]);
  });

  it('6.3 a webhook gets the types of its event_types and no others', async () => {
    const hook = await platform.webhook(['asset_values_created']);
    await platform.value(881, 'flow', 1);
    await platform.take(asset(881));
    expect(await hook.types()).toEqual(['asset_values_created']);
  });

  it('6.3 the list of one type does not filter another', async () => {
    const types = ['asset_values_created', 'instrumentation_values_created'];
    const hook = await platform.webhook(types, { asset_values_created: ['level'] });
    await postKeys('flow');
    expect(await hook.types()).toEqual(['instrumentation_values_created']);
  });

  it('6.3 an empty list is no list', async () => {
    const hook = await platform.webhook(['asset_updated'], { asset_updated: [] });
    await platform.change('update-asset', { asset: 881, changes: { description: 'new' } });
    expect(await hook.told()).toHaveLength(1);
  });

  it.each([
    ['asset_value_created', () => platform.value(881, 'flow', 1)],
    ['asset_disappeared', () => platform.take(asset(881))],
    ['asset_software_added', () => platform.change('add-software', { asset: 881, software: 95 })],
    ['product_status_changed', () => platform.change('product-status', { product: 90, status: 81 })],
  ])('6.3 %s has no filter: a list for it changes nothing', async (type, cause) => {
    const hook = await platform.webhook([type], { [type]: ['nothing-of-this-name'] });
    await cause();
    expect(await hook.types()).toEqual([type]);
  });
});
