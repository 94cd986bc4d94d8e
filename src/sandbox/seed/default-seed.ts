import type { SandboxSeed } from './seed.ts';

/** Public credentials in the default seed (docs/reference/sandbox.md). */
export const SANDBOX_CREDENTIALS = {
  clientId: 'sandbox-client',
  clientSecret: 'sandbox-secret',
  technicalUsername: 'gateway@sandbox.example',
  technicalPassword: 'gateway-password',
  clientApplication: 'sandbox-application',
  /** Credentials of a person, for the sign-in page. */
  userEmail: 'anna@sandbox.example',
  userPassword: 'anna-password',
} as const;

/** Twelve measuring points in addition to those in the examples of docs/interface.md. */
const POINTS: readonly [asset: number, instrumentation: number, tag: string][] = [
  [882, 4712, 'FT-102'],
  [883, 4713, 'PT-101'],
  [884, 4714, 'PT-102'],
  [885, 4715, 'TT-101'],
  [886, 4716, 'TT-102'],
  [887, 4717, 'LT-101'],
  [888, 4718, 'LT-102'],
  [889, 4719, 'AT-101'],
  [890, 4720, 'AT-102'],
  [891, 4721, 'QT-101'],
  [892, 4722, 'PDT-101'],
  [893, 4723, 'FIC-101'],
];

const EVERYTHING = ['can_read', 'can_update', 'can_delete', 'can_permit'] as const;

