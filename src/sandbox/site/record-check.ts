import { insteadOf } from '../../base/nearest.ts';
import { PERMISSION_TYPES, PERMITABLE_TYPES } from '../../contract/permissions.ts';
import type { Kind, SiteRecords } from './records.ts';
import { relationProblemOf } from './relation-check.ts';
import type { SiteModel } from './site-model.ts';

export type Form =
  | 'text'
  | 'textOrNull'
  | 'date'
  | 'user'
  | 'texts'
  | 'number'
  | 'flag'
  | 'ids'
  | 'id'
  | 'object'
  | 'objects'
  | readonly string[];

export interface RecordProblem {
  member: string;
  message: string;
}

const NAMED = { name: 'text' } as const;
const STATUS = { code: 'text', name: 'text', description: '?text', tenant: '?id' } as const;

type Named = Extract<Form, string>;

type Wanted = Named | `?${Named}` | readonly string[];

/** Every member of every kind, so that none can be forgotten; `Extra` are those that only seeds and admins write. */
type Members = {
  readonly [K in Kind]: Readonly<Record<Exclude<keyof SiteRecords[K], 'id'>, Wanted>> &
    Readonly<Record<Extra<K>, Wanted>>;
};
type Extra<K extends Kind> = K extends 'client_applications' ? 'client_id' | 'client_secret' : never;

/** What each member of a record is; a `?` before the form: only if it is there. A list is of the words it may be. */
const MEMBERS: Members = {
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
  instrumentations: { tag: 'text', assets: '?ids' },
  nodes: { name: 'text', tag: '?text', assets: '?ids' },
  users: { email: 'text', password: 'text', name: '?text', technical: '?flag', confirmed: '?flag' },
  usergroups: { name: 'text', members: '?ids' },
  tenants: { name: 'text', admins: '?ids', users: '?ids' },
  userroles: { name: 'text', users: '?ids', reporting: '?flag' },
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
    assets: '?ids',
    instrumentations: '?ids',
    documents: '?ids',
    specifications: '?object',
  },
  documents: NAMED,
  systems: NAMED,
  recipes: NAMED,
  add_ons: { subscription: 'id', nodes: '?ids' },
  subscriptions: { display_name: 'text', user: 'id', material_number: '?text', billing_address: '?object' },
  client_applications: {
    name: 'text',
    technical_user: 'user',
    client_id: '?text',
    client_secret: '?text',
    active: '?flag',
    code_flow: '?flag',
    redirect_uris: '?texts',
    contact: '?text',
    call_quota: '?number',
    byte_quota: '?number',
  },
  api_keys: { client_application: 'id', client_id: 'text', client_secret: 'text' },
  bills_of_material: NAMED,
  purchase_orders: NAMED,
  deliveries: NAMED,
  quotations: NAMED,
  requests_of_quotation: NAMED,
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
  permissions: { assignable: 'object', permitable: 'object', types: 'texts' },
};

const isObject = (value: unknown) => typeof value === 'object' && value !== null && !Array.isArray(value);
const isText = (value: unknown) => typeof value === 'string';

const FITS: Readonly<Record<Named, (value: unknown) => boolean>> = {
  text: isText,
  textOrNull: (value) => value === null || isText(value),
  date: (value) => value === null || (isText(value) && !Number.isNaN(Date.parse(value as string))),
  // A seed names users by e-mail as well.
  user: (value) => Number.isSafeInteger(value) || isText(value),
  texts: (value) => Array.isArray(value) && value.every(isText),
  number: (value) => typeof value === 'number' && Number.isFinite(value),
  flag: (value) => typeof value === 'boolean',
  id: (value) => Number.isSafeInteger(value),
  ids: (value) => Array.isArray(value) && value.every((id) => Number.isSafeInteger(id)),
  object: isObject,
  objects: (value) => Array.isArray(value) && value.every(isObject),
};

const SAID: Readonly<Record<Named, string>> = {
  text: 'is no text',
  textOrNull: 'is neither a text nor null',
  date: 'is neither a date nor null',
  user: 'is no user',
  texts: 'is no list of texts',
  number: 'is no number',
  flag: 'is neither true nor false',
  id: 'is no id',
  ids: 'is no list of ids',
  object: 'is not an object',
  objects: 'is no list of objects',
};

/** The form of a member, `undefined` where the kind does not check it. */
export function formOf(kind: Kind, member: string): Form | undefined {
  const wanted = (MEMBERS[kind] as Readonly<Record<string, Wanted>>)[member];
  return typeof wanted === 'string' ? (wanted.replace('?', '') as Named) : wanted;
}

/** Whether null is a value of the member, as of a product's dates. */
export function mayBeNull(kind: Kind, member: string): boolean {
  const form = formOf(kind, member);
  return form === 'date' || form === 'textOrNull';
}

/**
 * What is wrong with a record from a seed file or the admin API: what would only fail later, inside somebody's event or
 * request. With the site also what it names there; a seed's users go by e-mail as well, and what it names may follow it.
 */
export function problemOf(kind: Kind, record: object, site?: SiteModel): RecordProblem | undefined {
  const known: Readonly<Record<string, Wanted>> = MEMBERS[kind];
  const unknown = Object.keys(record).find((member) => member !== 'id' && !Object.hasOwn(known, member));
  if (unknown !== undefined) {
    return {
      member: unknown.slice(0, 60),
      message: `is no member of ${kind}: ${insteadOf(unknown, Object.keys(known))}`,
    };
  }
  for (const [member, wanted] of Object.entries(known)) {
    const problem = memberProblemOf((record as Record<string, unknown>)[member], wanted);
    if (problem !== undefined) return { member, message: problem };
  }
  const problem = kind === 'permissions' ? permissionProblemOf(record) : undefined;
  return problem ?? (site && relationProblemOf(kind, record, site));
}

function memberProblemOf(value: unknown, wanted: string | readonly string[]): string | undefined {
  if (typeof wanted !== 'string') {
    if (value === undefined) return 'is missing';
    return wanted.includes(value as string) ? undefined : `is ${wanted.slice(0, -1).join(', ')} or ${wanted.at(-1)}`;
  }
  const form = wanted.replace('?', '') as Named;
  if (value === undefined) return wanted.startsWith('?') ? undefined : 'is missing';
  return FITS[form](value) ? undefined : SAID[form];
}

function permissionProblemOf(record: object): RecordProblem | undefined {
  const { assignable, permitable, types } = record as Record<'assignable' | 'permitable', Record<string, unknown>> & {
    types?: unknown;
  };
  const isNamed = (one: Record<string, unknown>, known: readonly string[]) =>
    known.includes(one.type as string) && Number.isSafeInteger(one.id);
  if (!isNamed(assignable, ['User', 'Usergroup'])) {
    return { member: 'assignable', message: 'is not {"type", "id"} with a type of User, Usergroup' };
  }
  if (!isNamed(permitable, PERMITABLE_TYPES)) {
    return { member: 'permitable', message: `is not {"type", "id"} with a type of ${PERMITABLE_TYPES.join(', ')}` };
  }
  const areTypes = Array.isArray(types) && types.length > 0 && types.every((type) => PERMISSION_TYPES.includes(type));
  return areTypes ? undefined : { member: 'types', message: `is no list of ${PERMISSION_TYPES.join(', ')}` };
}
