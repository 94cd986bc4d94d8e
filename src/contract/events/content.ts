import type { Reference } from '../errors.ts';

/**
 * Spec 6.3: the `content` of every event type. Members that the spec prints but that nothing here stands on are optional
 * or nullable: a platform that leaves one out has not made the event unreadable.
 */

/** One value as `asset_value_created` sends it: the number comes as text. */
export interface ValueContent {
  key: string;
  group?: string | null;
  unit?: (Partial<Reference> & { code?: string }) | null;
  timestamp?: string;
  value: string | number | null;
}

/** Values grouped by key, as the two `_values_created` types send them. */
export interface GroupedValuesContent {
  key: string;
  group?: string | null;
  unit?: (Partial<Reference> & { code?: string }) | null;
  data: { timestamp?: string; value: string | number | null }[];
}

export interface SpecificationContent {
  value?: unknown;
  unit?: string | null;
  updated_at?: string | null;
  source_timestamp?: string | null;
}

export type ReferenceContent = { id: number; href?: string };
type CodedReference = ReferenceContent & { code?: string | null; name?: string | null };

export interface AssetValueCreatedContent {
  asset: ReferenceContent;
  value?: ValueContent;
}

export interface AssetValuesCreatedContent {
  asset: ReferenceContent;
  values?: GroupedValuesContent[];
}

export interface InstrumentationValuesCreatedContent {
  instrumentation: ReferenceContent;
  values?: GroupedValuesContent[];
}

/** Only the attributes that changed stand beside the id. */
export interface AssetUpdatedContent {
  asset: ReferenceContent & { status?: ReferenceContent | null; [attribute: string]: unknown };
}

export interface AssetSoftwareAddedContent {
  asset: ReferenceContent;
  software: ReferenceContent;
}

export interface AssetInstrumentationContent {
  asset: ReferenceContent;
  instrumentation: ReferenceContent;
}

export interface EdgeDeviceUpdatedContent {
  edge_device: ReferenceContent & { status?: ReferenceContent | null; [attribute: string]: unknown };
}

export interface AssetAccessContent {
  asset: Reference & { serial_number: string };
  user: Reference;
}

export interface InstrumentationAccessContent {
  instrumentation: Reference & { tag: string };
  user: Reference;
}

/** `node_appeared` names the node by `tag`, `node_disappeared` by `name`. */
export interface NodeAccessContent {
  node: ReferenceContent & { tag?: string | null; name?: string | null };
  user?: ReferenceContent;
}

export interface AssetSpecificationsContent {
  asset: ReferenceContent & { specifications?: Record<string, SpecificationContent> };
}

export interface EventSpecificationsContent {
  event: ReferenceContent & { specifications?: Record<string, SpecificationContent> };
}

export interface EventCreatedContent {
  event: ReferenceContent & {
    name?: string | null;
    responsible?: unknown;
    type?: CodedReference | null;
    status?: CodedReference | null;
    assets?: ReferenceContent[];
    instrumentations?: ReferenceContent[];
    documents?: ReferenceContent[];
  };
}

export interface EventDocumentCreatedContent {
  event: ReferenceContent;
  document: ReferenceContent;
}

export interface HealthConditionContent {
  id?: number;
  diagnosis_code?: string | null;
  asset_status?: ReferenceContent | null;
  channel?: unknown;
  module?: unknown;
  links?: { causes?: { href?: string } };
}

export interface AssetHealthConditionContent {
  asset: ReferenceContent;
  asset_status?: {
    id?: number;
    code?: string | null;
    name?: string | null;
    description?: string | null;
    tenant?: unknown;
  };
  health_conditions?: HealthConditionContent[];
  previous_health_conditions?: HealthConditionContent[];
}

export interface ProductStatusContent {
  product: ReferenceContent & {
    product_code?: string | null;
    name?: string | null;
    phase_out_date?: string | null;
    order_stop_date?: string | null;
    spare_parts_until?: string | null;
    spare_sensors_until?: string | null;
    repair_until?: string | null;
    calibration_until?: string | null;
    status?: (CodedReference & { description?: string | null; tenant?: unknown }) | null;
  };
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

export interface AddOnNodeContent {
  add_on: { id: number };
  node: ReferenceContent;
  subscription?: {
    id?: number;
    display_name?: string | null;
    user?: { id?: number; email?: string | null } | null;
    billing_address?: {
      id?: number;
      company_name?: string | null;
      street?: string | null;
      zip_code?: string | null;
      city?: string | null;
      country_code?: string | null;
    } | null;
    material_number?: string | null;
    href?: string;
  };
}

/** The content of each type. */
export interface EventContents {
  asset_value_created: AssetValueCreatedContent;
  asset_values_created: AssetValuesCreatedContent;
  instrumentation_values_created: InstrumentationValuesCreatedContent;
  asset_updated: AssetUpdatedContent;
  asset_software_added: AssetSoftwareAddedContent;
  asset_instrumentation_association_created: AssetInstrumentationContent;
  asset_instrumentation_association_destroyed: AssetInstrumentationContent;
  edge_device_updated: EdgeDeviceUpdatedContent;
  asset_appeared: AssetAccessContent;
  asset_disappeared: AssetAccessContent;
  instrumentation_appeared: InstrumentationAccessContent;
  instrumentation_disappeared: InstrumentationAccessContent;
  node_appeared: NodeAccessContent;
  node_disappeared: NodeAccessContent;
  asset_specifications_updated: AssetSpecificationsContent;
  event_specifications_updated: EventSpecificationsContent;
  event_created: EventCreatedContent;
  event_document_created: EventDocumentCreatedContent;
  asset_health_condition_updated: AssetHealthConditionContent;
  product_status_changed: ProductStatusContent;
  threshold_reached: ThresholdReachedContent;
  add_on_node_association_created: AddOnNodeContent;
  add_on_node_association_destroyed: AddOnNodeContent;
}
