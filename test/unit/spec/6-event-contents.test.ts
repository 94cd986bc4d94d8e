import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { EVENT_TYPES, type EventType } from '../../../src/contract/events.ts';
import { asset, GATEWAY, type Hook, instrumentation, node, Platform, reference } from './platform.ts';

let platform: Platform;

beforeEach(async () => {
  platform = await Platform.start();
});
afterEach(() => platform.stop());

const AT = '2026-11-21T00:00:00.000Z';
const UNIT = { unit: { id: 12 }, group: 'process' };
const GROUPED = [
  { key: 'flow', group: 'process', unit: reference(12), data: [{ timestamp: AT, value: expect.anything() }] },
];
const user = reference(GATEWAY.id);
const SPECIFIED = {
  range: { unit: 'bar', value: '10', updated_at: AT, source_timestamp: '2026-11-20T00:00:00.000Z' },
};
const specifications = { range: { unit: 'bar', value: '10', source_timestamp: '2026-11-20T00:00:00.000Z' } };
const SUBSCRIPTION = {
  id: 45,
  display_name: 'Sandbox Connect',
  user: { id: 6, email: 'anna@sandbox.example' },
  billing_address: {
    id: 46,
    company_name: expect.any(String),
    street: expect.any(String),
    zip_code: expect.any(String),
    city: expect.any(String),
    country_code: 'DE',
  },
  material_number: 'SBX-1',
  href: expect.stringMatching(/45$/),
};
const LINK = { add_on: { id: 47 }, node: reference(20), subscription: SUBSCRIPTION };
const condition = (id: number, diagnosis_code: string) => ({ id, diagnosis_code, asset_status: 71 });
const CONDITION = (id: number, diagnosis_code: string) => ({
  diagnosis_code,
  id,
  asset_status: reference(71),
  channel: null,
  module: null,
  links: { causes: { href: expect.stringMatching(/^http/) } },
});

const changes = () => platform.sandbox.changes;
const readableEvent = async (id: number) => {
  changes().createEvent({ id, name: 'Check', type: 76, assets: [881] });
  await platform.grant({ type: 'Event', id });
};
const post = () => platform.value(881, 'flow', 25, UNIT);

