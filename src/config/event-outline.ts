import { EVENT_TYPES, type EventType } from '../contract/events.ts';

/**
 * What the `content` of each event type holds (spec 6.3), as far as it can be told beforehand: so that `check` can explain a
 * rule that can never match. Lists, and what the spec leaves open, are `open`: anything may stand there.
 */
export type Outline = 'number' | 'text' | 'open' | readonly string[] | { readonly [member: string]: Outline };

const REFERENCE = { id: 'number', href: 'text' } as const;
/** Where a platform may send more than the spec shows. */
const LOOSE = { ...REFERENCE, code: 'text', name: 'text' } as const;
const UNIT = { code: 'text', symbol: 'text' } as const;
const CODED = { ...REFERENCE, code: 'text', name: 'text', description: 'text', tenant: 'open' } as const;
const UPDATED = {
  ...REFERENCE,
  serial_number: 'text',
  description: 'text',
  last_seen_at: 'text',
  tenant: 'open',
  status: CODED,
} as const;
const PAIR = { asset: REFERENCE, instrumentation: REFERENCE } as const;
const ASSET_ACCESS = { asset: { ...REFERENCE, serial_number: 'text' }, user: LOOSE } as const;
const INSTRUMENTATION_ACCESS = { instrumentation: { ...REFERENCE, tag: 'text' }, user: LOOSE } as const;
const NODE_ACCESS = { node: { ...REFERENCE, tag: 'text', name: 'text' }, user: LOOSE } as const;
const ADD_ON_NODE = {
  add_on: REFERENCE,
  node: REFERENCE,
  subscription: {
    ...REFERENCE,
    display_name: 'text',
    user: { id: 'number', email: 'text' },
    billing_address: {
      id: 'number',
      company_name: 'text',
      street: 'text',
      zip_code: 'text',
      city: 'text',
      country_code: 'text',
    },
    material_number: 'text',
  },
} as const;

const OUTLINES: Readonly<Record<EventType, { readonly [member: string]: Outline }>> = {
  asset_value_created: {
    asset: REFERENCE,
    // The number comes as text, and some platforms send a number.
    value: { key: 'text', group: 'text', unit: LOOSE, timestamp: 'text', value: 'open' },
  },
  asset_values_created: { asset: REFERENCE, values: 'open' },
  instrumentation_values_created: { instrumentation: REFERENCE, values: 'open' },
  asset_updated: { asset: { ...UPDATED, production_date: 'text', product: 'open', parent: 'open' } },
  asset_software_added: { asset: REFERENCE, software: REFERENCE },
  asset_instrumentation_association_created: PAIR,
  asset_instrumentation_association_destroyed: PAIR,
  edge_device_updated: { edge_device: { ...UPDATED, type: 'open', software_version: 'text' } },
  asset_appeared: ASSET_ACCESS,
  asset_disappeared: ASSET_ACCESS,
  instrumentation_appeared: INSTRUMENTATION_ACCESS,
  instrumentation_disappeared: INSTRUMENTATION_ACCESS,
  node_appeared: NODE_ACCESS,
  node_disappeared: NODE_ACCESS,
  asset_specifications_updated: { asset: { ...REFERENCE, specifications: 'open' } },
  event_specifications_updated: { event: { ...REFERENCE, specifications: 'open' } },
  event_created: {
    event: {
      ...REFERENCE,
      name: 'text',
      responsible: 'open',
      type: CODED,
      status: CODED,
      assets: 'open',
      instrumentations: 'open',
      documents: 'open',
    },
  },
  event_document_created: { event: REFERENCE, document: REFERENCE },
  asset_health_condition_updated: {
    asset: REFERENCE,
    asset_status: CODED,
    health_conditions: 'open',
    previous_health_conditions: 'open',
  },
  product_status_changed: {
    product: {
      ...REFERENCE,
      product_code: 'text',
      phase_out_date: 'text',
      order_stop_date: 'text',
      spare_parts_until: 'text',
      spare_sensors_until: 'text',
      repair_until: 'text',
      calibration_until: 'text',
      name: 'text',
      status: CODED,
    },
  },
  threshold_reached: {
    asset: REFERENCE,
    instrumentation: { ...REFERENCE, tag: 'text' },
    data: { value: 'number', key: 'text', timestamp: 'text', unit: UNIT },
    threshold: {
      type: ['high', 'low', 'deviation'],
      name: 'text',
      value: 'number',
      unit: UNIT,
      thresholdable_type: ['System', 'Recipe', 'Instrumentation'],
      value_in_threshold_unit: 'number',
    },
  },
  add_on_node_association_created: ADD_ON_NODE,
  add_on_node_association_destroyed: ADD_ON_NODE,
};

/** What stands at a path of a type's content; `undefined` where the spec shows nothing there. */
export function outlineAt(type: EventType, path: string): Outline | undefined {
  let outline: Outline = OUTLINES[type];
  for (const member of path.split('.')) {
    if (outline === 'open') return 'open';
    if (!isMembers(outline) || !Object.hasOwn(outline, member)) return undefined;
    outline = outline[member]!;
  }
  return outline;
}

export function isMembers(outline: Outline): outline is { readonly [member: string]: Outline } {
  return typeof outline === 'object' && !Array.isArray(outline);
}

/** Every path of these types that ends in a value. */
export function pathsOf(types: readonly EventType[]): string[] {
  const paths = new Set<string>();
  const collect = (outline: Outline, path: string): void => {
    if (!isMembers(outline)) paths.add(path);
    else
      for (const [member, part] of Object.entries(outline)) collect(part, path === '' ? member : `${path}.${member}`);
  };
  for (const type of types) collect(OUTLINES[type], '');
  return [...paths];
}

/** Whether events of a type name the object that a tag stands for. `event_created` lists both. */
export function namesObjectOf(type: EventType, tag: { instrumentation?: number }): boolean {
  if (type === 'event_created') return true;
  return 'asset' in OUTLINES[type] || (tag.instrumentation !== undefined && 'instrumentation' in OUTLINES[type]);
}

export const ALL_EVENT_TYPES: readonly EventType[] = EVENT_TYPES;