/** A small site with an example for every rule. Of its 20 assets, three are children of a fourth. */
export const defaultSeed: SandboxSeed = {
  users: [
    {
      id: 5,
      email: SANDBOX_CREDENTIALS.technicalUsername,
      password: SANDBOX_CREDENTIALS.technicalPassword,
      name: 'Gateway',
      technical: true,
    },
    { id: 6, email: SANDBOX_CREDENTIALS.userEmail, password: SANDBOX_CREDENTIALS.userPassword, name: 'Anna' },
    { id: 7, email: 'ben@sandbox.example', password: 'ben-password', name: 'Ben' },
  ],
  usergroups: [{ id: 40, name: 'Shift A', members: [7] }],
  tenants: [{ id: 50, name: 'Sandbox site', admins: [6], users: [5, 6, 7] }],
  userroles: [
    { id: 60, name: 'Operator', users: [6] },
    { id: 61, name: 'Reporting', users: [5], reporting: true },
  ],
  client_applications: [
    {
      id: 3,
      name: SANDBOX_CREDENTIALS.clientApplication,
      client_id: SANDBOX_CREDENTIALS.clientId,
      client_secret: SANDBOX_CREDENTIALS.clientSecret,
      technical_user: SANDBOX_CREDENTIALS.technicalUsername,
      code_flow: true,
      // A loopback address without a port matches any port (RFC 8252 section 7.3).
      redirect_uris: [
        'http://127.0.0.1/callback',
        'http://localhost/callback',
        'http://[::1]/callback',
        'http://127.0.0.1/',
        'https://client.example/callback',
      ],
      contact: SANDBOX_CREDENTIALS.userEmail,
    },
  ],
  units: [
    { id: 1, code: 'one', symbol: '', quantity: 'ratio', factor: 1 },
    { id: 2, code: 'percent', symbol: '%', quantity: 'ratio', factor: 0.01 },
    { id: 10, code: 'kelvin', symbol: 'K', quantity: 'temperature', factor: 1 },
    { id: 11, code: 'degree_celsius', symbol: '°C', quantity: 'temperature', factor: 1, offset: 273.15 },
    { id: 12, code: 'cubic_meter_per_hour', symbol: 'm³/h', quantity: 'flow', factor: 1 },
    { id: 13, code: 'liter_per_minute', symbol: 'l/min', quantity: 'flow', factor: 0.06 },
    {
      id: 14,
      code: 'degree_fahrenheit',
      symbol: '°F',
      quantity: 'temperature',
      factor: 5 / 9,
      offset: 459.67 * (5 / 9),
    },
    { id: 15, code: 'bar', symbol: 'bar', quantity: 'pressure', factor: 100_000 },
    { id: 16, code: 'pascal', symbol: 'Pa', quantity: 'pressure', factor: 1 },
    { id: 17, code: 'meter', symbol: 'm', quantity: 'length', factor: 1 },
    { id: 18, code: 'ph', symbol: 'pH' },
    { id: 19, code: 'byte', symbol: 'B', quantity: 'data', factor: 1 },
    { id: 20, code: 'byte_per_second', symbol: 'B/s' },
    { id: 21, code: 'second', symbol: 's', quantity: 'time', factor: 1 },
  ],
  asset_statuses: [
    { id: 70, code: 'ok', name: 'OK' },
    { id: 71, code: 'failure', name: 'Failure', description: 'The device needs attention', tenant: 50 },
  ],
  event_statuses: [
    { id: 74, code: 'done', name: 'Done' },
    { id: 75, code: 'scheduled', name: 'Scheduled' },
  ],
  event_types: [
    { id: 76, code: 'maintenance', name: 'Maintenance' },
    { id: 77, code: 'calibration', name: 'Calibration' },
  ],
  product_statuses: [
    { id: 80, code: 'active', name: 'Active', tenant: 50 },
    { id: 81, code: 'phase_out', name: 'Phase out', tenant: 50 },
  ],
  edge_device_statuses: [
    { id: 85, code: 'online', name: 'Online' },
    { id: 86, code: 'offline', name: 'Offline' },
  ],
  products: [{ id: 90, name: 'Flowmeter 300', product_code: 'FM300', status: 80 }],
  software: [
    { id: 95, name: 'Firmware 01.06' },
    { id: 96, name: 'Firmware 01.07' },
  ],
  edge_devices: [
    { id: 30, serial_number: 'ED-0001', tenant: 50, status: 85, type: 'gateway', software_version: '1.0' },
  ],
  documents: [
    { id: 34, name: 'Operating manual' },
    { id: 35, name: 'Calibration certificate' },
  ],
  events: [{ id: 39, name: 'Yearly calibration', type: 77, status: 75, assets: [881], instrumentations: [4711] }],
  bills_of_material: [{ id: 22, name: 'Dosing skid' }],
  purchase_orders: [{ id: 23, name: 'PO-2026-0001' }],
  deliveries: [{ id: 24, name: 'DN-2026-0001' }],
  quotations: [{ id: 25, name: 'Q-2026-0001' }],
  requests_of_quotation: [{ id: 26, name: 'RFQ-2026-0001' }],
  systems: [{ id: 36, name: 'Inlet' }],
  recipes: [{ id: 37, name: 'Cleaning' }],
  subscriptions: [
    {
      id: 45,
      display_name: 'Sandbox Connect',
      user: 6,
      material_number: 'SBX-1',
      billing_address: {
        id: 46,
        company_name: 'Sandbox Ltd',
        street: 'Main Street 1',
        zip_code: '12345',
        city: 'Sandton',
        country_code: 'DE',
      },
    },
  ],
  add_ons: [{ id: 47, subscription: 45, nodes: [] }],
  assets: [
    { id: 881, serial_number: 'SN-000881', description: 'Inlet flow', product: 90, tenant: 50, status: 70 },
    ...POINTS.map(([id, , tag]) => ({ id, serial_number: `SN-000${id}`, description: tag, tenant: 50, status: 70 })),
    { id: 900, serial_number: 'GW-01', description: 'The gateway itself', tenant: 50, status: 70 },
    { id: 901, serial_number: 'GW-02', description: 'A second gateway', tenant: 50, status: 70 },
    { id: 910, serial_number: 'SK-910', description: 'Dosing skid', tenant: 50, status: 70 },
    { id: 911, serial_number: 'SK-911', description: 'Pump of the skid', parent: 910, tenant: 50, status: 70 },
    { id: 912, serial_number: 'SK-912', description: 'Valve of the skid', parent: 910, tenant: 50, status: 70 },
    { id: 913, serial_number: 'SK-913', description: 'Sensor of the skid', parent: 910, tenant: 50, status: 70 },
    { id: 920, serial_number: 'XX-920', description: 'An asset of another owner', status: 70 },
  ],
  instrumentations: [
    { id: 4711, tag: 'FT-101', assets: [881] },
    ...POINTS.map(([asset, id, tag]) => ({ id, tag, assets: [asset] })),
    { id: 4790, tag: 'GW-01', assets: [900] },
  ],
  nodes: [
    // The only node that the gateway can read.
    { id: 19, name: 'Control context', tag: 'CTRL' },
    { id: 20, name: 'Inlet', tag: 'INLET', assets: [881, 882] },
    { id: 21, name: 'Utilities', tag: 'UTIL', assets: [882, 910] },
  ],
  permissions: [
    {
      user: SANDBOX_CREDENTIALS.technicalUsername,
      // The skid's children (911 to 913) inherit permissions; asset 920 has no permissions.
      on: { Asset: [881, ...POINTS.map(([asset]) => asset), 900, 901, 910], 'EDM::EdgeDevice': 30 },
      types: [...EVERYTHING],
    },
    { user: SANDBOX_CREDENTIALS.technicalUsername, on: { Node: 19, Event: 39 }, types: ['can_read'] },
    {
      user: SANDBOX_CREDENTIALS.technicalUsername,
      on: { Instrumentation: [4711, ...POINTS.map(([, instrumentation]) => instrumentation), 4790] },
      types: [...EVERYTHING],
    },
    { user: SANDBOX_CREDENTIALS.userEmail, on: { Node: [20, 21], Usergroup: 40 }, types: [...EVERYTHING] },
  ],
  owners: [{ user: SANDBOX_CREDENTIALS.userEmail, on: { Asset: 881 } }],
};