/** Cause of the event and its content. */
const CASES: Record<EventType, { first?: () => unknown; cause: () => unknown; content: object }> = {
  asset_value_created: {
    cause: post,
    content: {
      asset: reference(881),
      value: { key: 'flow', group: 'process', unit: reference(12), timestamp: AT, value: '25' },
    },
  },
  asset_values_created: { cause: post, content: { asset: reference(881), values: GROUPED } },
  instrumentation_values_created: { cause: post, content: { instrumentation: reference(4711), values: GROUPED } },
  asset_updated: {
    cause: () => changes().updateAsset(881, { status: 71 }),
    content: { asset: { ...reference(881), status: reference(71) } },
  },
  asset_software_added: {
    cause: () => changes().addSoftware(881, 95),
    content: { asset: reference(881), software: reference(95) },
  },
  asset_instrumentation_association_created: {
    cause: () => changes().associate(901, 4711),
    content: { asset: reference(901), instrumentation: reference(4711) },
  },
  asset_instrumentation_association_destroyed: {
    cause: () => changes().dissociate(881, 4711),
    content: { asset: reference(881), instrumentation: reference(4711) },
  },
  edge_device_updated: {
    cause: () => changes().updateEdgeDevice(30, { status: 86 }),
    content: { edge_device: { ...reference(30), status: reference(86) } },
  },
  asset_appeared: {
    cause: () => platform.grant(asset(920)),
    content: { asset: { ...reference(920), serial_number: 'XX-920' }, user },
  },
  asset_disappeared: {
    cause: () => platform.take(asset(881)),
    content: { asset: { ...reference(881), serial_number: 'SN-000881' }, user },
  },
  instrumentation_appeared: {
    first: () => platform.put('instrumentations', 5000, { tag: 'XT-1' }),
    cause: () => platform.grant(instrumentation(5000)),
    content: { instrumentation: { ...reference(5000), tag: 'XT-1' }, user },
  },
  instrumentation_disappeared: {
    cause: () => platform.take(instrumentation(4711)),
    content: { instrumentation: { ...reference(4711), tag: 'FT-101' }, user },
  },
  node_appeared: {
    cause: () => platform.grant(node(20)),
    content: { node: { ...reference(20), tag: 'INLET' }, user },
  },
  node_disappeared: {
    first: () => platform.grant(node(20)),
    cause: () => platform.take(node(20)),
    content: { node: { ...reference(20), name: 'Inlet' }, user },
  },
  asset_specifications_updated: {
    cause: () => changes().setSpecifications('assets', 881, specifications),
    content: { asset: { ...reference(881), specifications: SPECIFIED } },
  },
  event_specifications_updated: {
    first: () => readableEvent(500),
    cause: () => changes().setSpecifications('events', 500, specifications),
    content: { event: { ...reference(500), specifications: SPECIFIED } },
  },
  event_created: {
    cause: () =>
      changes().createEvent({
        id: 500,
        name: 'Check',
        type: 76,
        status: 75,
        responsible: 'Anna',
        assets: [881, 882],
        instrumentations: [4711],
        documents: [35],
      }),
    content: {
      event: {
        ...reference(500),
        name: 'Check',
        responsible: 'Anna',
        type: { ...reference(76), code: 'maintenance' },
        status: { ...reference(75), code: 'scheduled' },
        assets: [reference(881), reference(882)],
        instrumentations: [reference(4711)],
        documents: [reference(35)],
      },
    },
  },
  event_document_created: {
    first: () => readableEvent(500),
    cause: () => changes().addDocument(500, 35),
    content: { event: reference(500), document: reference(35) },
  },
  asset_health_condition_updated: {
    first: () => changes().setHealthConditions(881, 71, [condition(11, 'M412')]),
    cause: () => changes().setHealthConditions(881, 71, [condition(12, 'F825')]),
    content: {
      asset: reference(881),
      asset_status: {
        code: 'failure',
        name: 'Failure',
        description: 'The device needs attention',
        id: 71,
        tenant: reference(50),
      },
      health_conditions: [CONDITION(12, 'F825')],
      previous_health_conditions: [CONDITION(11, 'M412')],
    },
  },
  product_status_changed: {
    first: async () =>
      platform.put('products', 90, {
        ...(await platform.object('products', 90)),
        phase_out_date: '2027-01-31',
        order_stop_date: '2027-06-30',
        spare_parts_until: '2037-06-30',
        spare_sensors_until: '2034-06-30',
        repair_until: '2037-06-30',
        calibration_until: '2040-06-30',
      }),
    cause: () => changes().setProductStatus(90, 81),
    content: {
      product: {
        ...reference(90),
        product_code: 'FM300',
        name: 'Flowmeter 300',
        phase_out_date: '2027-01-31',
        order_stop_date: '2027-06-30',
        spare_parts_until: '2037-06-30',
        spare_sensors_until: '2034-06-30',
        repair_until: '2037-06-30',
        calibration_until: '2040-06-30',
        status: { ...reference(81), code: 'phase_out', name: 'Phase out', description: null, tenant: reference(50) },
      },
    },
  },
  threshold_reached: {
    first: () =>
      platform.behind('POST', 'thresholds', {
        instrumentation: 4711,
        type: 'high',
        name: 'HH',
        value: 400,
        key: 'flow',
        unit: 'liter_per_minute',
      }),
    cause: () => platform.value(881, 'flow', 30, UNIT),
    content: {
      asset: reference(881),
      instrumentation: reference(4711),
      data: { value: 30, key: 'flow', timestamp: AT, unit: { code: 'cubic_meter_per_hour', symbol: 'm³/h' } },
      threshold: {
        type: 'high',
        name: 'HH',
        value: 400,
        unit: { code: 'liter_per_minute', symbol: 'l/min' },
        thresholdable_type: 'Instrumentation',
        value_in_threshold_unit: expect.closeTo(500, 9),
      },
    },
  },
  add_on_node_association_created: {
    first: () => platform.grant(node(20)),
    cause: () => changes().setAddOnLink(47, 20, true),
    content: LINK,
  },
  add_on_node_association_destroyed: {
    first: async () => {
      await platform.grant(node(20));
      changes().setAddOnLink(47, 20, true);
    },
    cause: () => changes().setAddOnLink(47, 20, false),
    content: LINK,
  },
};

describe('specification', () => {
  it('6.3 there are 23 event types', () => {
    expect(Object.keys(CASES)).toHaveLength(23);
    expect(Object.keys(CASES).sort()).toEqual([...EVENT_TYPES].sort());
  });

  it.each(Object.entries(CASES))(
    '6.3 %s has the content listed in its row',
    async (type, { first, cause, content }) => {
      await first?.();
      const hook: Hook = await platform.webhook([type]);
      await cause();
      const told = await hook.told();
      expect(told.map(({ event_type }) => event_type)).toEqual([type]);
      expect(told[0].content).toEqual(content);
    },
  );
});
