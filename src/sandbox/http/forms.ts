import { insteadOf } from '../../base/nearest.ts';
import { isEventType } from '../../contract/events.ts';
import {
  PERMISSION_TYPES,
  PERMITABLE_TYPES,
  type PermissionType,
  type PermitableType,
} from '../../contract/permissions.ts';
import { type Call, isObject, objectBody, readTimestamp } from './call.ts';
import { refusal } from './refusal.ts';

/** Value types by form. */
export interface Forms {
  any: unknown;
  text: string;
  texts: string[];
  textOrNull: string | null;
  textOrNumber: string | number;
  date: string | null;
  flag: boolean;
  object: Record<string, unknown>;
  objects: object[];
  list: unknown[];
  ids: number[];
  id: number;
  number: number;
  positive: number;
  count: number;
  limit: number;
  milliseconds: number;
  status: number;
  time: string;
  eventType: string;
  assignable: { type: 'User' | 'Usergroup'; id: number };
  permitable: { type: PermitableType; id: number };
  permissionTypes: PermissionType[];
}

const isWhole = (value: unknown, min: number, max = Number.MAX_SAFE_INTEGER) =>
  Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max;
const isText = (value: unknown) => typeof value === 'string';
const isNumber = (value: unknown) => Number.isFinite(value);
const isList = (each: (value: unknown) => boolean) => (value: unknown) => Array.isArray(value) && value.every(each);
const isReference = (types: readonly unknown[]) => (value: unknown) =>
  isObject(value) && types.includes(value.type) && Number.isSafeInteger(value.id);
const isPermissionType = (value: unknown) => (PERMISSION_TYPES as readonly unknown[]).includes(value);

/** Checks of members in admin requests and records, with the message for the 400 response. */
const CHECKS: Readonly<Record<keyof Forms, readonly [fits: (value: unknown) => boolean, message: string]>> = {
  any: [() => true, ''],
  text: [isText, 'must be text'],
  texts: [isList(isText), 'must be a list of texts'],
  textOrNull: [(value) => value === null || isText(value), 'must be text or null'],
  date: [(value) => value === null || !Number.isNaN(Date.parse(String(value))), 'must be a date or null'],
  textOrNumber: [(value) => isText(value) || isNumber(value), 'must be a number or text'],
  flag: [(value) => typeof value === 'boolean', 'must be true or false'],
  object: [isObject, 'must be an object'],
  objects: [isList(isObject), 'must be a list of objects'],
  list: [Array.isArray, 'must be a list'],
  ids: [isList(Number.isSafeInteger), 'must be a list of ids'],
  id: [Number.isSafeInteger, 'must be a whole number'],
  number: [isNumber, 'must be a number'],
  positive: [(value) => isNumber(value) && (value as number) > 0, 'must be a number greater than 0'],
  count: [(value) => isWhole(value, 1), 'must be a whole number greater than 0'],
  limit: [(value) => isWhole(value, 0), 'must be a whole number'],
  milliseconds: [
    (value) => isNumber(value) && (value as number) >= 0 && (value as number) <= 3_600_000,
    'must be a number of milliseconds, at most 3600000',
  ],
  status: [(value) => isWhole(value, 200, 599), 'must be a status from 200 to 599'],
  time: [(value) => readTimestamp(value) !== undefined, 'must be an ISO 8601 time'],
  eventType: [(value) => isText(value) && isEventType(value as string), 'must be an event type'],
  assignable: [isReference(['User', 'Usergroup']), 'must be {"type", "id"} with the type User or Usergroup'],
  permitable: [isReference(PERMITABLE_TYPES), `must be {"type", "id"} with a type of ${PERMITABLE_TYPES.join(', ')}`],
  permissionTypes: [
    (value) => isList(isPermissionType)(value) && (value as unknown[]).length > 0,
    `must be a list of ${PERMISSION_TYPES.join(', ')}`,
  ],
};

export type Form = keyof Forms | readonly string[];
type Value<F> = F extends keyof Forms ? Forms[F] : F extends readonly (infer W)[] ? W : never;
type Body<S> = { [N in keyof S]?: Value<S[N]> };

/** Returns the reason why a value does not have a form, if any. A list contains the allowed values. */
export function problemWith(value: unknown, form: Form): string | undefined {
  if (typeof form !== 'string') {
    return form.includes(value as string) ? undefined : `is unknown: ${insteadOf(String(value).slice(0, 60), form)}`;
  }
  const [fits, message] = CHECKS[form as keyof Forms];
  return fits(value) ? undefined : message;
}

/**
 * Returns the body of an admin request, or `{}` if the body is empty. Throws a 400 for an unknown or malformed member.
 */
export function adminBody<const S extends Readonly<Record<string, Form>>>(call: Call, shape: S): Body<S> {
  return call.raw.length === 0 ? {} : membersOf(objectBody(call), shape);
}

export function membersOf<const S extends Readonly<Record<string, Form>>>(body: object, shape: S): Body<S> {
  for (const [name, value] of Object.entries(body)) {
    const form = Object.hasOwn(shape, name) ? shape[name] : undefined;
    if (form === undefined) throw refusal(400, `is unknown: ${insteadOf(name, Object.keys(shape))}`, name.slice(0, 60));
    const message = problemWith(value, form);
    if (message !== undefined) throw refusal(400, message, name);
  }
  return body as Body<S>;
}

/** Returns a required member of a validated body. */
export function required<Value>(body: { [name: string]: Value | undefined }, name: string): Value {
  const value = body[name];
  if (value === undefined) throw refusal(400, 'is missing', name);
  return value;
}
