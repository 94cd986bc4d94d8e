import type { PermissionType, PermitableType } from '../../contract/permissions.ts';

/**
 * What the sandbox knows about the site. Plain data throughout (ids and lists), so that a seed file, the state file
 * and the memory have one form. Most fields of these resources are "not shown" (platform 2.7): here stands what the
 * payloads of platform 6.3 need and no more.
 */
export interface Asset {
  id: number;
  serial_number: string;
  description?: string;
  production_date?: string;
  last_seen_at?: string;
  product?: number;
  parent?: number;
  tenant?: number;
  status?: number;
  /** Software assigned to it, by id. */
  software?: number[];
  specifications?: Record<string, Specification>;
  health_conditions?: HealthCondition[];
}

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

export interface Instrumentation {
  id: number;
  tag: string;
  /** Assets assigned to it, by id. */
  assets: number[];
}

interface SiteNode {
  id: number;
  name: string;
  tag?: string;
  /** Assets under it, by id. */
  assets: number[];
}

export interface User {
  id: number;
  email: string;
  password: string;
  name?: string;
  /** Platform 1: devices and machines; they alone may use the password grant (platform 5.2). */
  technical: boolean;
  /** Platform 1: the e-mail address, by the link of a message. `false`: not yet; absent is yes. */
  confirmed?: boolean;
}

interface Usergroup {
  id: number;
  name: string;
  members: number[];
}

interface Tenant {
  id: number;
  name: string;
  admins: number[];
  users: number[];
}

interface UserRole {
  id: number;
  name: string;
  users: number[];
  /** The role that platform 6.3 calls "reporting": its technical users hear of destroyed assets. */
  reporting?: boolean;
}

export interface Unit {
  id: number;
  code: string;
  symbol: string;
  /** value in the base unit = value × factor + offset. Units with the same `quantity` can be turned into one another. */
  quantity?: string;
  factor?: number;
  offset?: number;
}

/** One form for asset, event, product and edge device status. */
interface Status {
  id: number;
  code: string;
  name: string;
  description?: string;
  tenant?: number;
}

interface Product {
  id: number;
  name: string;
  product_code: string;
  status?: number;
  phase_out_date?: string | null;
  order_stop_date?: string | null;
  spare_parts_until?: string | null;
  spare_sensors_until?: string | null;
  repair_until?: string | null;
  calibration_until?: string | null;
}

export interface EdgeDevice {
  id: number;
  serial_number: string;
  description?: string;
  last_seen_at?: string;
  tenant?: number;
  status?: number;
  type?: string;
  software_version?: string;
}

export interface SiteEvent {
  id: number;
  name: string;
  responsible?: string | null;
  /** Event type, a status-like record in `event_types`. */
  type: number;
  status?: number;
  assets: number[];
  instrumentations: number[];
  documents: number[];
  specifications?: Record<string, Specification>;
}

/** Objects of which the interface names no more than that they are there (platform 1). */
interface Named {
  id: number;
  name: string;
}

interface Subscription {
  id: number;
  display_name: string;
  user: number;
  material_number?: string;
  billing_address?: {
    id: number;
    company_name: string;
    street: string;
    zip_code: string;
    city: string;
    country_code: string;
  };
}

interface AddOn {
  id: number;
  subscription: number;
  /** Nodes it is linked to, by id. */
  nodes: number[];
}

/** Platform 2.3, with the technical user of its connect subscription (platform 5.1); its API keys are records of their own. */
export interface Application {
  id: number;
  name: string;
  /** Technical user, by id. */
  technical_user: number;
  /** The connect subscription is active; absent is yes. Platform 6.1: without an active one webhooks are not called. */
  active?: boolean;
  /** Platform 5.3: "approved and enabled by support". */
  code_flow?: boolean;
  redirect_uris?: string[];
  /** Whom a disabled webhook is reported to (platform 3.2). */
  contact?: string;
  /** 0 or absent: none. Calls of the API and of webhooks count, and the payload bytes of webhooks (platform 6.1). */
  call_quota?: number;
  byte_quota?: number;
}

/** Platform 5.1: an API key of type OAuth is a client id, with its secret. */
export interface ApiKey {
  id: number;
  /** Client application, by id. */
  client_application: number;
  client_id: string;
  client_secret: string;
}

export interface Threshold {
  id: number;
  type: 'high' | 'low' | 'deviation';
  name: string;
  thresholdable_type: 'System' | 'Recipe' | 'Instrumentation';
  thresholdable_id: number;
  /** Assets looked at; an instrumentation's threshold looks at the assets assigned to it. */
  assets?: number[];
  /** Value key; absent: every key. */
  key?: string;
  value: number;
  /** With `deviation`: how far from `value` is too far. */
  tolerance?: number;
  /** Unit code. */
  unit?: string;
}

/** One direct grant: one record for a pair of assignable and permitable, as v2 shows it. */
export interface Grant {
  id: number;
  assignable: { type: 'User' | 'Usergroup'; id: number };
  permitable: { type: PermitableType; id: number };
  types: PermissionType[];
}

export interface Owner {
  user: number;
  permitable: { type: PermitableType; id: number };
}

/** A message to a person, which the platform would send by mail (platform 3.2). */
export interface Notice {
  at: string;
  contact: string | undefined;
  text: string;
  /** What it asks to follow. */
  link?: string;
}

/** Everything by kind. */
export interface SiteRecords {
  assets: Asset;
  instrumentations: Instrumentation;
  nodes: SiteNode;
  users: User;
  usergroups: Usergroup;
  tenants: Tenant;
  userroles: UserRole;
  units: Unit;
  asset_statuses: Status;
  event_statuses: Status;
  event_types: Status;
  product_statuses: Status;
  edge_device_statuses: Status;
  products: Product;
  software: Named;
  edge_devices: EdgeDevice;
  events: SiteEvent;
  documents: Named;
  systems: Named;
  recipes: Named;
  add_ons: AddOn;
  subscriptions: Subscription;
  client_applications: Application;
  api_keys: ApiKey;
  bills_of_material: Named;
  purchase_orders: Named;
  deliveries: Named;
  quotations: Named;
  requests_of_quotation: Named;
  thresholds: Threshold;
  permissions: Grant;
}

export type Kind = keyof SiteRecords;

export const KINDS = [
  'assets',
  'instrumentations',
  'nodes',
  'users',
  'usergroups',
  'tenants',
  'userroles',
  'units',
  'asset_statuses',
  'event_statuses',
  'event_types',
  'product_statuses',
  'edge_device_statuses',
  'products',
  'software',
  'edge_devices',
  'events',
  'documents',
  'systems',
  'recipes',
  'add_ons',
  'subscriptions',
  'client_applications',
  'api_keys',
  'bills_of_material',
  'purchase_orders',
  'deliveries',
  'quotations',
  'requests_of_quotation',
  'thresholds',
  'permissions',
] as const satisfies readonly Kind[];

/** Which kind holds what a permission names (platform 2.2). */
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

/** Which kind holds what a threshold is of (platform 6.3). */
export const KIND_OF_THRESHOLDABLE = {
  Instrumentation: 'instrumentations',
  System: 'systems',
  Recipe: 'recipes',
} as const satisfies Readonly<Record<Threshold['thresholdable_type'], Kind>>;

/** What people call one of a kind: `assets` is `asset`, `bills_of_material` is `bill of material`. */
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
