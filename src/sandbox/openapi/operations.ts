import type { WireSchemaName } from './wire-schemas.ts';

/** One operation of the service, as far as the interface names it (platform 4) and section 10 completes it. */
export interface Operation {
  method: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  /** `/v1/assets/{id}/values`. */
  path: string;
  summary: string;
  /** Section of docs/platform.md; `beyond` for its section 10, `own` for what only the sandbox has. */
  source: string;
  /** A form in place of JSON: its fields. */
  form?: readonly string[];
  body?: WireSchemaName;
  query?: readonly string[];
  /** Status of success, with the schema of its body if it has one; `list`: the member that holds a page of them. */
  success: { status: number; schema?: WireSchemaName; list?: string };
  /** Answers with pages for people in place of JSON. */
  html?: true;
  auth: 'bearer' | 'client' | 'none';
}

const PAGE = ['page', 'per_page'] as const;
const APPLICATIONS = '/v1/client_applications';
const WEBHOOKS = `${APPLICATIONS}/{application}/webhooks`;
const DELIVERY_FILTERS = ['status', 'event_type', 'occurred_at', 'occurred_at_from', 'occurred_at_to', 'order_by'];
const ASK = ['response_type', 'client_id', 'redirect_uri', 'state', 'code_challenge', 'code_challenge_method'];

type More = Partial<Operation> & { schema?: WireSchemaName; list?: string };

type Short = [method: Operation['method'], path: string, source: string, summary: string, status: number, more?: More];

const TOKENS: Short[] = [
  [
    'POST',
    '/oauth/token',
    '4.1',
    'Password and refresh grants',
    200,
    client('TokenResponse', ['grant_type', 'username', 'password', 'refresh_token', 'client_id', 'client_secret']),
  ],
  [
    'POST',
    '/oauth/revoke',
    '4.1',
    'Revoke an access token',
    200,
    client('Nothing', ['token', 'client_id', 'client_secret']),
  ],
  ['GET', '/app/id/sign_in', '4.1', 'Sign-in page', 200, { auth: 'none', query: ASK, html: true }],
  [
    'POST',
    '/app/id/sign_in',
    '4.1',
    'Sign in: redirects with code and state',
    302,
    { auth: 'none', form: [...ASK, 'username', 'password', 'deny'], html: true },
  ],
  ['GET', '/app/id/sign_up', '1', 'Sign-up page', 200, { auth: 'none', html: true }],
  [
    'POST',
    '/app/id/sign_up',
    '1',
    'Sign up: a message asks to confirm the address',
    200,
    { auth: 'none', form: ['name', 'email', 'password'], html: true },
  ],
  ['GET', '/app/id/confirm', '1', 'Confirm an e-mail address', 200, { auth: 'none', query: ['token'], html: true }],
  ['GET', '/app/id/subscriptions/new', '1', 'Page of a new connect subscription', 200, { auth: 'none', html: true }],
  [
    'POST',
    '/app/id/subscriptions/new',
    '1',
    'Make a connect subscription: API key, secret and technical user, shown once',
    201,
    { auth: 'none', form: ['username', 'password', 'name', 'redirect_uris'], html: true },
  ],
  [
    'POST',
    '/app/id/oauth/token',
    '4.1',
    'Code and refresh grants of people',
    200,
    client('TokenResponse', [
      'grant_type',
      'client_id',
      'client_secret',
      'code',
      'code_verifier',
      'redirect_uri',
      'refresh_token',
    ]),
  ],
  [
    'POST',
    '/app/id/oauth/revoke',
    '4.1',
    'Revoke a person’s access token',
    200,
    { auth: 'bearer', form: ['token', 'client_id'], schema: 'Nothing' },
  ],
];

const VALUES: Short[] = [
  ['POST', '/v1/assets/{id}/values', 'beyond', 'Post values to an asset', 204, { body: 'ValuesBody' }],
  [
    'GET',
    '/v1/assets/{id}/values',
    'own',
    'Last value of each key',
    200,
    { query: PAGE, schema: 'LastValue', list: 'values' },
  ],
  [
    'GET',
    '/v1/assets/{id}/values/{key}',
    'own',
    'Values of a key',
    200,
    { query: ['from', 'to', ...PAGE], schema: 'ReadValue', list: 'data' },
  ],
];

const OBJECTS: Short[] = (
  [
    ['assets', 'Asset'],
    ['instrumentations', 'Instrumentation'],
    ['nodes', 'Node'],
    ['units', 'Unit'],
  ] as const
).map(
  ([kind, schema]): Short => [
    'GET',
    `/v1/${kind}/{id}`,
    '6.2',
    `What an event's reference to one of ${kind} leads to`,
    200,
    { schema },
  ],
);

