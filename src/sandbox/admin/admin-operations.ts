/**
 * `/sandbox/…` as the OpenAPI document shows it, and the members that each body may have: the endpoints refuse others by
 * this table, so that a misspelled optional member is an error and not a silence.
 */
export interface AdminOperation {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** After `/sandbox/`: `thresholds/{id}`. */
  path: string;
  summary: string;
  /** Status of success; 204 and 202 have no body, the others JSON. */
  status: number;
  /** Members of the body; `any`: those of the kind or change that the path names. */
  body?: readonly string[] | 'any';
  /** Of the answer, where it is no JSON. */
  type?: string;
  query?: readonly string[];
}

const FAULT_MATCH = ['method', 'path', 'asset', 'nth', 'every', 'times'] as const;
const FAULT = [...FAULT_MATCH, 'status', 'body', 'contentType', 'retryAfter', 'latencyMs', 'drop', 'state'] as const;
const THRESHOLD = [
  ...['id', 'type', 'value', 'instrumentation', 'thresholdable_type', 'thresholdable_id', 'assets'],
  ...['key', 'unit', 'name', 'tolerance'],
] as const;
const REQUEST_MATCH = ['method', 'path', 'asset', 'status', 'after'] as const;
const PERMISSION = ['on', 'user', 'types'] as const;

type Short = [AdminOperation['method'], string, string, number, Pick<AdminOperation, 'body' | 'query' | 'type'>?];

const SHORT: readonly Short[] = [
  ['GET', '', 'The page to look at', 200, { type: 'text/html' }],
  ['GET', 'page/{name}', 'What the page names: script, style, icon', 200, { type: '*/*' }],
  ['GET', 'live', 'The stream of the page', 200, { query: ['asset', 'key'], type: 'text/event-stream' }],
  ['GET', 'status', 'Counts of everything, the clock, the outage', 200],
  ['POST', 'clock', 'Move the clock on, or change its speed', 200, { body: ['advanceMs', 'speed', 'to'] }],
  ['GET', 'values', 'Counts of values', 200, { query: ['asset', 'key'] }],
  ['GET', 'values/list', 'Every value of a series', 200, { query: ['asset', 'key'] }],
  ['GET', 'values/series', 'Which series there are', 200],
  ['POST', 'values/compare', 'Hold what was sent against what is here', 200, { body: ['asset', 'key', 'sent'] }],
  ['DELETE', 'values', 'Forget all values', 204],
  ['POST', 'permissions', 'Give permissions to anyone', 204, { body: PERMISSION }],
  ['DELETE', 'permissions', 'Take permissions away', 204, { body: [...PERMISSION, 'direct'] }],
  ['GET', 'thresholds', 'Thresholds', 200],
  ['POST', 'thresholds', 'Set a threshold of an instrumentation, a system or a recipe', 201, { body: THRESHOLD }],
  ['DELETE', 'thresholds/{id}', 'Take a threshold away', 204],
  ['GET', 'tokens', 'Who has which', 200],
  [
    'PATCH',
    'tokens',
    'Lives and rotation from now on',
    204,
    { body: ['accessTokenLifeS', 'refreshTokenLifeS', 'rotateRefreshTokens'] },
  ],
  ['POST', 'tokens/expire', 'Every access token expires', 204, { body: ['refresh'] }],
  ['POST', 'tokens/revoke', 'Every token is revoked', 204],
  ['GET', 'inheritance', 'The edges of the model graph', 200],
  ['GET', 'webhooks', 'Webhooks with their secrets', 200],
  ['GET', 'notices', 'Messages to people', 200, { query: ['contact'] }],
  ['POST', 'quota/reset', 'A new period of the quota', 204, { body: ['application'] }],
  ['GET', 'deliveries', 'Deliveries with their attempts', 200, { query: ['webhook'] }],
  ['POST', 'deliveries/resend', 'Send deliveries again', 200, { body: ['ids'] }],
  [
    'GET',
    'requests',
    'The last requests; whole with `whole=true`',
    200,
    { query: [...REQUEST_MATCH, 'limit', 'whole'] },
  ],
  ['DELETE', 'requests', 'Forget them', 204],
  ['GET', 'requests/{id}', 'A request whole, its secrets masked', 200],
  [
    'POST',
    'expectations',
    'Wait for requests; 409 where they do not come',
    200,
    { body: [...REQUEST_MATCH, 'body', 'times', 'withinMs', 'never'] },
  ],
  ['POST', 'offline', 'The platform goes away', 202, { body: ['mode', 'retryAfter', 'forMs'] }],
  ['POST', 'online', 'The platform comes back', 204],
  ['GET', 'faults', 'Faults and poisons that are set', 200],
  ['POST', 'faults', 'Set a fault', 201, { body: FAULT }],
  ['DELETE', 'faults', 'Take all faults away', 204],
  ['DELETE', 'faults/{id}', 'Take a fault away', 204],
  [
    'POST',
    'poison',
    'Refuse every post that holds this',
    204,
    { body: ['asset', 'key', 'value', 'timestampMs', 'status'] },
  ],
  ['GET', 'webhook-faults', 'Faults on the way to receivers, and how these met them', 200],
  [
    'POST',
    'webhook-faults',
    'Set a fault on the way to receivers',
    201,
    { body: ['kind', 'webhook', 'event_type', 'every', 'times', 'delayMs'] },
  ],
  ['DELETE', 'webhook-faults', 'Take all of these away', 204],
  ['DELETE', 'webhook-faults/{id}', 'Take one of these away', 204],
  [
    'POST',
    'exam',
    'Begin to mark what clients send; `provoke` takes them through what they meet in the field, `sign_in` a person too',
    204,
    { body: ['provoke', 'sign_in'] },
  ],
  ['GET', 'exam', 'The marks so far', 200],
  ['DELETE', 'exam', 'End the exam; its marks stay', 204],
  ['PATCH', 'limits', 'Rates', 204, { body: ['perUser', 'perApiKey', 'perAddress', 'retryAfter'] }],
  ['GET', 'changes', 'Names of the changes', 200],
  ['POST', 'changes/{name}', 'Make a change of the site', 204, { body: 'any' }],
  ['GET', 'causes', 'What each event type takes', 200],
  ['POST', 'causes/{type}', 'Trigger an event', 200, { body: 'any' }],
  ['GET', 'objects', 'Kinds and their counts', 200],
  ['GET', 'objects/owners', 'Who owns what', 200],
  ['GET', 'objects/{kind}', 'The records of a kind', 200],
  ['POST', 'objects/{kind}', 'Make a record', 201, { body: 'any' }],
  ['PUT', 'objects/{kind}/{id}', 'Make or replace a record, whole', 200, { body: 'any' }],
  ['PATCH', 'objects/{kind}/{id}', 'Change members of a record', 200, { body: 'any' }],
  ['DELETE', 'objects/{kind}/{id}', 'Destroy an object with everything that hangs on it', 204],
];

export const ADMIN_OPERATIONS: readonly AdminOperation[] = SHORT.map(([method, path, summary, status, more]) => ({
  method,
  path,
  summary,
  status,
  ...more,
}));

/** The members of one operation's body. */
export function membersOf(method: AdminOperation['method'], path: string): readonly string[] {
  const { body } = ADMIN_OPERATIONS.find((one) => one.method === method && one.path === path) ?? {};
  if (body === undefined || body === 'any') throw new Error(`${method} ${path} has no members of its own`);
  return body;
}
