import type { EventType } from '../../../src/contract/events.ts';

/**
 * Contents of all event types as in the table of platform 6.3. An object has exactly these members; a function checks a
 * member. Written by hand from the specification, independent of sandbox and contract.
 */
export type Shape = ((value: unknown) => boolean) | { [member: string]: Shape } | [Shape];

const text: Shape = (value) => typeof value === 'string';
const textOrNull: Shape = (value) => value === null || typeof value === 'string';
const integer: Shape = (value) => Number.isInteger(value);
const number: Shape = (value) => typeof value === 'number';
const numberOrNull: Shape = (value) => value === null || typeof value === 'number';
const anything: Shape = () => true;
const time: Shape = (value) => typeof value === 'string' && !Number.isNaN(Date.parse(value));
const numberAsText: Shape = (value) => typeof value === 'string' && Number.isFinite(Number(value));
const oneOf =
  (...texts: string[]): Shape =>
  (value) =>
    texts.includes(value as string);
const href: Shape = (value) => typeof value === 'string' && URL.canParse(value);
const reference = { id: integer, href };

const unit = { code: text, symbol: text };
const values: [Shape] = [{ key: text, group: text, unit: reference, data: [{ timestamp: time, value: number }] }];
const specifications = { range: { unit: textOrNull, value: anything, updated_at: time, source_timestamp: textOrNull } };
const condition = {
  diagnosis_code: text,
  id: integer,
  asset_status: reference,
  channel: textOrNull,
  module: textOrNull,
  links: { causes: { href } },
};
const assetAccess = { asset: { id: integer, serial_number: text, href }, user: reference };
const instrumentationAccess = { instrumentation: { id: integer, tag: text, href }, user: reference };
const association = { asset: reference, instrumentation: reference };
const addOnNode = {
  add_on: { id: integer },
  node: reference,
  subscription: {
    id: integer,
    display_name: text,
    user: { id: integer, email: text },
    billing_address: {
      id: integer,
      company_name: text,
      street: text,
      zip_code: text,
      city: text,
      country_code: text,
    },
    material_number: text,
    href,
  },
};

export const CONTENT_SHAPES: Readonly<Record<EventType, Shape>> = {
  asset_value_created: {
    asset: reference,
    value: { key: text, group: text, unit: reference, timestamp: time, value: numberAsText },
  },
  asset_values_created: { asset: reference, values },
  instrumentation_values_created: { instrumentation: reference, values },
  asset_updated: { asset: { ...reference, status: reference } },
  asset_software_added: { asset: reference, software: reference },
  asset_instrumentation_association_created: association,
  asset_instrumentation_association_destroyed: association,
  edge_device_updated: { edge_device: { ...reference, status: reference } },
  asset_appeared: assetAccess,
  asset_disappeared: assetAccess,
  instrumentation_appeared: instrumentationAccess,
  instrumentation_disappeared: instrumentationAccess,
  node_appeared: { node: { id: integer, tag: text, href }, user: reference },
  node_disappeared: { node: { id: integer, name: text, href }, user: reference },
  asset_specifications_updated: { asset: { ...reference, specifications } },
  event_specifications_updated: { event: { ...reference, specifications } },
  event_created: {
    event: {
      ...reference,
      name: text,
      responsible: textOrNull,
      type: { id: integer, code: text, href },
      status: { id: integer, code: text, href },
      assets: [reference],
      instrumentations: [reference],
      documents: [reference],
    },
  },
  event_document_created: { event: reference, document: reference },
  asset_health_condition_updated: {
    asset: reference,
    asset_status: { code: text, name: text, description: textOrNull, id: integer, tenant: reference },
    health_conditions: [condition],
    previous_health_conditions: [condition],
  },
  product_status_changed: {
    product: {
      ...reference,
      product_code: text,
      phase_out_date: textOrNull,
      order_stop_date: textOrNull,
      spare_parts_until: textOrNull,
      spare_sensors_until: textOrNull,
      repair_until: textOrNull,
      calibration_until: textOrNull,
      name: text,
      status: { ...reference, code: text, name: text, description: textOrNull, tenant: reference },
    },
  },
  threshold_reached: {
    asset: reference,
    instrumentation: reference,
    data: { value: number, key: text, timestamp: time, unit },
    threshold: {
      type: oneOf('high', 'low'),
      name: text,
      value: number,
      unit,
      thresholdable_type: oneOf('System', 'Recipe', 'Instrumentation'),
      value_in_threshold_unit: numberOrNull,
    },
  },
  add_on_node_association_created: addOnNode,
  add_on_node_association_destroyed: addOnNode,
};

/** Returns the differences between a value and a shape. Lists may be empty. */
export function differences(value: unknown, shape: Shape, at = 'content'): string[] {
  if (typeof shape === 'function') return shape(value) ? [] : [`${at} is ${JSON.stringify(value)}`];
  if (Array.isArray(shape)) {
    if (!Array.isArray(value)) return [`${at} is not a list`];
    return value.flatMap((one, index) => differences(one, shape[0], `${at}[${index}]`));
  }
  if (typeof value !== 'object' || value === null) return [`${at} is ${JSON.stringify(value)}`];
  const members = value as Record<string, unknown>;
  const missing = Object.keys(shape).filter((name) => !(name in members));
  const surplus = Object.keys(members).filter((name) => !(name in shape));
  return [
    ...missing.map((name) => `${at}.${name} is missing`),
    ...surplus.map((name) => `${at}.${name} is not in the spec`),
    ...Object.entries(shape).flatMap(([name, one]) =>
      name in members ? differences(members[name], one, `${at}.${name}`) : [],
    ),
  ];
}