const CLIENT_APPLICATIONS: Short[] = [
  [
    'GET',
    APPLICATIONS,
    '4.5',
    'Client applications by name',
    200,
    { query: ['name', ...PAGE], schema: 'ClientApplication', list: 'client_applications' },
  ],
  [
    'GET',
    `${APPLICATIONS}/current`,
    'beyond',
    'The client application of the token',
    200,
    { schema: 'ClientApplication' },
  ],
  ['GET', `${APPLICATIONS}/{id}`, 'beyond', 'A client application', 200, { schema: 'ClientApplication' }],
  [
    'GET',
    '/v1/api_subscriptions',
    'beyond',
    'Quota and use',
    200,
    { query: PAGE, schema: 'ApiSubscription', list: 'api_subscriptions' },
  ],
  ['GET', WEBHOOKS, 'beyond', 'Webhooks', 200, { query: PAGE, schema: 'Webhook', list: 'webhooks' }],
  ['POST', WEBHOOKS, '4.5', 'Register a webhook', 201, { body: 'WebhookCreate', schema: 'WebhookCreated' }],
  ['GET', `${WEBHOOKS}/{webhook}`, 'beyond', 'A webhook', 200, { schema: 'Webhook' }],
  ['PATCH', `${WEBHOOKS}/{webhook}`, '4.5', 'Change, enable or disable a webhook', 204, { body: 'WebhookChange' }],
  ['DELETE', `${WEBHOOKS}/{webhook}`, 'beyond', 'Delete a webhook', 204],
  ['POST', `${WEBHOOKS}/{webhook}/reset_secret`, 'beyond', 'Change the secret', 200, { schema: 'WebhookSecret' }],
  [
    'GET',
    `${WEBHOOKS}/{webhook}/events`,
    '4.5',
    'Deliveries',
    200,
    { query: [...DELIVERY_FILTERS, ...PAGE], schema: 'Delivery', list: 'events' },
  ],
  ['POST', `${WEBHOOKS}/{webhook}/events`, '4.5', 'Send events again', 204, { body: 'ResendBody' }],
];

const FILTER = ['permitable_id', 'permitable_type', ...PAGE];
const PERMISSIONS: Short[] = [
  [
    'GET',
    '/v1/permissions',
    '4.2',
    'Permissions, one record a type',
    200,
    { query: FILTER, schema: 'PermissionV1', list: 'permissions' },
  ],
  [
    'POST',
    '/v1/permissions',
    '4.2',
    'Give permissions',
    201,
    { body: 'PermissionCreateV1', schema: 'PermissionV1', list: 'permissions' },
  ],
  ['GET', '/v1/permissions/{id}', '4.2', 'A permission', 200, { schema: 'PermissionV1' }],
  ['DELETE', '/v1/permissions/{id}', '4.2', 'Take one type, or with all=true all of the pair', 204, { query: ['all'] }],
  ['POST', '/v1/owners', '4.2', 'Add an owner', 201, { body: 'OwnerV1', schema: 'OwnerV1' }],
  ['DELETE', '/v1/owners', '4.2', 'Remove an owner', 204, { body: 'OwnerV1' }],
  [
    'GET',
    '/v2/permissions',
    '4.2',
    'Permissions, one record a pair',
    200,
    { query: FILTER, schema: 'PermissionV2', list: 'permissions' },
  ],
  ['POST', '/v2/permissions', '4.2', 'Give permissions', 201, { body: 'PermissionCreateV2', schema: 'PermissionV2' }],
  ['GET', '/v2/permissions/{id}', '4.2', 'A permission', 200, { schema: 'PermissionV2' }],
  [
    'PATCH',
    '/v2/permissions/{id}',
    '4.2',
    'Set the types of a pair',
    200,
    { body: 'PermissionChangeV2', schema: 'PermissionV2' },
  ],
  ['DELETE', '/v2/permissions/{id}', '4.2', 'Take all types of a pair', 204],
  ['POST', '/v2/owners', '4.2', 'Add an owner', 201, { body: 'OwnerV2', schema: 'OwnerV2' }],
  ['DELETE', '/v2/owners', '4.2', 'Remove an owner', 204, { body: 'OwnerV2' }],
];

const MEMBER_VERBS = { POST: 'Add', PATCH: 'Replace', DELETE: 'Remove' } as const;
const MEMBERS: Short[] = (['POST', 'PATCH', 'DELETE'] as const).flatMap((method) =>
  (
    [
      ['/v1/tenants/{id}/admins', 'AdminsV1'],
      ['/v1/tenants/{id}/users', 'UsersV1'],
      ['/v1/userroles/{id}/users', 'UsersV1'],
      ['/v2/tenants/{id}/admins', 'UsersV2'],
      ['/v2/tenants/{id}/users', 'UsersV2'],
      ['/v2/userroles/{id}/users', 'UsersV2'],
    ] as const
  ).map(([path, body]): Short => [method, path, '4.3', `${MEMBER_VERBS[method]} members`, 204, { body }]),
);

const LABELS: Short[] = (['assets', 'instrumentations'] as const).flatMap((kind): Short[] => [
  [
    'PATCH',
    `/v1/${kind}/{id}/display_labels`,
    '4.4',
    'Set labels, flat',
    200,
    { body: 'DisplayLabelsV1', schema: 'DisplayLabelsV1' },
  ],
  [
    'PATCH',
    `/v2/${kind}/{id}/display_labels`,
    '4.4',
    'Set labels, nested',
    200,
    { body: 'DisplayLabelsV2', schema: 'DisplayLabelsV2' },
  ],
]);

/** Every operation that platform 4 or 10 names, and the few that the sandbox adds to read values back. */
export const OPERATIONS: readonly Operation[] = [
  ...TOKENS,
  ...VALUES,
  ...OBJECTS,
  ...CLIENT_APPLICATIONS,
  ...PERMISSIONS,
  ...MEMBERS,
  ...LABELS,
].map(([method, path, source, summary, status, { schema, list, ...more } = {}]) => ({
  method,
  path,
  source,
  summary,
  auth: 'bearer' as const,
  ...more,
  success: { status, ...(schema === undefined ? {} : { schema }), ...(list === undefined ? {} : { list }) },
}));

function client(schema: WireSchemaName, form: readonly string[]): More {
  return { auth: 'client', form, schema };
}
