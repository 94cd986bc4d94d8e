import type { EventType } from './names.ts';
import { byKey, demanding, leaf, listOf, loose, object, orNull, type Shape, sentAs, unchecked } from './shape.ts';

/**
 * What the content of each event type is (platform 6.3): the one table. From it come the schema that a receiver goes by, its types,
 * the outline by which `check` reads rules, and the schema of what the sandbox sends.
 *
 * What holds and reactions stand on is required: the object that the event is about, by its integer id; of a threshold also the
 * value and which limit it is. What they compare has to have its type. Everything else may be missing, null, or of another
 * form than the spec shows, and members that the spec does not know are let through.
 */
const TEXT = { type: 'string' } as const;
const TEXT_OR_NULL = { type: ['string', 'null'] } as const;
const TIME = { type: 'string', format: 'date-time' } as const;
const INTEGER = { type: 'integer' } as const;
const NUMBER = { type: 'number' } as const;

const id = leaf<number>(INTEGER, 'number', INTEGER);
const text = leaf<string>(TEXT_OR_NULL, 'text', TEXT);
/** The sandbox has some without it. */
const perhapsText = sentAs(text, TEXT_OR_NULL);
const time = sentAs(text, TIME);
const number = leaf<number>(NUMBER, 'number', NUMBER);
const perhapsNumber = leaf<number>({ type: ['number', 'null'] }, 'number', NUMBER);
/** A number that comes as text in `asset_value_created`, as a number in the grouped types. */
const measured = leaf<string | number>({ type: ['string', 'number', 'null'] }, 'text', TEXT);
/** The spec names it and leaves its form open. */
const open = unchecked(leaf({}, 'open', TEXT_OR_NULL));

/** A reference of platform 6.2, with what a type adds to it. */
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
/** What a status or an asset status is. */
const named = { code: text, name: text, description: perhapsText, tenant: orNull(ref, 'sent') };

const unitOfValue = loose(ref);
const head = { key: text, group: perhapsText, unit: sentAs(unitOfValue, orNull(ref, 'sent').sent) };
const point = object({ timestamp: time, value: sentAs(measured, NUMBER) });
const values = orNull(listOf(object({ ...head, data: orNull(listOf(point)) })));

/** Of what changed only a status is shown; the other attributes are those that the filter knows. */
const CHANGED = {
  type: 'object',
  properties: { id: INTEGER, href: TEXT },
  required: ['id', 'href'],
  additionalProperties: { anyOf: [ref.sent, TEXT_OR_NULL] },
};
function updated<S extends Record<string, Shape>>(more: S) {
  const attributes = {
    serial_number: unchecked(text),
    description: unchecked(text),
    last_seen_at: unchecked(text),
    tenant: open,
    status: loose(ref),
  };
  return sentAs(reference({ ...attributes, ...more }), CHANGED);
}

const specification = loose(object({ unit: text, value: text, updated_at: text, source_timestamp: text }));
const specifications = orNull(
  byKey(
    sentAs(
      specification,
      object({
        unit: perhapsText,
        value: leaf({}, 'open', { type: ['string', 'number', 'boolean', 'null'] }),
        updated_at: time,
        source_timestamp: perhapsText,
      }).sent,
    ),
  ),
);

const conditions = orNull(
  listOf(
    object({
      diagnosis_code: text,
      id: leaf<number>({ type: ['integer', 'null'] }, 'number', INTEGER),
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

const address = object({
  id,
  company_name: text,
  street: text,
  zip_code: text,
  city: text,
  country_code: text,
});
const addOnNode = object(
  {
    add_on: object({ id }, ['id']),
    node: ref,
    subscription: unchecked(
      reference({
        display_name: text,
        user: object({ id, email: perhapsText }),
        billing_address: orNull(address, 'sent'),
        material_number: perhapsText,
      }),
    ),
  },
  ['add_on', 'node'],
);

/**
 * Thresholds of a System or a Recipe may concern an asset without an instrumentation: one of the two has to be named.
 * `threshold.type` is any text, so that a type added later is an event that no rule for `high` matches, not an unknown one.
 */
const thresholdContent = object(
  {
    asset: sentAs(orNull(ref), ref.sent),
    // The row says no more than "instrumentation", which the sandbox takes by the letter; shown whole, one has its tag.
    instrumentation: sentAs(orNull(reference({ tag: text })), ref.sent),
    data: object({ value: number, key: text, timestamp: time, unit }, ['value']),
    threshold: object(
      {
        type: leaf<string>(TEXT, ['high', 'low', 'deviation'], { enum: ['high', 'low', 'deviation'] }),
        name: text,
        value: perhapsNumber,
        unit,
        thresholdable_type: leaf<string>(TEXT_OR_NULL, ['System', 'Recipe', 'Instrumentation'], {
          enum: ['System', 'Recipe', 'Instrumentation'],
        }),
        value_in_threshold_unit: sentAs(perhapsNumber, { type: ['number', 'null'] }),
      },
      ['type'],
    ),
  },
  ['data', 'threshold'],
);
const thresholdReached = demanding(
  // Sent without an instrumentation for an asset that has none.
  sentAs(thresholdContent, { ...thresholdContent.sent, required: ['asset', 'data', 'threshold'] }),
  {
    anyOf: [
      { properties: { asset: { type: 'object' } }, required: ['asset'] },
      { properties: { instrumentation: { type: 'object' } }, required: ['instrumentation'] },
    ],
  },
);

export const SHAPES = {
  asset_value_created: object({ asset, value: orNull(object({ ...head, timestamp: time, value: measured })) }, [
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
  // The one names the node by `tag`, the other by `name`.
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
        status: sentAs(coded, orNull(coded, 'sent').sent),
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
        phase_out_date: perhapsText,
        order_stop_date: perhapsText,
        spare_parts_until: perhapsText,
        spare_sensors_until: perhapsText,
        repair_until: perhapsText,
        calibration_until: perhapsText,
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
