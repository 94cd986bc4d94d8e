import type { EventType } from './names.ts';
import {
  byKey,
  demanding,
  type JsonSchema,
  leaf,
  listOf,
  loose,
  object,
  orNull,
  type Shape,
  unchecked,
  type ValueOf,
} from './shape.ts';

/**
 * The content of each event type (platform 6.3). Holds and reactions require the object's integer ID and, for a
 * threshold, its type and value. Members that reactions compare must have their type. Every other member can be
 * missing, be null, or differ in form from the specification, and unknown members are accepted.
 */
const id = leaf<number>({ type: 'integer' }, 'number');
const text = leaf<string>({ type: ['string', 'null'] }, 'text');
const number = leaf<number>({ type: 'number' }, 'number');
const numberOrNull = leaf<number>({ type: ['number', 'null'] }, 'number');
/** Text in `asset_value_created`, a number in the grouped types. */
const measured = leaf<string | number>({ type: ['string', 'number', 'null'] }, 'text');
/** A member whose form is not specified. */
const open = unchecked(leaf({}, 'open'));

/** A reference (platform 6.2) with additional members. */
function reference<S extends Record<string, Shape>>(more: S) {
  return object({ id, href: text, ...more }, ['id']);
}

const ref = object({ id, href: text }, ['id']);
const asset = ref;
const instrumentation = ref;
const event = ref;
const user = loose(ref);
const unit = loose(object({ code: text, symbol: text }));
const coded = loose(reference({ code: text }));
/** Members of a status or an asset status. */
const named = { code: text, name: text, description: text, tenant: orNull(ref) };

const head = { key: text, group: text, unit: loose(ref) };
const point = object({ timestamp: text, value: measured });
const values = orNull(listOf(object({ ...head, data: orNull(listOf(point)) })));

function updated<S extends Record<string, Shape>>(more: S) {
  const attributes = {
    serial_number: unchecked(text),
    description: unchecked(text),
    last_seen_at: unchecked(text),
    tenant: open,
    status: loose(ref),
  };
  return reference({ ...attributes, ...more });
}

const specification = loose(object({ unit: text, value: text, updated_at: text, source_timestamp: text }));
const specifications = orNull(byKey(specification));

const conditions = orNull(
  listOf(
    object({
      diagnosis_code: text,
      id: leaf<number>({ type: ['integer', 'null'] }, 'number'),
      asset_status: loose(ref),
      channel: open,
      module: open,
      links: unchecked(object({ causes: object({ href: text }) })),
    }),
  ),
);

const pair = object({ asset, instrumentation }, ['asset', 'instrumentation']);
const assetAccess = object({ asset: reference({ serial_number: text }), user }, ['asset']);
const instrumentationAccess = object({ instrumentation: reference({ tag: text }), user }, ['instrumentation']);

const address = object({ id, company_name: text, street: text, zip_code: text, city: text, country_code: text });
const addOnNode = object(
  {
    add_on: object({ id }, ['id']),
    node: ref,
    subscription: unchecked(
      reference({
        display_name: text,
        user: object({ id, email: text }),
        billing_address: orNull(address),
        material_number: text,
      }),
    ),
  },
  ['add_on', 'node'],
);

/**
 * A threshold of a System or a Recipe may have an asset without an instrumentation: one of the two is required.
 * `threshold.type` is any text, so a type that is added later is recognized but does not match a rule for `high`.
 */
const thresholdReached = demanding(
  object(
    {
      asset: orNull(ref),
      instrumentation: orNull(reference({ tag: text })),
      data: object({ value: number, key: text, timestamp: text, unit }, ['value']),
      threshold: object(
        {
          type: leaf<string>({ type: 'string' }, ['high', 'low', 'deviation']),
          name: text,
          value: numberOrNull,
          unit,
          thresholdable_type: leaf<string>({ type: ['string', 'null'] }, ['System', 'Recipe', 'Instrumentation']),
          value_in_threshold_unit: numberOrNull,
        },
        ['type'],
      ),
    },
    ['data', 'threshold'],
  ),
  {
    anyOf: [
      { properties: { asset: { type: 'object' } }, required: ['asset'] },
      { properties: { instrumentation: { type: 'object' } }, required: ['instrumentation'] },
    ],
  },
);

export const SHAPES = {
  asset_value_created: object({ asset, value: orNull(object({ ...head, timestamp: text, value: measured })) }, [
    'asset',
  ]),
  asset_values_created: object({ asset, values }, ['asset']),
  instrumentation_values_created: object({ instrumentation, values }, ['instrumentation']),
  asset_updated: object({ asset: updated({ production_date: unchecked(text), product: open, parent: open }) }, [
    'asset',
  ]),
  asset_software_added: object({ asset, software: ref }, ['asset', 'software']),
  asset_instrumentation_association_created: pair,
  asset_instrumentation_association_destroyed: pair,
  edge_device_updated: object({ edge_device: updated({ type: open, software_version: unchecked(text) }) }, [
    'edge_device',
  ]),
  asset_appeared: assetAccess,
  asset_disappeared: assetAccess,
  instrumentation_appeared: instrumentationAccess,
  instrumentation_disappeared: instrumentationAccess,
  // One type identifies the node by `tag`, the other by `name`.
  node_appeared: object({ node: reference({ tag: text }), user }, ['node']),
  node_disappeared: object({ node: reference({ name: text }), user }, ['node']),
  asset_specifications_updated: object({ asset: reference({ specifications }) }, ['asset']),
  event_specifications_updated: object({ event: reference({ specifications }) }, ['event']),
  event_created: object(
    {
      event: reference({
        name: text,
        responsible: open,
        type: coded,
        status: coded,
        assets: orNull(listOf(ref)),
        instrumentations: orNull(listOf(ref)),
        documents: orNull(listOf(ref)),
      }),
    },
    ['event'],
  ),
  event_document_created: object({ event, document: ref }, ['event', 'document']),
  asset_health_condition_updated: object(
    {
      asset,
      asset_status: loose(object({ id, ...named })),
      health_conditions: conditions,
      previous_health_conditions: conditions,
    },
    ['asset'],
  ),
  product_status_changed: object(
    {
      product: reference({
        product_code: text,
        phase_out_date: text,
        order_stop_date: text,
        spare_parts_until: text,
        spare_sensors_until: text,
        repair_until: text,
        calibration_until: text,
        name: text,
        status: loose(reference(named)),
      }),
    },
    ['product'],
  ),
  threshold_reached: thresholdReached,
  add_on_node_association_created: addOnNode,
  add_on_node_association_destroyed: addOnNode,
} as const satisfies Readonly<Record<EventType, Shape>>;

/** Types of valid content, by event type. */
export type EventContents = { [Type in EventType]: ValueOf<(typeof SHAPES)[Type]> };

const textOrNull: JsonSchema = { type: ['string', 'null'] };

/**
 * Returns the schema of a received event: the envelope of platform 6.2 with its content. Both spellings of the time
 * member are valid.
 */
export function eventSchema(eventType: EventType): JsonSchema {
  return {
    title: eventType,
    type: 'object',
    properties: {
      event_type: { const: eventType },
      occurred_at: textOrNull,
      occured_at: textOrNull,
      content: SHAPES[eventType].received,
    },
    required: ['event_type', 'content'],
    anyOf: [{ required: ['occurred_at'] }, { required: ['occured_at'] }],
  };
}
