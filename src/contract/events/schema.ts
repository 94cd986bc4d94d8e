import type { EventType } from './names.ts';

/**
 * JSON Schemas of the 23 payloads (spec 6.2, 6.3). What holds and reactions stand on is required: the object that the event is
 * about, by its integer id; of a threshold also the value and which limit it is. What they compare has to have its type.
 * Everything else may be missing, null, or of another form than the spec shows, and members that the spec does not know are
 * let through: a platform that changes one must not silence an alarm. The types in `content.ts` promise what is required here.
 */
export type JsonSchema = { readonly [keyword: string]: unknown };

const text: JsonSchema = { type: ['string', 'null'] };
const number: JsonSchema = { type: ['number', 'null'] };
const id: JsonSchema = { type: 'integer' };

/** An object whose `required` members must be there. */
function object(properties: Record<string, JsonSchema>, required: readonly string[] = []): JsonSchema {
  return { type: 'object', properties, required };
}

/** A reference of spec 6.2, with what a type adds to it. */
function reference(more: Record<string, JsonSchema> = {}): JsonSchema {
  return object({ id, href: text, ...more }, ['id']);
}

/** What the spec shows there, though anything may stand there: nothing goes by it. */
function loose(...members: string[]): JsonSchema {
  return { properties: Object.fromEntries(members.map((member) => [member, {}])) };
}

function orNull(schema: JsonSchema): JsonSchema {
  return { anyOf: [schema, { type: 'null' }] };
}

function listOf(items: JsonSchema): JsonSchema {
  return { type: 'array', items };
}

const looseReference = loose('id', 'href');
const coded = loose('id', 'code', 'href');
const unit = loose('code', 'symbol');

const measured: JsonSchema = { type: ['string', 'number', 'null'] };
const value = orNull(object({ key: text, group: text, unit: looseReference, timestamp: text, value: measured }));
const groupedValues = orNull(
  listOf(
    object({
      key: text,
      group: text,
      unit: looseReference,
      data: orNull(listOf(object({ timestamp: text, value: measured }))),
    }),
  ),
);
const specifications = orNull({
  type: 'object',
  additionalProperties: loose('unit', 'value', 'updated_at', 'source_timestamp'),
});
const healthConditions = orNull(
  listOf(
    object({
      id: { type: ['integer', 'null'] },
      diagnosis_code: text,
      asset_status: looseReference,
      channel: {},
      module: {},
      links: {},
    }),
  ),
);

const assetAndInstrumentation = object({ asset: reference(), instrumentation: reference() }, [
  'asset',
  'instrumentation',
]);
const assetAccess = object({ asset: reference({ serial_number: text }), user: looseReference }, ['asset']);
const instrumentationAccess = object({ instrumentation: reference({ tag: text }), user: looseReference }, [
  'instrumentation',
]);
const addOnNode = object({ add_on: object({ id }, ['id']), node: reference(), subscription: {} }, ['add_on', 'node']);

/**
 * Thresholds of a System or a Recipe may concern an asset without an instrumentation: one of the two has to be named.
 * `threshold.type` is any text, so that a type added later is an event that no rule for `high` matches, not an unknown one.
 */
const thresholdReached: JsonSchema = {
  ...object(
    {
      asset: orNull(reference()),
      instrumentation: orNull(reference({ tag: text })),
      data: object({ value: { type: 'number' }, key: text, timestamp: text, unit }, ['value']),
      threshold: object(
        {
          type: { type: 'string' },
          name: text,
          value: number,
          unit,
          thresholdable_type: text,
          value_in_threshold_unit: number,
        },
        ['type'],
      ),
    },
    ['data', 'threshold'],
  ),
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
  node_appeared: object({ node: reference({ tag: text }), user: looseReference }, ['node']),
  node_disappeared: object({ node: reference({ name: text }), user: looseReference }, ['node']),
  asset_specifications_updated: object({ asset: reference({ specifications }) }, ['asset']),
  event_specifications_updated: object({ event: reference({ specifications }) }, ['event']),
  event_created: object(
    {
      event: reference({
        name: text,
        responsible: {},
        type: coded,
        status: coded,
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
      asset_status: loose('id', 'code', 'name', 'description', 'tenant'),
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
        status: loose('id', 'href', 'code', 'name', 'description', 'tenant'),
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
