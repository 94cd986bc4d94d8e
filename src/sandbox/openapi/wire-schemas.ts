import { EVENT_TYPES } from '../../contract/events.ts';
import { DISPLAY_LABEL_MEMBERS } from '../../contract/labels.ts';
import { PERMISSION_TYPES, PERMITABLE_TYPES } from '../../contract/permissions.ts';
import { KEY_PATTERN, VALUE_STATUSES } from '../../contract/values.ts';

/**
 * JSON Schemas (2020-12) of the API's bodies by name, made from the same lists as the types of this folder: what the
 * OpenAPI document shows and what whoever builds a client can check against.
 */
type Schema = { readonly [keyword: string]: unknown };

const text: Schema = { type: 'string' };
const integer: Schema = { type: 'integer' };
const boolean: Schema = { type: 'boolean' };
const time: Schema = { type: 'string', format: 'date-time' };

export const ref = (name: WireSchemaName): Schema => ({ $ref: `#/components/schemas/${name}` });
const listOf = (items: Schema): Schema => ({ type: 'array', items });
const object = (properties: Record<string, Schema>, required: string[] = Object.keys(properties)): Schema => ({
  type: 'object',
  properties,
  required,
});
const oneOfTexts = (values: readonly string[]): Schema => ({ type: 'string', enum: [...values] });
const key: Schema = { type: 'string', pattern: KEY_PATTERN.source };

const permitable = object({ id: integer, type: oneOfTexts(PERMITABLE_TYPES) });
const userById = object({ id: integer, type: { const: 'User' } });
const userByEmail = object({ email: text, type: { const: 'User' } });
const usergroup = object({ id: integer, type: { const: 'Usergroup' } });
const assignableV1: Schema = { anyOf: [userById, usergroup] };
const assignableV2: Schema = { anyOf: [userByEmail, usergroup] };
const permissionType = oneOfTexts(PERMISSION_TYPES);
const webhookMembers = {
  url: { type: 'string', format: 'uri' },
  event_types: { ...listOf(oneOfTexts(EVENT_TYPES)), minItems: 1 },
  properties: { type: 'object', additionalProperties: listOf(text) },
  disabled: boolean,
  force_sorted_delivery: boolean,
};
const readValue = {
  type: 'object',
  properties: {
    timestamp: time,
    value: { type: 'number' },
    status: oneOfTexts(VALUE_STATUSES),
    simulated: boolean,
    hold: boolean,
    group: text,
    unit: object({ code: text }),
  },
  required: ['timestamp', 'value'],
  additionalProperties: false,
};

export const WIRE_SCHEMAS = {
  /** Platform 2.1. */
  TokenResponse: object({
    access_token: text,
    token_type: { const: 'Bearer' },
    expires_in: integer,
    refresh_token: text,
    created_at: integer,
  }),
  /** RFC 6749 section 5.2. */
  OAuthError: object({ error: text, error_description: text }, ['error']),
  /** platform 10.3. */
  Error: object({ errors: listOf(object({ type: text, message: text, attribute: text }, ['type', 'message'])) }),
  Pagination: object(
    {
      total_count: integer,
      page_count: integer,
      per_page: integer,
      page: integer,
      prev: { type: ['string', 'null'] },
      next: { type: ['string', 'null'] },
      first: { type: ['string', 'null'] },
      last: { type: ['string', 'null'] },
    },
    ['total_count', 'page_count', 'per_page', 'page'],
  ),
  /** platform 10.2. */
  ValuesBody: object({
    values: listOf(
      object(
        {
          key,
          group: key,
          unit: { anyOf: [object({ id: integer }), object({ code: text })] },
          data: listOf(
            object(
              {
                timestamp: time,
                value: { type: 'number' },
                status: oneOfTexts(VALUE_STATUSES),
                simulated: boolean,
                hold: boolean,
              },
              ['value'],
            ),
          ),
        },
        ['key', 'data'],
      ),
    ),
  }),
  /** How the sandbox gives values back; the spec does not show it. */
  ReadValue: readValue,
  LastValue: { ...readValue, properties: { key, ...readValue.properties }, required: ['key', ...readValue.required] },
  /** RFC 7009 section 2.2: of a revocation's answer nothing matters but its status. */
  Nothing: { type: 'object', maxProperties: 0 },
  /** Platform 6.2: what references lead to, with the members that 6.3 gives them. */
  Asset: object({ id: integer, href: text, serial_number: text, status: object({ id: integer, href: text }) }, [
    'id',
    'href',
  ]),
  Instrumentation: object({ id: integer, href: text, tag: text }),
  Node: object({ id: integer, href: text, name: text, tag: text }, ['id', 'href', 'name']),
  Unit: object({ id: integer, href: text, code: text, symbol: text }, ['id', 'href', 'code']),
  /** Platform 2.3. */
  ClientApplication: object({ id: integer, name: text }),
  /** Payload is reported where the application has a `byte_quota`. */
  ApiSubscription: object(
    {
      id: integer,
      api_call_quota: integer,
      api_calls_used: integer,
      payload_quota: integer,
      payload_used: integer,
      start_date: text,
      status: text,
    },
    ['id', 'api_call_quota', 'api_calls_used', 'start_date', 'status'],
  ),
  /** Platform 2.4. */
  WebhookCreate: object(webhookMembers, ['url', 'event_types']),
  WebhookChange: object(webhookMembers, []),
  Webhook: object({ id: integer, ...webhookMembers }, ['id', 'url', 'event_types', 'disabled']),
  WebhookCreated: object({ id: integer, ...webhookMembers, secret: text }, ['id', 'url', 'event_types', 'secret']),
  WebhookSecret: object({ secret: text }),
  /** Platform 2.5. */
  Delivery: object(
    {
      id: integer,
      status: oneOfTexts(['pending', 'delivered', 'cancelled', 'failed']),
      payload: { type: 'object' },
      last_send_at: { type: ['string', 'null'] },
      retries: integer,
    },
    ['id', 'status'],
  ),
  ResendBody: object({ webhook_events: listOf(object({ id: integer })) }),
  /** Platform 2.2. */
  PermissionCreateV1: object({
    permission_type: { anyOf: [listOf(permissionType), text] },
    assignable: assignableV1,
    permitable,
  }),
  PermissionV1: object({ id: text, permission_type: permissionType, assignable: assignableV1, permitable }),
  PermissionCreateV2: object({ permission_types: listOf(permissionType), assignable: assignableV2, permitable }),
  PermissionChangeV2: object({ permission_types: listOf(permissionType) }),
  PermissionV2: object(
    { id: integer, permission_types: listOf(permissionType), assignable: assignableV2, permitable },
    ['id', 'permission_types'],
  ),
  OwnerV1: object({ assignable: userById, permitable }),
  OwnerV2: object({ assignable: userByEmail, permitable }),
  /** Platform 4.3. */
  AdminsV1: object({ admins: listOf(object({ id: integer })) }),
  UsersV1: object({ users: listOf(object({ id: integer })) }),
  UsersV2: object({ users: listOf(object({ email: text })) }),
  /** Platform 2.6. */
  DisplayLabelsV1: { type: 'object', additionalProperties: text },
  DisplayLabelsV2: {
    type: 'object',
    additionalProperties: {
      ...object(Object.fromEntries(Object.entries(DISPLAY_LABEL_MEMBERS).map(([name, type]) => [name, { type }])), []),
      additionalProperties: false,
    },
  },
} satisfies Record<string, Schema>;

export type WireSchemaName = keyof typeof WIRE_SCHEMAS;
