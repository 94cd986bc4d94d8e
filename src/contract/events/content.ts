/**
 * Spec 6.3: the `content` of every event type, as far as `schema.ts` lets it through. What is not optional here is required
 * there; what may be null or of another form says so. A platform that leaves a member out has not made the event unreadable.
 */
export type ReferenceContent = { id: number; href?: string | null };

/** One value as `asset_value_created` sends it: the number comes as text. */
export interface ValueContent {
  key?: string | null;
  group?: string | null;
  /** `{id, href}` by the spec, in whatever form the platform sends it. */
  unit?: unknown;
  timestamp?: string | null;
  value?: string | number | null;
}

/** Values grouped by key, as the two `_values_created` types send them. */
export interface GroupedValuesContent {
  key?: string | null;
  group?: string | null;
  unit?: unknown;
  data?: { timestamp?: string | null; value?: string | number | null }[] | null;
}

export interface AssetValueCreatedContent {
  asset: ReferenceContent;
  value?: ValueContent | null;
}

export interface AssetValuesCreatedContent {
  asset: ReferenceContent;
  values?: GroupedValuesContent[] | null;
}

export interface InstrumentationValuesCreatedContent {
  instrumentation: ReferenceContent;
  values?: GroupedValuesContent[] | null;
}

/** Only the attributes that changed stand beside the id; the spec shows `status {id, href}`. */
export interface AssetUpdatedContent {
  asset: ReferenceContent & { [attribute: string]: unknown };
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
  edge_device: ReferenceContent & { [attribute: string]: unknown };
}

export interface AssetAccessContent {
  asset: ReferenceContent & { serial_number?: string | null };
  user?: unknown;
}

export interface InstrumentationAccessContent {
  instrumentation: ReferenceContent & { tag?: string | null };
  user?: unknown;
}

/** `node_appeared` names the node by `tag`, `node_disappeared` by `name`. */
export interface NodeAppearedContent {
  node: ReferenceContent & { tag?: string | null };
  user?: unknown;
}

export interface NodeDisappearedContent {
  node: ReferenceContent & { name?: string | null };
  user?: unknown;
}

/** By key; each `{unit, value, updated_at, source_timestamp}` by the spec, of which it leaves the forms open. */
type SpecificationsContent = { [key: string]: unknown } | null;

export interface AssetSpecificationsContent {
  asset: ReferenceContent & { specifications?: SpecificationsContent };
}

export interface EventSpecificationsContent {
  event: ReferenceContent & { specifications?: SpecificationsContent };
}

export interface EventCreatedContent {
  event: ReferenceContent & {
    name?: string | null;
    responsible?: unknown;
    /** `{id, code, href}`, as `status`. */
    type?: unknown;
    status?: unknown;
    assets?: ReferenceContent[] | null;
    instrumentations?: ReferenceContent[] | null;
    documents?: ReferenceContent[] | null;
  };
}

export interface EventDocumentCreatedContent {
  event: ReferenceContent;
  document: ReferenceContent;
}

export interface HealthConditionContent {
  id?: number | null;
  diagnosis_code?: string | null;
  /** `{id, href}`. */
  asset_status?: unknown;
  channel?: unknown;
  module?: unknown;
  links?: unknown;
}

export interface AssetHealthConditionContent {
  asset: ReferenceContent;
  /** `{code, name, description, id, tenant}`. */
  asset_status?: unknown;
  health_conditions?: HealthConditionContent[] | null;
  previous_health_conditions?: HealthConditionContent[] | null;
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
    /** `{href, id, code, name, description, tenant}`. */
    status?: unknown;
  };
}

/** At least one of `asset` and `instrumentation` is there. */
export interface ThresholdReachedContent {
  asset?: ReferenceContent | null;
  instrumentation?: (ReferenceContent & { tag?: string | null }) | null;
  /** `unit`: `{code, symbol}`. */
  data: { value: number; key?: string | null; timestamp?: string | null; unit?: unknown };
  threshold: {
    /** `high`, `low`, and `deviation` from beyond the spec; a platform may add one. */
    type: string;
    name?: string | null;
    value?: number | null;
    unit?: unknown;
    /** `System`, `Recipe`, `Instrumentation`. */
    thresholdable_type?: string | null;
    value_in_threshold_unit?: number | null;
  };
}

export interface AddOnNodeContent {
  add_on: { id: number };
  node: ReferenceContent;
  subscription?: unknown;
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
  node_appeared: NodeAppearedContent;
  node_disappeared: NodeDisappearedContent;
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
