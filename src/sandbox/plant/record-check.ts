import { PERMISSION_TYPES } from '../../contract/permissions.ts';
import type { Kind } from './records.ts';

export type Form = 'text' | 'number' | 'flag' | 'ids' | 'id' | 'object';

const NAMED = { name: 'text' } as const;
const STATUS = { code: 'text', name: 'text' } as const;

/** What a record cannot be without, by kind; a `?` before the form: only if it is there. */
const MEMBERS: Readonly<Record<Kind, Readonly<Record<string, Form | `?${Form}`>>>> = {
  assets: {
    serial_number: 'text',
    product: '?id',
    parent: '?id',
    tenant: '?id',
    status: '?id',
    software: '?ids',
    specifications: '?object',
  },
  instrumentations: { tag: 'text', assets: '?ids' },
  nodes: { name: 'text', tag: '?text', assets: '?ids' },
  users: { email: 'text', password: 'text', name: '?text', technical: '?flag' },
  usergroups: { name: 'text', members: '?ids' },
  tenants: { name: 'text', admins: '?ids', users: '?ids' },
  userroles: { name: 'text', users: '?ids', reporting: '?flag' },
  units: { code: 'text', symbol: 'text', quantity: '?text', factor: '?number', offset: '?number' },
  asset_statuses: STATUS,
  event_statuses: STATUS,
  event_types: STATUS,
  product_statuses: STATUS,
  edge_device_statuses: STATUS,
  products: { name: 'text', product_code: 'text', status: '?id' },
  software: NAMED,
  edge_devices: { serial_number: 'text', tenant: '?id', status: '?id', last_seen_at: '?text' },
  events: { name: 'text', type: 'id', status: '?id', assets: '?ids', instrumentations: '?ids', documents: '?ids' },
  documents: NAMED,
  systems: NAMED,
  recipes: NAMED,
  add_ons: { subscription: 'id', nodes: '?ids' },
  subscriptions: { display_name: 'text', user: 'id' },
  // A seed names users by e-mail as well.
  client_applications: { name: 'text', client_id: '?text', client_secret: '?text', active: '?flag' },
  api_keys: { client_application: 'id', client_id: 'text', client_secret: 'text' },
  bills_of_material: NAMED,
  purchase_orders: NAMED,
  deliveries: NAMED,
  quotations: NAMED,
  requests_of_quotation: NAMED,
  thresholds: { type: 'text', name: '?text', value: 'number', key: '?text', unit: '?text', assets: '?ids' },
  permissions: { assignable: 'object', permitable: 'object' },
};

const FITS: Readonly<Record<Form, (value: unknown) => boolean>> = {
  text: (value) => typeof value === 'string',
  number: (value) => typeof value === 'number' && Number.isFinite(value),
  flag: (value) => typeof value === 'boolean',
  id: (value) => Number.isSafeInteger(value),
  ids: (value) => Array.isArray(value) && value.every((id) => Number.isSafeInteger(id)),
  object: (value) => typeof value === 'object' && value !== null && !Array.isArray(value),
};

const SAID: Readonly<Record<Form, string>> = {
  text: 'is no text',
  number: 'is no number',
  flag: 'is neither true nor false',
  id: 'is no id',
  ids: 'is no list of ids',
  object: 'is not an object',
};

/** The form of a member, `undefined` where the kind does not check it. */
export function formOf(kind: Kind, member: string): Form | undefined {
  return MEMBERS[kind][member]?.replace('?', '') as Form | undefined;
}

/** What is wrong with a record from a seed file or the admin API: what would only fail later, inside somebody's event. */
export function problemOf(kind: Kind, record: object): { member: string; message: string } | undefined {
  for (const [member, wanted] of Object.entries(MEMBERS[kind])) {
    const form = wanted.replace('?', '') as Form;
    const value = (record as Record<string, unknown>)[member];
    if (value === undefined && wanted.startsWith('?')) continue;
    if (value === undefined) return { member, message: 'is missing' };
    if (!FITS[form](value)) return { member, message: SAID[form] };
  }
  if (kind !== 'permissions') return undefined;
  const { types } = record as { types?: unknown };
  const areTypes = Array.isArray(types) && types.every((type) => PERMISSION_TYPES.includes(type));
  return areTypes ? undefined : { member: 'types', message: `is no list of ${PERMISSION_TYPES.join(', ')}` };
}
