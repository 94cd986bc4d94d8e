import type { DisplayLabel } from '../../contract/labels.ts';
import type { PermitableType } from '../../contract/permissions.ts';
import type { Forms } from '../http/forms.ts';

/**
 * Site records, declared once in a table, from which types, checks and the admin API kinds are derived. Records are
 * plain data (IDs and lists). Most fields of these resources are "not shown" (platform 2.7), so records contain only
 * members that event contents require (platform 6.3).
 *
 * A `?` marks an optional member; a list contains the allowed values of a member. A member with the form `ids` is empty
 * if omitted.
 */
const NAMED = { name: 'text' } as const;
const STATUS = { code: 'text', name: 'text', description: '?text', tenant: '?id' } as const;

export const MEMBERS = {
  assets: {
    serial_number: 'text',
    description: '?text',
    production_date: '?text',
    last_seen_at: '?text',
    health_conditions: '?objects',
    product: '?id',
    parent: '?id',
    tenant: '?id',
    status: '?id',
    software: '?ids',
    specifications: '?object',
  },
  instrumentations: { tag: 'text', assets: 'ids' },
  nodes: { name: 'text', tag: '?text', assets: 'ids' },
  // Only technical users can use the password grant (platform 5.2). `confirmed: false` means that the e-mail address
  // has not been confirmed.
  users: { email: 'text', password: 'text', name: '?text', technical: '?flag', confirmed: '?flag' },
  usergroups: { name: 'text', members: 'ids' },
  tenants: { name: 'text', admins: 'ids', users: 'ids' },
  // Technical users with a reporting role are notified of deleted assets (platform 6.3).
  userroles: { name: 'text', users: 'ids', reporting: '?flag' },
  // Value in the base unit = value × factor + offset. Units of the same quantity are convertible.
  units: { code: 'text', symbol: 'text', quantity: '?text', factor: '?number', offset: '?number' },
  asset_statuses: STATUS,
  event_statuses: STATUS,
  event_types: STATUS,
  product_statuses: STATUS,
  edge_device_statuses: STATUS,
  products: {
    name: 'text',
    product_code: 'text',
    status: '?id',
    phase_out_date: '?date',
    order_stop_date: '?date',
    spare_parts_until: '?date',
    spare_sensors_until: '?date',
    repair_until: '?date',
    calibration_until: '?date',
  },
  software: NAMED,
  edge_devices: {
    serial_number: 'text',
    description: '?text',
    last_seen_at: '?text',
    tenant: '?id',
    status: '?id',
    type: '?text',
    software_version: '?text',
  },
  events: {
    name: 'text',
    responsible: '?textOrNull',
    type: 'id',
    status: '?id',
    assets: 'ids',
    instrumentations: 'ids',
    documents: 'ids',
    specifications: '?object',
  },
  documents: NAMED,
  systems: NAMED,
  recipes: NAMED,
  add_ons: { subscription: 'id', nodes: 'ids' },
  subscriptions: { display_name: 'text', user: 'id', material_number: '?text', billing_address: '?object' },
  // Platform 2.3 and 5.1. Webhooks require an active subscription (platform 6.1). Quotas limit calls and webhook bytes;
  // 0 means no limit.
  client_applications: {
    name: 'text',
    technical_user: 'id',
    client_id: '?text',
    client_secret: '?text',
    active: '?flag',
    code_flow: '?flag',
    redirect_uris: '?texts',
    contact: '?text',
    call_quota: '?number',
    byte_quota: '?number',
  },
  // Platform 5.1: an API key of type OAuth consists of a client ID and its secret.
  api_keys: { client_application: 'id', client_id: 'text', client_secret: 'text' },
  bills_of_material: NAMED,
  purchase_orders: NAMED,
  deliveries: NAMED,
  quotations: NAMED,
  requests_of_quotation: NAMED,
  // `assets`: the assets of a System or Recipe. Without `key`, a threshold applies to all keys. `tolerance` is used
  // only for `deviation`.
  thresholds: {
    type: ['high', 'low', 'deviation'],
    name: '?text',
    thresholdable_type: ['Instrumentation', 'System', 'Recipe'],
    thresholdable_id: 'id',
    value: 'number',
    tolerance: '?number',
    key: '?text',
    unit: '?text',
    assets: '?ids',
  },
  // One record for each pair of assignable and permitable, as in v2.
  permissions: { assignable: 'assignable', permitable: 'permitable', types: 'permissionTypes' },
} as const;

export type Kind = keyof typeof MEMBERS;
export const KINDS = Object.keys(MEMBERS) as readonly Kind[];

