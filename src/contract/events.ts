import type { Reference } from './errors.ts';

/** Spec 6.3: all 23 event types, in its order. */
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

/** Types that say what this technical user may see (spec 6.3). */
export const ACCESS_EVENT_TYPES = [
  'asset_appeared',
  'asset_disappeared',
  'instrumentation_appeared',
  'instrumentation_disappeared',
  'node_appeared',
  'node_disappeared',
] as const satisfies readonly EventType[];

export type AccessEventType = (typeof ACCESS_EVENT_TYPES)[number];

/** Spec 6.2: the envelope of every payload. The two association events spell the time `occured_at`. */
export interface EventEnvelope<Type extends string = string, Content = Record<string, unknown>> {
  event_type: Type;
  /** ISO 8601, with or without UTC offset. */
  occurred_at?: string;
  occured_at?: string;
  content: Content;
}

/** Spec 6.3, `threshold_reached`. `deviation` comes from beyond-the-spec. */
export interface ThresholdReachedContent {
  asset: Reference;
  instrumentation: Reference & { tag?: string };
  data: { value: number; key: string; timestamp: string; unit: { code: string; symbol: string } };
  threshold: {
    type: 'high' | 'low' | 'deviation';
    name: string;
    value: number;
    unit: { code: string; symbol: string };
    thresholdable_type: 'System' | 'Recipe' | 'Instrumentation';
    value_in_threshold_unit: number | null;
  };
}

export interface AssetAccessContent {
  asset: Reference & { serial_number: string };
  user: Reference;
}

export interface InstrumentationAccessContent {
  instrumentation: Reference & { tag: string };
  user: Reference;
}
