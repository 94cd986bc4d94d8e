import type { EventType } from './names.ts';

/** Content of a webhook's `properties` list: attributes in the specification, or the kind of names that it contains. */
type PropertyNames = readonly string[] | 'value keys' | 'specification keys' | 'event type codes';

/** Platform 6.3, last column: event types with a filter. All others are sent unfiltered. */
export const PROPERTIES: Readonly<Partial<Record<EventType, PropertyNames>>> = {
  asset_values_created: 'value keys',
  instrumentation_values_created: 'value keys',
  asset_updated: [
    'serial_number',
    'description',
    'production_date',
    'last_seen_at',
    'product',
    'parent',
    'tenant',
    'status',
  ],
  edge_device_updated: ['serial_number', 'description', 'last_seen_at', 'tenant', 'status', 'type', 'software_version'],
  asset_specifications_updated: 'specification keys',
  event_specifications_updated: 'specification keys',
  event_created: 'event type codes',
  event_document_created: 'event type codes',
};
