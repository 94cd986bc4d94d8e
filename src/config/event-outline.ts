import { EVENT_TYPES, type EventType } from '../contract/events.ts';

const LIST = Symbol('list');

/**
 * What the `content` of each event type holds (spec 6.3), exactly as the spec shows it: so that `check` can tell of a rule that needs
 * more. What the spec names but leaves the form of is `open`: anything may stand there.
 */
export type Outline = 'number' | 'text' | 'open' | readonly string[] | Members;
/** `LIST`: a list, and these are the members of each one in it. */
export type Members = { readonly [member: string]: Outline; readonly [LIST]?: true };

const REFERENCE = { id: 'number', href: 'text' } as const;
const NAMED = { id: 'number', code: 'text', name: 'text', description: 'text', tenant: REFERENCE } as const;
const UNIT = { code: 'text', symbol: 'text' } as const;
/** The number comes as text. */
const VALUE = { timestamp: 'text', value: 'text' } as const;
const VALUES = { key: 'text', group: 'text', unit: REFERENCE, data: { [LIST]: true, ...VALUE }, [LIST]: true } as const;
/** Of what changed only a status is shown; the other attributes are those that the filter knows. */
const UPDATED = {
  ...REFERENCE,
  serial_number: 'text',
  description: 'text',
  last_seen_at: 'text',
  tenant: 'open',
  status: REFERENCE,
} as const;
const PAIR = { asset: REFERENCE, instrumentation: REFERENCE } as const;
const ASSET_ACCESS = { asset: { ...REFERENCE, serial_number: 'text' }, user: REFERENCE } as const;
const INSTRUMENTATION_ACCESS = { instrumentation: { ...REFERENCE, tag: 'text' }, user: REFERENCE } as const;
const CODED = { ...REFERENCE, code: 'text' } as const;
const REFERENCES = { ...REFERENCE, [LIST]: true } as const;
const HEALTH_CONDITIONS = {
  id: 'number',
  diagnosis_code: 'text',
  asset_status: REFERENCE,
  channel: 'open',
  module: 'open',
  links: { causes: { href: 'text' } },
  [LIST]: true,
} as const;
const ADD_ON_NODE = {
  add_on: { id: 'number' },
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

const OUTLINES: Readonly<Record<EventType, Members>> = {
  asset_value_created: { asset: REFERENCE, value: { key: 'text', group: 'text', unit: REFERENCE, ...VALUE } },
  asset_values_created: { asset: REFERENCE, values: VALUES },
  instrumentation_values_created: { instrumentation: REFERENCE, values: VALUES },
  asset_updated: { asset: { ...UPDATED, production_date: 'text', product: 'open', parent: 'open' } },
  asset_software_added: { asset: REFERENCE, software: REFERENCE },
  asset_instrumentation_association_created: PAIR,
  asset_instrumentation_association_destroyed: PAIR,
  edge_device_updated: { edge_device: { ...UPDATED, type: 'open', software_version: 'text' } },
  asset_appeared: ASSET_ACCESS,
  asset_disappeared: ASSET_ACCESS,
  instrumentation_appeared: INSTRUMENTATION_ACCESS,
  instrumentation_disappeared: INSTRUMENTATION_ACCESS,
  node_appeared: { node: { ...REFERENCE, tag: 'text' }, user: REFERENCE },
  node_disappeared: { node: { ...REFERENCE, name: 'text' }, user: REFERENCE },
  // A key may hold dots, and what it specifies has a value and a unit of any form.
  asset_specifications_updated: { asset: { ...REFERENCE, specifications: 'open' } },
  event_specifications_updated: { event: { ...REFERENCE, specifications: 'open' } },
  event_created: {
    event: {
      ...REFERENCE,
      name: 'text',
      responsible: 'open',
      type: CODED,
      status: CODED,
      assets: REFERENCES,
      instrumentations: REFERENCES,
      documents: REFERENCES,
    },
  },
  event_document_created: { event: REFERENCE, document: REFERENCE },
  asset_health_condition_updated: {
    asset: REFERENCE,
    asset_status: NAMED,
    health_conditions: HEALTH_CONDITIONS,
    previous_health_conditions: HEALTH_CONDITIONS,
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
      status: { ...NAMED, href: 'text' },
    },
  },
  threshold_reached: {
    asset: REFERENCE,
    // The row says no more than "instrumentation"; where the spec shows one whole, it has its tag.
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
    if (!isMembers(outline)) return undefined;
    // A place in a list, as `valuesAt` reads it.
    if (outline[LIST] && /^\d{1,9}$/.test(member)) continue;
    if (!Object.hasOwn(outline, member)) return undefined;
    outline = outline[member]!;
  }
  return outline;
}

export function isMembers(outline: Outline): outline is Members {
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
