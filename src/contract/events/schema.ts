import type { EventType } from './names.ts';

/**
 * JSON Schemas of the 23 payloads (spec 6.2, 6.3). What access and reactions stand on is required (the object that the event is
 * about, by its integer id) and what they compare has to have its type; everything else may be missing or null, and
 * members that the spec does not know are let through: a platform that adds one must not silence an alarm.
 */
export type JsonSchema = { readonly [keyword: string]: unknown };

const text: JsonSchema = { type: ['string', 'null'] };
const id: JsonSchema = { type: 'integer' };

/** An object whose `required` members must be there. */
function object(properties: Record<string, JsonSchema>, required: readonly string[] = []): JsonSchema {
  return { type: 'object', properties, required };
}

/** A reference of spec 6.2, with what a type adds to it. */
function reference(more: Record<string, JsonSchema> = {}): JsonSchema {
  return object({ id, href: text, ...more }, ['id']);
}

function orNull(schema: JsonSchema): JsonSchema {
  return { anyOf: [schema, { type: 'null' }] };
}

function listOf(items: JsonSchema): JsonSchema {
  return { type: 'array', items };
}

const looseReference = orNull(object({ id: { type: ['integer', 'null'] }, href: text, code: text, name: text }));
const measured: JsonSchema = { type: ['string', 'number', 'null'] };
const unit = orNull(object({ code: text, symbol: text }));

const value = object({ key: { type: 'string' }, group: text, unit: looseReference, timestamp: text, value: measured });
const groupedValues = listOf(
  object({
    key: { type: 'string' },
    group: text,
    unit: looseReference,
    data: listOf(object({ timestamp: text, value: measured })),
  }),
);
const specifications = orNull({
  type: 'object',
  additionalProperties: orNull(object({ unit: text, updated_at: text, source_timestamp: text })),
});
const healthConditions = orNull(
  listOf(object({ id, diagnosis_code: text, asset_status: looseReference, links: { type: ['object', 'null'] } })),
);

const assetAndInstrumentation = object({ asset: reference(), instrumentation: reference() }, [
  'asset',
  'instrumentation',
]);
const assetAccess = object({ asset: reference({ serial_number: text }), user: looseReference }, ['asset']);
const instrumentationAccess = object({ instrumentation: reference({ tag: text }), user: looseReference }, [
  'instrumentation',
]);
const nodeAccess = object({ node: reference({ tag: text, name: text }), user: looseReference }, ['node']);
const addOnNode = object({ add_on: reference(), node: reference(), subscription: { type: ['object', 'null'] } }, [
  'add_on',
  'node',
]);

/**
 * Thresholds of a System or a Recipe may concern an asset without an instrumentation: one of the two has to be named.
 * `threshold.type` is any text, so that a type added later is an event that no rule for `high` matches, not an unknown one.
 */
const thresholdReached: JsonSchema = {
  ...object({
    asset: orNull(reference()),
    instrumentation: orNull(reference({ tag: text })),
    data: object({ value: { type: 'number' }, key: text, timestamp: text, unit }),
    threshold: object({
      type: { type: 'string' },
      name: text,
      value: { type: ['number', 'null'] },
      unit,
      thresholdable_type: text,
      value_in_threshold_unit: { type: ['number', 'null'] },
    }),
  }),
  anyOf: [
    { properties: { asset: { type: 'object' } }, required: ['asset'] },
    { properties: { instrumentation: { type: 'object' } }, required: ['instrumentation'] },
  ],
};

const CONTENTS: Readonly<Record<EventType, JsonSchema>> = {
  asset_value_created: object({ asset: reference(), value }, ['asset']),
  asset_values_created: object({ asset: reference(), values: groupedValues }, ['asset']),
  instrumentation_values_created: object({ instrumentation: reference(), values: groupedValues }, ['instrumentation']),
  asset_updated: object({ asset: reference({ status: looseReference }) }, ['asset']),
  asset_software_added: object({ asset: reference(), software: reference() }, ['asset', 'software']),
  asset_instrumentation_association_created: assetAndInstrumentation,
  asset_instrumentation_association_destroyed: assetAndInstrumentation,
  edge_device_updated: object({ edge_device: reference({ status: looseReference }) }, ['edge_device']),
  asset_appeared: assetAccess,
  asset_disappeared: assetAccess,
  instrumentation_appeared: instrumentationAccess,
  instrumentation_disappeared: instrumentationAccess,
  node_appeared: nodeAccess,
  node_disappeared: nodeAccess,
  asset_specifications_updated: object({ asset: reference({ specifications }) }, ['asset']),
  event_specifications_updated: object({ event: reference({ specifications }) }, ['event']),
  event_created: object(
    {
      event: reference({
        name: text,
        type: looseReference,
        status: looseReference,
        assets: orNull(listOf(reference())),
        instrumentations: orNull(listOf(reference())),
        documents: orNull(listOf(reference())),
      }),
    },
    ['event'],
  ),
  event_document_created: object({ event: reference(), document: reference() }, ['event', 'document']),
  asset_health_condition_updated: object(
    {
      asset: reference(),
      asset_status: orNull(object({ id, code: text, name: text, description: text })),
      health_conditions: healthConditions,
      previous_health_conditions: healthConditions,
    },
    ['asset'],
  ),
  product_status_changed: object(
    {
      product: reference({
        product_code: text,
        name: text,
        phase_out_date: text,
        order_stop_date: text,
        spare_parts_until: text,
        spare_sensors_until: text,
        repair_until: text,
        calibration_until: text,
        status: looseReference,
      }),
    },
    ['product'],
  ),
  threshold_reached: thresholdReached,
  add_on_node_association_created: addOnNode,
  add_on_node_association_destroyed: addOnNode,
};

/** The whole payload of one type: the envelope of spec 6.2 around its content. The time may be spelled either way. */
export function eventSchema(eventType: EventType): JsonSchema {
  return {
    title: eventType,
    type: 'object',
    properties: {
      event_type: { const: eventType },
      occurred_at: text,
      occured_at: text,
      content: CONTENTS[eventType],
    },
    required: ['event_type', 'content'],
    anyOf: [{ required: ['occurred_at'] }, { required: ['occured_at'] }],
  };
}
