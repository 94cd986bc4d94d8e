/** The 23 event types, in the order of platform 6.3. */
export const EVENT_TYPES = [
  'asset_value_created',
  'asset_values_created',
  'instrumentation_values_created',
  'asset_updated',
  'asset_software_added',
  'asset_instrumentation_association_created',
  'asset_instrumentation_association_destroyed',
  'edge_device_updated',
  'asset_appeared',
  'asset_disappeared',
  'instrumentation_appeared',
  'instrumentation_disappeared',
  'node_appeared',
  'node_disappeared',
  'asset_specifications_updated',
  'event_specifications_updated',
  'event_created',
  'event_document_created',
  'asset_health_condition_updated',
  'product_status_changed',
  'threshold_reached',
  'add_on_node_association_created',
  'add_on_node_association_destroyed',
] as const;

export type EventType = (typeof EVENT_TYPES)[number];

/** Types that report which objects this technical user can see (platform 6.3). */
export const ACCESS_EVENT_TYPES = [
  'asset_appeared',
  'asset_disappeared',
  'instrumentation_appeared',
  'instrumentation_disappeared',
  'node_appeared',
  'node_disappeared',
] as const satisfies readonly EventType[];

/**
 * Types that change access. Through an association, an asset inherits the permissions of its instrumentation (platform
 * 2.2).
 */
export const ACCESS_TYPES = [
  ...ACCESS_EVENT_TYPES,
  'asset_instrumentation_association_created',
] as const satisfies readonly EventType[];

export type AccessEventType = (typeof ACCESS_EVENT_TYPES)[number];

const KNOWN: ReadonlySet<string> = new Set(EVENT_TYPES);

export function isEventType(text: string): text is EventType {
  return KNOWN.has(text);
}