type Value<F> = F extends `?${infer G}`
  ? Value<G>
  : F extends keyof Forms
    ? Forms[F]
    : F extends readonly (infer W)[]
      ? W
      : never;
type Optional<M> = { [N in keyof M]: M[N] extends `?${string}` ? N : never }[keyof M];
type Relations<M> = { [N in keyof M]: M[N] extends 'ids' ? N : never }[keyof M];

/** Members with a more specific type than their form. */
interface Narrowed {
  assets: { specifications?: Record<string, Specification>; health_conditions?: HealthCondition[] };
  events: { specifications?: Record<string, Specification> };
}
type NarrowedOf<K> = K extends keyof Narrowed ? Narrowed[K] : unknown;
type Wide<K extends Kind> = Omit<(typeof MEMBERS)[K], keyof NarrowedOf<K>>;

type RecordOf<M, Left extends keyof M> = { id: number } & { -readonly [N in Exclude<keyof M, Left>]: Value<M[N]> } & {
  -readonly [N in Left]?: Value<M[N]>;
};

export type SiteRecords = { [K in Kind]: RecordOf<Wide<K>, Optional<Wide<K>>> & NarrowedOf<K> };
/** Records in seeds, in which relations may be omitted. */
export type SeedRecords = {
  [K in Kind]: RecordOf<Wide<K>, Optional<Wide<K>> | Relations<Wide<K>>> & NarrowedOf<K>;
};

export type User = SiteRecords['users'];
export type Unit = SiteRecords['units'];
export type Instrumentation = SiteRecords['instrumentations'];
export type SiteEvent = SiteRecords['events'];
export type Application = SiteRecords['client_applications'];
export type ApiKey = SiteRecords['api_keys'];
export type Threshold = SiteRecords['thresholds'];
export type Grant = SiteRecords['permissions'];

export interface Specification {
  unit?: string | null;
  value: string | number | boolean | null;
  updated_at?: string;
  source_timestamp?: string | null;
}

export interface HealthCondition {
  id: number;
  diagnosis_code: string;
  asset_status: number;
  channel?: string | null;
  module?: string | null;
}

export interface Owner {
  user: number;
  permitable: { type: PermitableType; id: number };
}

/** A message to a person, which the platform would send by e-mail (platform 3.2). */
export interface Notice {
  at: string;
  contact: string | undefined;
  text: string;
  link?: string;
}

export type LabelRegistry = Map<string, Record<string, DisplayLabel>>;

/** Kinds by permitable type (platform 2.2). */
export const KIND_OF_PERMITABLE: Readonly<Record<PermitableType, Kind>> = {
  Asset: 'assets',
  Instrumentation: 'instrumentations',
  Node: 'nodes',
  Document: 'documents',
  'EDM::EdgeDevice': 'edge_devices',
  Event: 'events',
  Usergroup: 'usergroups',
  APIKey: 'api_keys',
  ClientApplication: 'client_applications',
  BillOfMaterial: 'bills_of_material',
  PurchaseOrder: 'purchase_orders',
  Delivery: 'deliveries',
  Quotation: 'quotations',
  RequestOfQuotation: 'requests_of_quotation',
  Recipe: 'recipes',
};

/** Kinds by thresholdable type (platform 6.3). */
export const KIND_OF_THRESHOLDABLE = {
  Instrumentation: 'instrumentations',
  System: 'systems',
  Recipe: 'recipes',
} as const satisfies Readonly<Record<Threshold['thresholdable_type'], Kind>>;

/** Returns the singular noun for a kind: `asset` for `assets`, `bill of material` for `bills_of_material`. */
export function nounOf(kind: Kind): string {
  const [first = '', ...rest] = kind.split('_');
  if (rest[0] === 'of') return [singular(first), ...rest].join(' ');
  return singular(kind.replaceAll('_', ' '));
}

function singular(word: string): string {
  return word
    .replace(/ies$/, 'y')
    .replace(/(status)es$/, '$1')
    .replace(/(?<!u)s$/, '');
}

/** Splits a record into the application and its first API key, which has the same ID as the application. */
export function withoutKey(written: Application): { application: Application; key: ApiKey | undefined } {
  const { client_id, client_secret, ...application } = written;
  if (client_id === undefined || client_secret === undefined) return { application, key: undefined };
  return { application, key: { id: application.id, client_application: application.id, client_id, client_secret } };
}

/** Returns an empty list for each relation of a kind. */
export function emptyRelations(kind: Kind): Record<string, number[]> {
  const relations = Object.entries(MEMBERS[kind]).filter(([, form]) => form === 'ids');
  return Object.fromEntries(relations.map(([name]) => [name, []]));
}
