import type { EventType } from './names.ts';

/** What a list in the `properties` of a webhook contains: attributes that the document names, or names that are defined elsewhere. */
type PropertyNames = readonly string[] | 'value keys' | 'specification keys' | 'event type codes';

/** Platform 6.3, last column: event types with a filter. All others are sent whole. */
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
