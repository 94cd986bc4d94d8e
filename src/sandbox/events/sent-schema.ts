import type { EventType, JsonSchema } from '../../contract/events.ts';
import { ONE_R } from './announcer.ts';

/**
 * JSON Schemas of what the sandbox sends, member by member as the table of spec 6.3 has it: for the OpenAPI document. What
 * a receiver should let through is wider than that, and stands in `contract/events/schema.ts`.
 */
const text: JsonSchema = { type: 'string' };
const textOrNull: JsonSchema = { type: ['string', 'null'] };
const integer: JsonSchema = { type: 'integer' };
const number: JsonSchema = { type: 'number' };
const time: JsonSchema = { type: 'string', format: 'date-time' };

/** Exactly these members, all of them unless told. */
function object(properties: Record<string, JsonSchema>, required = Object.keys(properties)): JsonSchema {
  return { type: 'object', properties, required, additionalProperties: false };
}
const listOf = (items: JsonSchema): JsonSchema => ({ type: 'array', items });
const orNull = (schema: JsonSchema): JsonSchema => ({ anyOf: [schema, { type: 'null' }] });
const ref = (more: Record<string, JsonSchema> = {}) => object({ id: integer, href: text, ...more });

const head = { key: text, group: textOrNull, unit: orNull(ref()) };
const values = listOf(object({ ...head, data: listOf(object({ timestamp: time, value: number })) }));
const specification = object({
  unit: textOrNull,
  value: { type: ['string', 'number', 'boolean', 'null'] },
  updated_at: time,
  source_timestamp: textOrNull,
});
const specified = () => ref({ specifications: { type: 'object', additionalProperties: specification } });
const conditions = listOf(
  object({
    diagnosis_code: text,
    id: integer,
    asset_status: ref(),
    channel: textOrNull,
    module: textOrNull,
    links: object({ causes: object({ href: text }) }),
  }),
);
/** The attributes that changed, as texts or as references. */
const changed: JsonSchema = {
  type: 'object',
  properties: { id: integer, href: text },
  required: ['id', 'href'],
  additionalProperties: { anyOf: [ref(), textOrNull] },
};
const unit = object({ code: text, symbol: text });
const association = object({ asset: ref(), instrumentation: ref() });
const assetAccess = object({ asset: ref({ serial_number: text }), user: ref() });
const instrumentationAccess = object({ instrumentation: ref({ tag: text }), user: ref() });
const address = object({
  id: integer,
  company_name: text,
  street: text,
  zip_code: text,
  city: text,
  country_code: text,
});
const addOnNode = object({
  add_on: object({ id: integer }),
  node: ref(),
  subscription: ref({
    display_name: text,
    user: object({ id: integer, email: textOrNull }),
    billing_address: orNull(address),
    material_number: textOrNull,
  }),
});
const coded = ref({ code: text });

const SENT: Readonly<Record<EventType, JsonSchema>> = {
  asset_value_created: object({ asset: ref(), value: object({ ...head, timestamp: time, value: text }) }),
  asset_values_created: object({ asset: ref(), values }),
  instrumentation_values_created: object({ instrumentation: ref(), values }),
  asset_updated: object({ asset: changed }),
  asset_software_added: object({ asset: ref(), software: ref() }),
  asset_instrumentation_association_created: association,
  asset_instrumentation_association_destroyed: association,
  edge_device_updated: object({ edge_device: changed }),
  asset_appeared: assetAccess,
  asset_disappeared: assetAccess,
  instrumentation_appeared: instrumentationAccess,
  instrumentation_disappeared: instrumentationAccess,
  node_appeared: object({ node: ref({ tag: text }), user: ref() }),
  node_disappeared: object({ node: ref({ name: text }), user: ref() }),
  asset_specifications_updated: object({ asset: specified() }),
  event_specifications_updated: object({ event: specified() }),
  event_created: object({
    event: ref({
      name: text,
      responsible: textOrNull,
      type: coded,
      status: orNull(coded),
      assets: listOf(ref()),
      instrumentations: listOf(ref()),
      documents: listOf(ref()),
    }),
  }),
  event_document_created: object({ event: ref(), document: ref() }),
  asset_health_condition_updated: object({
    asset: ref(),
    asset_status: object({
      code: text,
      name: text,
      description: textOrNull,
      id: integer,
      tenant: orNull(ref()),
    }),
    health_conditions: conditions,
    previous_health_conditions: conditions,
  }),
  product_status_changed: object({
    product: ref({
      product_code: text,
      phase_out_date: textOrNull,
      order_stop_date: textOrNull,
      spare_parts_until: textOrNull,
      spare_sensors_until: textOrNull,
      repair_until: textOrNull,
      calibration_until: textOrNull,
      name: text,
      status: ref({ code: text, name: text, description: textOrNull, tenant: orNull(ref()) }),
    }),
  }),
  threshold_reached: object({
    asset: ref(),
    // null for an asset without one, which a System's or Recipe's threshold may look at.
    instrumentation: orNull(ref({ tag: text })),
    data: object({ value: number, key: text, timestamp: time, unit }),
    threshold: object({
      type: { enum: ['high', 'low', 'deviation'] },
      name: text,
      value: number,
      unit,
      thresholdable_type: { enum: ['System', 'Recipe', 'Instrumentation'] },
      value_in_threshold_unit: { type: ['number', 'null'] },
    }),
  }),
  add_on_node_association_created: addOnNode,
  add_on_node_association_destroyed: addOnNode,
};

/** The whole payload of one type: the envelope of spec 6.2 around its content. */
export function sentSchema(type: EventType): JsonSchema {
  const stamp = ONE_R.has(type) ? 'occured_at' : 'occurred_at';
  return { title: type, ...object({ event_type: { const: type }, [stamp]: time, content: SENT[type] }) };
}
